"""The stage runner counts what ran, ends what hangs, names what failed, and runs lanes at once."""

from __future__ import annotations

import re
import signal
import threading
import time
from pathlib import Path

import pytest

from tests import stages
from tests.stages import COMPUTING, RUNNERS, STAGES, WAITING, Outcome, Stage, main, run_all

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


def ran(stage: Stage, folder: Path, seconds: float = 60) -> Outcome:
    """The stage, run by itself."""
    [outcome] = run_all([stage], folder, time.monotonic() + seconds)
    return outcome


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


def test_a_failing_command_fails_its_stage(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lint = Stage("lint", commands=(("no_such_module", "-q"),), tests=("test_sound.py",))
    monkeypatch.setattr(stages, "STAGES", (lint,))
    assert main([]) == 1
    assert "\nFAILED no_such_module -q\n" in capfd.readouterr().out


def test_each_module_is_compiled_once_and_nothing_of_it_stays_beside_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/part.py").write_text("")
    Path("mine/test_part.py").write_text("def test_it(): import part")
    outcomes = run_all([Stage("one", tests=("mine",))], tmp_path / "run", time.monotonic() + 60)
    assert outcomes[0].sound
    (compiled,) = tmp_path.rglob("part.*.pyc")
    assert compiled.is_relative_to(tmp_path / "run" / "compiled")


def test_what_hangs_is_ended_at_the_deadline(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("test_hangs.py").write_text("import time\ndef test_hangs(): time.sleep(600)")
    began = time.monotonic()
    outcome = ran(Stage("hangs", tests=("test_hangs.py",)), tmp_path, seconds=1)
    assert not outcome.sound
    assert time.monotonic() - began < 30
    assert outcome.counts["failed"] == 1
    assert "OUT OF TIME" in capfd.readouterr().out


NOISY = """
from pathlib import Path
MARK = Path(__file__).with_name('mark')
def test_fine(): assert not MARK.exists()
def test_first_time_no():
    seen = MARK.exists()
    MARK.touch()
    assert seen
"""


def noisy(folder: Path) -> Path:
    folder.mkdir()
    (folder / "test_noisy.py").write_text(NOISY)
    return folder


def test_what_fails_once_is_tried_again_alone_where_that_is_allowed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = noisy(tmp_path / "noisy")
    outcome = ran(Stage("noisy", tests=(str(folder),), twice=True), tmp_path / "one")
    assert outcome.sound
    assert +outcome.counts == {"passed": 2}
    [passed] = outcome.passed_alone
    assert passed.endswith("test_noisy.py::test_first_time_no")
    assert "once more and alone" in capfd.readouterr().out
    (folder / "mark").unlink()
    assert not ran(Stage("quiet", tests=(str(folder),)), tmp_path / "two").sound


def test_what_fails_beside_another_is_tried_again_when_nothing_else_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = noisy(tmp_path / "noisy")
    Path("test_slow.py").write_text("import time\ndef test_slow(): time.sleep(3)")
    monkeypatch.setattr(
        stages,
        "STAGES",
        (
            Stage("noisy", tests=(str(folder),)),
            Stage("slow", tests=("test_slow.py",), lane=WAITING),
        ),
    )
    assert main([]) == 0
    told = capfd.readouterr().out.splitlines()
    assert re.fullmatch(r"=+ 3 passed in \d+\.\d\ds =+", told[-1])
    assert told[-3] == "failed at first, and passed alone:"
    assert told[-2].endswith("test_noisy.py::test_first_time_no")
    again = next(number for number, line in enumerate(told) if "once more" in line)
    assert again > next(number for number, line in enumerate(told) if "--- slow: " in line)


def test_lanes_run_at_once_and_tell_what_they_said_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of the two waits for the other to be there."""
    for mine, other in (("a", "b"), ("b", "a")):
        Path(f"test_{mine}.py").write_text(
            f"import time\nfrom pathlib import Path\n"
            f"def test_{mine}():\n"
            f"    for _ in range(600):\n"
            f"        Path({mine!r}).touch()\n"
            f"        print('{mine} looks')\n"
            f"        if Path({other!r}).exists(): break\n"
            f"        time.sleep(0.1)\n"
            f"    assert Path({other!r}).exists()\n"
            f"    assert {mine!r} == 'a', 'b fails here'\n"
        )
    outcomes = run_all(
        [
            Stage("a", tests=("test_a.py",), lane=COMPUTING),
            Stage("b", tests=("test_b.py",), lane=WAITING),
        ],
        tmp_path,
        time.monotonic() + 60,
    )
    assert [outcome.sound for outcome in outcomes] == [True, False]
    assert outcomes[1].failing == ["test_b.py::test_b"]
    told = capfd.readouterr().out
    whole = told[told.index("--- b\n") : told.index("--- b: ")]
    assert "b fails here" in whole
    assert "--- a" not in whole


def test_the_tests_that_failed_are_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    quiet = Stage("quiet", tests=("test_sound.py",))
    monkeypatch.setattr(stages, "STAGES", (Stage("mixed", tests=("test_mixed.py",)), quiet))
    assert main([]) == 1
    named, stage, _ = capfd.readouterr().out.splitlines()[-3:]
    assert named == "FAILED test_mixed.py::test_broken"
    assert stage == "FAILED stages: mixed"


def test_a_pytest_that_ends_otherwise_fails_its_stage(tmp_path: Path) -> None:
    Path("test_ends.py").write_text("import os\ndef test_ends(): os._exit(7)")
    outcome = ran(Stage("ends", tests=("test_ends.py",), twice=True), tmp_path)
    assert not outcome.sound
    assert outcome.failing == ["pytest ended with 7"]
    assert outcome.counts["failed"] == 1


def test_both_lanes_end_when_whoever_waits_is_interrupted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Path(f"test_{name}.py").write_text(
            f"import os, time\nfrom pathlib import Path\n"
            f"def test_hangs():\n"
            f"    Path('pid.{name}').write_text(str(os.getpid()))\n"
            f"    time.sleep(600)\n"
        )
    pids = [Path("pid.a"), Path("pid.b")]

    def interrupt() -> None:
        end = time.monotonic() + 60
        while not all(path.exists() for path in pids) and time.monotonic() < end:
            time.sleep(0.05)
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGINT)

    began = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_all(
                [Stage("a", tests=("test_a.py",)), Stage("b", tests=("test_b.py",), lane=WAITING)],
                tmp_path / "runs",
                began + 600,
            )
    finally:
        signal.signal(signal.SIGINT, before)
        interrupting.join()
    assert time.monotonic() - began < 120
    assert not any(Path(f"/proc/{path.read_text()}").exists() for path in pids)


def test_a_lane_that_is_done_takes_over_from_the_others_end(tmp_path: Path) -> None:
    """All that begin wait for the last, which the other lane has to run."""
    Path("test_waits.py").write_text(
        "import time\nfrom pathlib import Path\n"
        "def test_waits():\n"
        "    end = time.monotonic() + 60\n"
        "    while not Path('last').exists() and time.monotonic() < end: time.sleep(0.05)\n"
        "    assert Path('last').exists() and not Path('middle').exists()\n"
    )
    for name in ("middle", "last"):
        Path(f"test_{name}.py").write_text(
            f"import time\nfrom pathlib import Path\n"
            f"def test_{name}():\n"
            f"    Path('{name}').touch()\n"
            f"    time.sleep({3 if name == 'last' else 0})\n"
        )
    waits = dict.fromkeys(map(str, range(RUNNERS.count(WAITING))), "waits")
    names = {**waits, "middle": "middle", "last": "last"}
    waiting = [Stage(n, tests=(f"test_{file}.py",), lane=WAITING) for n, file in names.items()]
    computing = Stage("sound", tests=("test_sound.py",))
    outcomes = run_all([computing, *waiting], tmp_path / "runs", time.monotonic() + 120)
    assert [outcome.stage.name for outcome in outcomes] == ["sound", *names]
    assert all(outcome.sound for outcome in outcomes)
    assert {outcome.stage.name for outcome in outcomes if outcome.nice} >= {"sound", "last"}


def test_every_file_of_tests_is_of_a_stage() -> None:
    asked = [Path(asked) for stage in STAGES for asked in stage.tests]
    root = Path(stages.__file__).parent.parent
    files = [file.relative_to(root) for file in root.joinpath("tests").rglob("test_*.py")]
    left = [str(f) for f in files if not any(f == one or one in f.parents for one in asked)]
    assert files and not left
