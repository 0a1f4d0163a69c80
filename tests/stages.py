"""`python -m tests.stages [stage ...]`: every gate, the fast ones first, one closing line for all.

Each stage is a process of its own, so that one that leaks or hangs spoils no other. Four run side
by side: one that computes, and three that mostly wait for a real Ray, each of which leaves more
than half of a core idle. Who finds its lane empty takes over from the other's end. Each stage's
output is printed whole when it ends. What fails there is tried once more when nothing else runs.
All stages run even when one fails; together they have a deadline, at which the running ones are
ended and told as failed. A stage without tests passes. The last lines name every test that failed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree as ET

SECONDS_AIM = 20 * 60
SECONDS_MAX = 60 * 60
LOOK_S = 0.5
SOME_FAILED = 1
NO_TESTS_COLLECTED = 5
NOT_RUN = -1
WIDTH = 100
# The lanes, and how nice each is: who computes beside a real Ray takes what that leaves.
COMPUTING, WAITING = "computing", "waiting"
NICE = {COMPUTING: 5, WAITING: 0}
# Who runs side by side, by the lane where each begins.
RUNNERS = (COMPUTING, WAITING, WAITING, WAITING)
# Where this is set, Python keeps nothing of what it has compiled.
COMPILES_EACH_TIME = "PYTHONDONTWRITEBYTECODE"
# Where Python keeps it otherwise.
COMPILED = "PYTHONPYCACHEPREFIX"


@dataclass(frozen=True)
class Stage:
    """Commands that must all succeed; `tests` are what pytest is asked to run.

    `twice`: the stage kills and freezes real processes on a machine that others use as well, so
    what fails is tried once more, alone, and that it was is said; so it is in any stage that ran
    beside another. `workers`: how many processes share the tests, by file or, where tests of one
    file are long and share nothing, one by one (`dist`). `marked`: only tests with these marks.
    Stages of a `lane` begin in their order: the longest stand first, so that all end together.
    """

    name: str
    commands: tuple[tuple[str, ...], ...] = ()
    tests: tuple[str, ...] = ()
    twice: bool = False
    workers: int = 1
    dist: str = "loadfile"
    marked: str = ""
    lane: str = COMPUTING


STAGES = (
    Stage(
        "check",
        commands=(
            ("ruff", "check", "--quiet", "."),
            ("ruff", "format", "--check", "--quiet", "."),
            ("mypy",),
            ("mypy", "examples"),
        ),
        tests=(
            "tests/test_tidy.py",
            "tests/test_rooms.py",
            "tests/test_one_place.py",
            "tests/test_reached.py",
        ),
    ),
    # Some wait for processes that they kill: a third of what they take.
    Stage("unit", tests=("tests/unit", "tests/fuzz"), workers=3, dist="worksteal"),
    Stage(
        "packaging",
        tests=("tests/test_packaging.py", "tests/test_extras.py", "tests/test_setup.py"),
    ),
    Stage("contract", tests=("tests/contract",), twice=True, workers=2),
    Stage("simulation", tests=("tests/simulation",), workers=2, dist="worksteal"),
    Stage("faults", tests=("tests/faults",), workers=2, dist="worksteal"),
    # The same classes as actors have, in one process; then on a real Ray, with real kills. Inside,
    # most of the time is waited: a quarter of a core is busy for each two that share the tests.
    Stage("inside", tests=("tests/actors",), marked="not ray", twice=True, workers=4),
    Stage("actors", tests=("tests/actors",), marked="ray", twice=True, lane=WAITING),
    # Three hosts in namespaces, each with a disk and a Ray node of its own; power cuts, cut links.
    Stage("hosts", tests=("tests/hosts",), twice=True, lane=WAITING),
    Stage("cli", tests=("tests/cli",), twice=True, lane=WAITING),
    Stage("spark", tests=("tests/spark",), twice=True, lane=WAITING),
    Stage("examples", tests=("tests/examples", "tests/docs"), twice=True, lane=WAITING),
)


@dataclass
class Outcome:
    """What became of a stage so far: its failed commands, pytest's status and failed tests."""

    stage: Stage
    beside: bool = False
    nice: int = 0
    broken: list[str] = field(default_factory=list)
    ended: int = 0
    failing: list[str] = field(default_factory=list)
    passed_alone: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def sound(self) -> bool:
        """Whether all went well."""
        return not self.broken and self.ended in (0, NO_TESTS_COLLECTED)

    @property
    def tried_again(self) -> bool:
        """Whether what failed is to be tried once more."""
        return self.ended == SOME_FAILED and (self.stage.twice or self.beside)


def main(wanted: list[str]) -> int:
    """Run the wanted stages (all when none is named); answer the exit status."""
    known = {stage.name: stage for stage in STAGES}
    for name in wanted:
        if name not in known:
            print(f"no stage {name!r}; stages are: {', '.join(known)}", file=sys.stderr)
            return 2
    began = time.monotonic()
    chosen = [stage for stage in STAGES if not wanted or stage.name in wanted]
    with tempfile.TemporaryDirectory(prefix="pxrs-stages-", ignore_cleanup_errors=True) as folder:
        outcomes = run_all(chosen, Path(folder), began + SECONDS_MAX)
    seconds = time.monotonic() - began
    for line in _told(outcomes):
        print(line)
    if seconds > SECONDS_AIM:
        print(f"SLOW: this should take {SECONDS_AIM // 60} minutes at most on two quiet cores")
    counts = sum((outcome.counts for outcome in outcomes), Counter())
    print(_closing_line(counts, seconds), flush=True)
    return 0 if all(outcome.sound for outcome in outcomes) else 1


def run_all(stages: Sequence[Stage], folder: Path, deadline: float) -> list[Outcome]:
    """Run stages, the lanes side by side; then, with nothing beside it, what is tried again."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(folder, deadline)
    lanes = {lane: deque(stage for stage in stages if stage.lane == lane) for lane in NICE}
    if not all(lanes.values()):
        outcomes = [runs.first(Outcome(stage)) for stage in stages]
    else:
        with ThreadPoolExecutor(len(RUNNERS)) as pool:
            try:
                done = pool.map(partial(runs.one_by_one, lanes), RUNNERS)
                outcomes = sorted(chain(*done), key=lambda one: stages.index(one.stage))
            except BaseException:
                runs.end()
                raise
    for outcome in outcomes:
        if outcome.tried_again:
            runs.again(outcome)
    return outcomes


class Runs:
    """Runs stages and tells of them; whatever runs at the deadline, or at `end`, is ended."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline
        self._ended = threading.Event()
        self._telling = threading.Lock()

    def end(self) -> None:
        """End what runs and begin nothing more."""
        self._ended.set()

    def one_by_one(self, lanes: Mapping[str, deque[Stage]], mine: str) -> list[Outcome]:
        """Run the stages of one lane beside another, and then what the other comes to last."""
        done = []
        while stage := _taken(lanes, mine):
            done.append(self.first(Outcome(stage, beside=True, nice=NICE[mine])))
        return done

    def first(self, outcome: Outcome) -> Outcome:
        """Run a stage; its output is shown as it comes, or, beside another, whole at its end."""
        stage, began = outcome.stage, time.monotonic()
        (self._folder / stage.name).mkdir()
        self._tell(f"--- {stage.name}{' begins' if outcome.beside else ''}")
        output = self._folder / stage.name / "output"
        for command in stage.commands:
            ended = self._call(command, outcome, output)
            outcome.counts["passed" if ended == 0 else "failed"] += 1
            outcome.broken += [" ".join(command)] if ended else []
        if any(Path(test).exists() for test in stage.tests):
            shared = ("-n", str(stage.workers), "--dist", stage.dist)
            self._pytest(outcome, output, *(shared if stage.workers > 1 else ()))
        took = f"--- {stage.name}: {time.monotonic() - began:.1f} s"
        if outcome.beside:
            self._tell(f"--- {stage.name}", output, took)
        else:
            self._tell(took)
        return outcome

    def again(self, outcome: Outcome) -> None:
        """Try once more what failed, with nothing else beside it."""
        began, failed_before, counts = time.monotonic(), outcome.failing, outcome.counts.copy()
        name = f"{outcome.stage.name}: what failed, once more and alone"
        self._tell(f"--- {name}")
        outcome.beside, outcome.nice = False, 0
        found = self._pytest(outcome, None, "--last-failed")
        bad_before = counts["failed"] + counts["error"] - len(outcome.broken)
        bad = found["failed"] + found["error"]
        outcome.passed_alone = [one for one in failed_before if one not in outcome.failing]
        outcome.counts = counts
        counts["passed"] += bad_before - bad
        counts["failed"] = found["failed"] + len(outcome.broken)
        counts["error"] = found["error"]
        self._tell(f"--- {name}: {time.monotonic() - began:.1f} s")

    def _pytest(self, outcome: Outcome, output: Path | None, *flags: str) -> Counter[str]:
        """Run the stage's tests, and note in `outcome` how that ended."""
        stage, folder = outcome.stage, self._folder / outcome.stage.name
        report, cache = folder / "report.xml", folder / "cache"
        report.unlink(missing_ok=True)
        there = [test for test in stage.tests if Path(test).exists()]
        marked = ("-m", stage.marked) if stage.marked else ()
        told = ("-q", "--durations=5", f"--junitxml={report}", "-o", f"cache_dir={cache}")
        command = ("pytest", *told, *there, *marked, *flags)
        outcome.ended = self._call(command, outcome, output)
        outcome.failing = _failing(cache / "v" / "cache" / "lastfailed")
        if outcome.ended not in (0, SOME_FAILED, NO_TESTS_COLLECTED):
            outcome.failing += [f"pytest ended with {outcome.ended}"]
        found = _counts(report) if report.exists() else Counter(failed=1)
        outcome.counts += found
        return found

    def _call(self, module: Sequence[str], outcome: Outcome, output: Path | None) -> int:
        """Run a module in a group of processes of its own; end all of it when time is over."""
        if self._ended.is_set():
            return NOT_RUN
        into = output.open("ab") if output is not None and outcome.beside else None
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=subprocess.STDOUT if into is not None else None,
            start_new_session=True,
            env=self._environment(),
        )
        try:
            if outcome.nice:
                os.setpriority(os.PRIO_PROCESS, process.pid, outcome.nice)
            return self._wait(process)
        except TimeoutError:
            self._tell(f"OUT OF TIME: {outcome.stage.name}: {' '.join(module)}")
            return NOT_RUN
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if into is not None:
                into.close()

    def _environment(self) -> dict[str, str]:
        """Every process of a run compiles a module once for all that come after it.

        Thousands are started, and many machines say that Python shall leave nothing beside its
        sources: so it is kept with what else the run leaves, and goes with it. A run inside
        another one keeps it where that does.
        """
        kept = {name: value for name, value in os.environ.items() if name != COMPILES_EACH_TIME}
        return {COMPILED: str(self._folder.resolve() / "compiled"), **kept}

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while not self._ended.is_set():
            left = self._deadline - time.monotonic()
            with suppress(subprocess.TimeoutExpired):
                return process.wait(max(0.0, min(left, LOOK_S)))
            if left <= 0:
                break
        raise TimeoutError

    def _tell(self, line: str, output: Path | None = None, last: str = "") -> None:
        """Print a line, all of a file after it, and a last line, with nothing of another stage
        between."""
        with self._telling:
            print(line, flush=True)
            if output is not None and output.exists():
                with output.open(errors="replace") as text:
                    shutil.copyfileobj(text, sys.stdout)
            print(last + "\n" if last else "", end="", flush=True)


def _taken(lanes: Mapping[str, deque[Stage]], mine: str) -> Stage | None:
    """The next stage of a lane, or the last one of another; None where there is none."""
    with suppress(IndexError):
        return lanes[mine].popleft()
    for stages in lanes.values():
        with suppress(IndexError):
            return stages.pop()
    return None


def _failing(lastfailed: Path) -> list[str]:
    """The ids of tests that failed, as pytest's cache has them."""
    try:
        return list(json.loads(lastfailed.read_text()))
    except (OSError, ValueError):
        return []


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


def _told(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What a reader looks for at the end: what failed, and what failed only beside others."""
    alone = [one for outcome in outcomes for one in outcome.passed_alone]
    if alone:
        yield "failed at first, and passed alone:"
        yield from (f"  {one}" for one in alone)
    for outcome in outcomes:
        if not outcome.sound:
            yield from (f"FAILED {one}" for one in (*outcome.broken, *outcome.failing))
    failed = [outcome.stage.name for outcome in outcomes if not outcome.sound]
    if failed:
        yield f"FAILED stages: {', '.join(failed)}"


def _closing_line(counts: Counter[str], seconds: float) -> str:
    told = [f"{counts[what]} {what}" for what in ("failed", "passed", "skipped", "error")]
    shown = ", ".join(text for text in told if not text.startswith("0 ")) or "no tests ran"
    minutes = f" ({int(seconds) // 60}:{int(seconds) % 60:02d} min)" if seconds >= 60 else ""
    return f" {shown} in {seconds:.2f}s{minutes} ".center(WIDTH, "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
