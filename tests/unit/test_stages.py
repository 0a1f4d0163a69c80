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


def test_what_fails_once_is_tried_again_alone_where_that_is_allowed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "noisy"
    folder.mkdir()
    (folder / "test_noisy.py").write_text(
        "from pathlib import Path\n"
        "MARK = Path(__file__).with_name('mark')\n"
        "def test_fine(): assert not MARK.exists()\n"
        "def test_first_time_no():\n"
        "    seen = MARK.exists()\n"
        "    MARK.touch()\n"
        "    assert seen\n"
    )
    counts: Counter[str] = Counter()
    noisy = stages.Stage("noisy", tests=(str(folder),), twice=True)
    assert stages._run(noisy, time.monotonic() + 60, counts)
    assert counts["passed"] == 2
    assert counts["failed"] == 0
    assert "once more and alone" in capfd.readouterr().out
    (folder / "mark").unlink()
    assert not stages._run(
        stages.Stage("quiet", tests=(str(tmp_path),)), time.monotonic() + 60, counts
    )
