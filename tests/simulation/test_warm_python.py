"""A program in a fork of a process that is warm does what one does that was started by itself."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.warm_python import WarmPython


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warm")


@pytest.fixture(scope="module")
def warm(folder: Path) -> Iterator[WarmPython]:
    python = WarmPython(folder, {**os.environ, "PYTHONPATH": str(folder)})
    yield python
    python.close()


def test_what_it_is_told_says_and_ends_with(warm: WarmPython) -> None:
    program = "import sys; print(sys.stdin.read()); print(sys.argv, file=sys.stderr); sys.exit(3)"
    ran = warm.run("-c", program, "x", told="heard", timeout_s=30)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("heard\n", "['-c', 'x']\n", 3)
    ran = warm.run("-c", "raise ValueError('no')", told="", timeout_s=30)
    assert ran.returncode == 1 and ran.stderr.endswith("ValueError: no\n")
    assert warm.run("-c", "import os; os.abort()", told="", timeout_s=30).returncode < 0
    assert warm.run("-c", "pass", told="", timeout_s=30).returncode == 0


def test_each_finds_the_sources_as_they_are_and_nothing_of_the_one_before(
    warm: WarmPython, folder: Path
) -> None:
    for number in range(3):
        (folder / "ours.py").write_text(f"said = 'text {number}'\n")
        os.utime(folder / "ours.py", (number, number))
        program = "import sys; print('ours' in sys.modules); import ours; print(ours.said)"
        ran = warm.run("-c", program, told="", timeout_s=30)
        assert ran.stdout == f"False\ntext {number}\n"


def test_tests_are_run_with_what_they_assert_told(warm: WarmPython, folder: Path) -> None:
    (folder / "test_ours.py").write_text("def test_it():\n    assert [1] == [2]\n")
    ran = warm.run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ours.py", told="", timeout_s=60
    )
    assert ran.returncode == 1 and "assert [1] == [2]" in ran.stdout


def test_what_takes_too_long_is_ended(warm: WarmPython) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as told:
        warm.run(
            "-c", "print('begun', flush=True); import time; time.sleep(60)", told="", timeout_s=0.5
        )
    assert told.value.stdout in ("begun\n", "")
    assert warm.run("-c", "print('next')", told="", timeout_s=30).stdout == "next\n"


def test_what_runs_ends_with_who_asked(tmp_path: Path) -> None:
    python = WarmPython(tmp_path, dict(os.environ))
    note = str(tmp_path / "pid")
    program = f"import os, time; open({note!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    asking = threading.Thread(target=_asked, args=(python, program))
    asking.start()
    end_s = time.monotonic() + 30
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    python.close()
    asking.join(30)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def _asked(python: WarmPython, program: str) -> None:
    with pytest.raises((RuntimeError, ValueError, subprocess.TimeoutExpired)):
        python.run("-c", program, told="", timeout_s=60)
