"""Runs the simulator on a copy of the package in which a guard is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pxrs_ray
from tests.simulation.mutations import Mutation

PACKAGE = Path(pxrs_ray.__file__).parent
RUNS_MAX = 400
TIMEOUT_S = 240


@dataclass(frozen=True)
class Verdict:
    """What the simulator said: which checkers found something, and on which seed first."""

    checkers: frozenset[str]
    seed: int | None
    output: str


def simulate_without(mutation: Mutation, folder: Path, runs: int = RUNS_MAX) -> Verdict:
    """Copy the package to `folder`, take the guard away there, and simulate until it is noticed.

    Raises AssertionError when the text of a change is not there exactly once.
    """
    copy_package(folder)
    for change in mutation.changes:
        path = folder / "pxrs_ray" / change.file
        source = path.read_text()
        found = source.count(change.text)
        assert found == 1, f"{change.file} has {found} of {change.text!r}: rewrite the mutation"
        path.write_text(source.replace(change.text, change.instead))
    return simulate(folder, mutation.settings, runs)


def copy_package(folder: Path) -> None:
    """A copy of the pure package; the links to the shells are left out."""
    ignored = shutil.ignore_patterns("actors", "spark", "__pycache__")
    shutil.copytree(PACKAGE, folder / "pxrs_ray", ignore=ignored)


def simulate(folder: Path, settings: tuple[str, ...], runs: int) -> Verdict:
    """Simulate with the package that is in `folder`, until the first failure."""
    command = [sys.executable, "-m", "pxrs_ray.testing.simulate", f"--runs={runs}", "--jobs=1"]
    command += ["--stop-at-first", *(f"--set={setting}" for setting in settings)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    seeds = re.findall(r"^seed (\d+) breaks a promise:", done.stdout, re.MULTILINE)
    checkers = re.findall(r"^  (\w+) at \d+ ms: ", done.stdout, re.MULTILINE)
    seed = int(seeds[0]) if seeds else None
    return Verdict(frozenset(checkers), seed, done.stdout + done.stderr)
