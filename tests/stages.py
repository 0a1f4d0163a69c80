"""`python -m tests.stages [stage ...]`: every gate, the fast ones first, one closing line for all.

Each stage is a process of its own, so that one that leaks or hangs spoils no other. All stages
run even when one fails; together they have a deadline, at which the running one is ended and told
as failed. A stage without tests passes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

SECONDS_AIM = 20 * 60
SECONDS_MAX = 60 * 60
SOME_FAILED = 1
NO_TESTS_COLLECTED = 5
WIDTH = 100


@dataclass(frozen=True)
class Stage:
    """Commands that must all succeed; `tests` are what pytest is asked to run.

    `twice`: the stage kills and freezes real processes on a machine that others use as well, so
    what fails is tried once more, alone, and that it was is said. `workers`: how many processes
    share the test files; tests that start no Ray take turns on one core otherwise. `marked`: only
    tests with these marks.
    """

    name: str
    commands: tuple[tuple[str, ...], ...] = ()
    tests: tuple[str, ...] = ()
    twice: bool = False
    workers: int = 1
    marked: str = ""


STAGES = (
    Stage(
        "check",
        commands=(
            ("ruff", "check", "--quiet", "."),
            ("ruff", "format", "--check", "--quiet", "."),
            ("mypy",),
            ("mypy", "examples"),
        ),
        tests=("tests/test_tidy.py",),
    ),
    Stage("unit", tests=("tests/unit", "tests/fuzz"), workers=2),
    Stage("packaging", tests=("tests/test_packaging.py", "tests/test_setup.py")),
    Stage("contract", tests=("tests/contract",), twice=True, workers=2),
    Stage("simulation", tests=("tests/simulation",)),
    Stage("faults", tests=("tests/faults",), workers=2),
    # The same classes as actors have, in one process; then on a real Ray, with real kills.
    Stage("inside", tests=("tests/actors",), marked="not ray", twice=True, workers=2),
    Stage("actors", tests=("tests/actors",), marked="ray", twice=True),
    Stage("cli", tests=("tests/cli",), twice=True),
    Stage("spark", tests=("tests/spark",), twice=True),
    Stage("examples", tests=("tests/examples", "tests/docs"), twice=True),
)


def main(wanted: list[str]) -> int:
    """Run the wanted stages (all when none is named); answer the exit status."""
    known = {stage.name: stage for stage in STAGES}
    for name in wanted:
        if name not in known:
            print(f"no stage {name!r}; stages are: {', '.join(known)}", file=sys.stderr)
            return 2
    began = time.monotonic()
    counts: Counter[str] = Counter()
    failed = []
    for stage in STAGES:
        if wanted and stage.name not in wanted:
            continue
        stage_began = time.monotonic()
        print(f"--- {stage.name}", flush=True)
        if not _run(stage, began + SECONDS_MAX, counts):
            failed.append(stage.name)
        print(f"--- {stage.name}: {time.monotonic() - stage_began:.1f} s", flush=True)
    if failed:
        print(f"FAILED stages: {', '.join(failed)}")
    if time.monotonic() - began > SECONDS_AIM:
        print(f"SLOW: this should take {SECONDS_AIM // 60} minutes at most on two quiet cores")
    print(_closing_line(counts, time.monotonic() - began), flush=True)
    return 1 if failed else 0


def _run(stage: Stage, deadline: float, counts: Counter[str]) -> bool:
    sound = True
    for command in stage.commands:
        ended = _call([sys.executable, "-m", *command], deadline)
        sound = sound and ended == 0
        counts["passed" if ended == 0 else "failed"] += 1
    there = [test for test in stage.tests if Path(test).exists()]
    if there:
        with tempfile.TemporaryDirectory(prefix="pxrs-stage-") as folder:
            asked = [*there, *(["-m", stage.marked] if stage.marked else [])]
            shared = ["-n", str(stage.workers), "--dist", "loadfile"] if stage.workers > 1 else []
            ended, found = _pytest([*asked, *shared], Path(folder), deadline)
            if ended == SOME_FAILED and stage.twice:
                print(f"--- {stage.name}: what failed, once more and alone", flush=True)
                ended, again = _pytest([*asked, "--last-failed"], Path(folder), deadline)
                for what in ("failed", "error"):
                    found["passed"] += found[what] - again[what]
                    found[what] = again[what]
        counts.update(found)
        sound = sound and ended in (0, NO_TESTS_COLLECTED)
    return sound


def _pytest(arguments: list[str], folder: Path, deadline: float) -> tuple[int, Counter[str]]:
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    flags = ["-q", "--durations=5", f"--junitxml={report}", "-o", f"cache_dir={folder / 'cache'}"]
    ended = _call([sys.executable, "-m", "pytest", *flags, *arguments], deadline)
    return ended, _counts(report) if report.exists() else Counter(failed=1)


def _call(command: list[str], deadline: float) -> int:
    """Run a command in a group of its own; end the whole group at the deadline."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        print(f"OUT OF TIME: {' '.join(command)}", flush=True)
        return -1
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def _counts(report: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    try:
        root = ET.parse(report).getroot()
    except ET.ParseError:
        return Counter(failed=1)  # pytest was ended while it wrote
    for suite in root.iter("testsuite"):
        bad = {name: int(suite.get(name, 0)) for name in ("failures", "errors", "skipped")}
        found["failed"] += bad["failures"]
        found["error"] += bad["errors"]
        found["skipped"] += bad["skipped"]
        found["passed"] += int(suite.get("tests", 0)) - sum(bad.values())
    return found


def _closing_line(counts: Counter[str], seconds: float) -> str:
    told = [f"{counts[what]} {what}" for what in ("failed", "passed", "skipped", "error")]
    shown = ", ".join(text for text in told if not text.startswith("0 ")) or "no tests ran"
    minutes = f" ({int(seconds) // 60}:{int(seconds) % 60:02d} min)" if seconds >= 60 else ""
    return f" {shown} in {seconds:.2f}s{minutes} ".center(WIDTH, "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
