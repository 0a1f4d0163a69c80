"""Runs the simulator, or tests, on a copy of everything in which a guard is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pxrs_ray
from tests.simulation.mutations import Mutation
from tests.simulation.warm_python import WarmPython
from tests.simulation.worlds import WORLDS, run_in

PACKAGE = Path(pxrs_ray.__file__).parent
ROOT = PACKAGE.parent
COPIED = ("pxrs_ray", "actors", "spark", "tests", "docs", "examples")
# Where this is set, Python keeps nothing of what it has compiled.
COMPILES_EACH_TIME = "PYTHONDONTWRITEBYTECODE"
RUNS_MAX = 400
TIMEOUT_S = 240
# One seed after the other, in the copy: tells the checkers of each that fails, and ends with the
# one that who must notice has noticed; at the latest some runs after the first that fails.
LOOK = """
import gc, json, sys
from importlib import import_module
run = import_module(sys.argv[2]).run
gc.freeze()
settings = {name: float(value) for name, _, value in (
    setting.partition("=") for setting in json.loads(sys.argv[1]))}
wanted, seed = set(json.load(sys.stdin)), int(sys.argv[3])
last = seed + int(sys.argv[4])
while seed < last:
    found = sorted({violation.checker for violation in run(seed, settings).violations()})
    if found:
        print(json.dumps((seed, found)), flush=True)
        last = min(last, seed + 25)
    if wanted & set(found):
        break
    seed += 1
"""


@dataclass(frozen=True)
class Verdict:
    """What the simulator said: which checkers found something, and on which seed last."""

    checkers: frozenset[str]
    seed: int | None
    output: str


class WorkingCopy:
    """A copy of everything in `folder`, from which guards are taken one after the other.

    It is made once, and Python keeps what it has compiled of it: that takes longer than most runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._taken = 0
        self._python: WarmPython | None = None
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(
                    ROOT / name, folder / name, copy_function=_link, symlinks=True, ignore=ignored
                )
        shutil.copy(ROOT / "pyproject.toml", folder)

    @contextmanager
    def without(self, mutation: Mutation) -> Iterator[None]:
        """Inside, the guard is missing.

        Raises AssertionError when the text of a change is not there exactly once.
        """
        changed: dict[Path, Path] = {}
        try:
            for change in mutation.changes:
                path = (self.folder / "pxrs_ray" / change.file).resolve()
                source = path.read_text()
                found = source.count(change.text)
                assert found == 1, (
                    f"{change.file} has {found} of {change.text!r}: rewrite the mutation"
                )
                changed[path] = ROOT / path.relative_to(self.folder.resolve())
                path.unlink()  # it may be a link to the original
                path.write_text(source.replace(change.text, change.instead))
                # Python knows by time and size that what it has compiled is of another text.
                self._taken += 1
                os.utime(path, (self._taken, self._taken))
            yield
        finally:
            for path, original in changed.items():
                path.unlink(missing_ok=True)
                _link(str(original), str(path))

    def run(self, *command: str, told: str = "") -> subprocess.CompletedProcess[str]:
        """What a command says that is run with Python in the copy: `-c` or `-m`."""
        if self._python is None:
            kept = {name: value for name, value in os.environ.items() if name != COMPILES_EACH_TIME}
            self._python = WarmPython(self.folder, {**kept, "PYTHONPATH": str(self.folder)})
        return self._python.run(*command, told=told, timeout_s=TIMEOUT_S)

    def close(self) -> None:
        """Nothing runs in the copy any more."""
        if self._python is not None:
            self._python.close()


def missed(mutation: Mutation, copy: WorkingCopy) -> str:
    """'' when the missing guard is noticed, and by itself; else what is wrong."""
    try:
        with copy.without(mutation):
            if mutation.tests:
                failed, said = fails(copy, mutation.tests)
                return "" if failed else f"{mutation.guard}: nothing failed\n{said}"
            verdict = simulate(copy, mutation)
    except AssertionError as error:
        return f"{mutation.guard}: {error}"
    if verdict.seed is None or not verdict.checkers & set(mutation.seen_by):
        return f"{mutation.guard}: seen by {set(verdict.checkers)}\n{verdict.output}"
    # The same run with the guard in its place: what was noticed is the guard, not the settings.
    settings = {
        name: float(value) for name, _, value in (s.partition("=") for s in mutation.settings)
    }
    if run_in(mutation.world, verdict.seed, settings).violations():
        return f"{mutation.guard}: the unharmed run {verdict.seed} is not sound either"
    return ""


def fails(copy: WorkingCopy, tests: Sequence[str]) -> tuple[bool, str]:
    """Whether one of these tests fails in the copy, and what was said."""
    # What the process that forks has loaded before pytest is another's, without assertions of ours.
    flags = (
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    )
    done = copy.run("-m", "pytest", *flags, *tests)
    # 1 is pytest's "tests failed"; anything else is a test that was not run.
    return done.returncode == 1 and "failed" in done.stdout, done.stdout + done.stderr


def simulate(copy: WorkingCopy, mutation: Mutation, runs: int = RUNS_MAX) -> Verdict:
    """Simulate in the copy, until who must notice has noticed."""
    wanted, settings = json.dumps(mutation.seen_by), json.dumps(mutation.settings)
    where = (WORLDS[mutation.world], str(mutation.first_seed), str(runs))
    done = copy.run("-c", LOOK, settings, *where, told=wanted)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    checkers = frozenset(checker for _, told in found for checker in told)
    return Verdict(checkers, found[-1][0] if found else None, done.stdout + done.stderr)


def _link(source: str, target: str) -> None:
    """A file that is not changed need not be copied, where both are on one disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
