"""Runs the simulator, or tests, on a copy of everything in which a guard is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pxrs_ray
from tests.simulation.mutations import Mutation
from tests.simulation.worlds import WORLDS, run_in

PACKAGE = Path(pxrs_ray.__file__).parent
ROOT = PACKAGE.parent
COPIED = ("pxrs_ray", "actors", "spark", "tests", "docs", "examples")
SIMULATION = "tests/simulation"
SETTINGS = "tests/settings.py"
RUNS_MAX = 400
TIMEOUT_S = 240
# One seed after the other, in the copy: tells the checkers of each that fails, and ends with the
# one that who must notice has noticed; at the latest some runs after the first that fails.
LOOK = """
import json, sys
from importlib import import_module
run = import_module(sys.argv[3]).run
settings = {name: float(value) for name, _, value in (
    setting.partition("=") for setting in json.loads(sys.argv[1]))}
wanted, seed, last = set(json.load(sys.stdin)), 0, int(sys.argv[2])
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


def missed(mutation: Mutation, folder: Path) -> str:
    """'' when the missing guard is noticed, and by itself; else what is wrong."""
    try:
        if mutation.tests:
            failed, said = fails_without(mutation, folder)
            return "" if failed else f"{mutation.guard}: nothing failed\n{said}"
        verdict = simulate_without(mutation, folder)
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


def simulate_without(mutation: Mutation, folder: Path, runs: int = RUNS_MAX) -> Verdict:
    """Copy the package to `folder`, take the guard away there, and simulate until it is noticed.

    Raises AssertionError when the text of a change is not there exactly once.
    """
    copy_package(folder)
    take_away(mutation, folder)
    return simulate(folder, mutation, runs)


def take_away(mutation: Mutation, folder: Path) -> None:
    """Make the changes in a copy. Raises AssertionError when a text is not there exactly once."""
    for change in mutation.changes:
        path = (folder / "pxrs_ray" / change.file).resolve()
        source = path.read_text()
        found = source.count(change.text)
        assert found == 1, f"{change.file} has {found} of {change.text!r}: rewrite the mutation"
        path.unlink()  # it may be a link to the original
        path.write_text(source.replace(change.text, change.instead))


def fails_without(mutation: Mutation, folder: Path) -> tuple[bool, str]:
    """Whether one of the mutation's tests fails on a copy without the guard, and what was said."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, copy_function=_link, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    take_away(mutation, folder)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *mutation.tests],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    # 1 is pytest's "tests failed"; anything else is a test that was not run.
    return done.returncode == 1 and "failed" in done.stdout, said


def _link(source: str, target: str) -> None:
    """A file that is not changed need not be copied, where both are on one disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def copy_package(folder: Path) -> None:
    """A copy of the pure package and its simulator; the links to the shells are left out."""
    ignored = shutil.ignore_patterns("actors", "spark", "__pycache__")
    shutil.copytree(PACKAGE, folder / "pxrs_ray", ignore=ignored)
    shutil.copytree(ROOT / SIMULATION, folder / SIMULATION, ignore=ignored)
    (folder / "tests" / "__init__.py").touch()
    shutil.copy2(ROOT / SETTINGS, folder / SETTINGS)


def simulate(folder: Path, mutation: Mutation, runs: int) -> Verdict:
    """Simulate with the package that is in `folder`, until who must notice has noticed."""
    module = WORLDS[mutation.world]
    done = subprocess.run(
        [sys.executable, "-c", LOOK, json.dumps(mutation.settings), str(runs), module],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        input=json.dumps(mutation.seen_by),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    checkers = frozenset(checker for _, told in found for checker in told)
    return Verdict(checkers, found[-1][0] if found else None, done.stdout + done.stderr)
