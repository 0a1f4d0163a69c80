"""The stage runner counts what ran, passes what has no tests, and ends what hangs."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import stages
from tests.stages import Stage, main

MIXED = """
import pytest
def test_sound(): pass
def test_broken(): assert 0
@pytest.mark.skip
def test_left_out(): pass
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_mixed.py").write_text(MIXED)
    Path("test_sound.py").write_text("def test_sound(): pass")
    Path("empty").mkdir()


def last_line(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().out.splitlines()[-1]


def test_a_failure_does_not_stop_the_others_and_is_counted(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mixed, sound = (
        Stage("mixed", tests=("test_mixed.py",)),
        Stage("sound", tests=("test_sound.py",)),
    )
    monkeypatch.setattr(stages, "STAGES", (mixed, sound))
    assert main([]) == 1
    assert re.fullmatch(r"=+ 1 failed, 2 passed, 1 skipped in \d+\.\d\ds =+", last_line(capfd))
    assert main(["sound"]) == 0
    assert re.fullmatch(r"=+ 1 passed in \d+\.\d\ds =+", last_line(capfd))
    assert main(["nonsense"]) == 2


def test_stages_without_tests_pass(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    absent, empty = Stage("absent", tests=("nowhere",)), Stage("empty", tests=("empty",))
    monkeypatch.setattr(stages, "STAGES", (absent, empty))
    assert main([]) == 0
    assert "no tests ran" in last_line(capfd)


def test_a_failing_command_fails_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "STAGES", (Stage("lint", commands=(("no_such_module",),)),))
    assert main([]) == 1


def test_what_hangs_is_ended_at_the_deadline(capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_hangs.py").write_text("import time\ndef test_hangs(): time.sleep(600)")
    began = time.monotonic()
    counts: Counter[str] = Counter()
    assert not stages._run(Stage("hangs", tests=("test_hangs.py",)), began + 1, counts)
    assert time.monotonic() - began < 30
    assert counts["failed"] == 1
    assert "OUT OF TIME" in capfd.readouterr().out
