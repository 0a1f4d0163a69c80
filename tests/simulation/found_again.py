"""Measures in how many runs the simulator finds a known defect again, and keeps the table of it.

    python -m tests.simulation.found_again             # measure and print
    python -m tests.simulation.found_again --rewrite   # and write the table of docs/simulation.md

A name, or a part of one, as an argument measures only those guards.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.guard_runs import ROOT, WorkingCopy, simulate
from tests.simulation.mutations import MUTATIONS, Mutation

PAGE = ROOT / "docs" / "simulation.md"
HEAD = "| defect | guard | noticed by | runs |\n|---|---|---|---|\n"
HEAD_OF_TESTS = "| defect | guard | noticed by |\n|---|---|---|\n"


@dataclass(frozen=True)
class Defect:
    """One that was found by reading: what happened, and the guards that are its mend."""

    what: str
    guards: tuple[str, ...]


FOUND_AGAIN = (
    Defect(
        "after a restart durability was no longer what code compared: offsets were given out twice",
        ("limits that a buffer reads of its disk are what its code compares (simulated)",),
    ),
    Defect(
        "a producer's retry appended twice, when an earlier frame was given up",
        ("frames that are numbered anew are of a new epoch",),
    ),
    Defect(
        "a hand-over with a gap map crashed the next owner",
        ("what a gap map says is done is passed without being fetched",),
    ),
    Defect(
        "a full disk stayed full, for retention had no room to write",
        ("a reserve makes room for what retention must write (simulated)",),
    ),
    Defect(
        "a log could not be opened on a full disk, and so made no room (found by the simulator)",
        ("a log opens where its disk is full",),
    ),
    Defect(
        "a confirmation that met a full disk opened the log at its old end",
        ("a log waits until its confirmation is on disk (simulated)",),
    ),
    Defect(
        "after a sync that failed the next one was believed",
        (
            "a sync that failed fails for ever",
            "what a sync may have lost is written again",
            "what could not be synced is not acknowledged",
        ),
    ),
    Defect(
        "one partition's read error failed a whole fetch",
        ("one partition that cannot be read is refused alone (simulated)",),
    ),
    Defect(
        "what could not be opened for a reason that passes stayed closed",
        (
            "what could not be opened is opened when that passes (simulated)",
            "a log that failed is opened anew",
        ),
    ),
    Defect(
        "a clock that was mended made the log forget producers",
        ("a clock that leaps makes no producer silent (simulated)",),
    ),
    Defect(
        "dropped segments took with them what they knew of producers",
        ("what dropped frames knew is synced before they go (simulated)",),
    ),
    Defect(
        "a Spark partition that came again cut short was taken for done (found by the simulator)",
        ("who had more pieces was another",),
    ),
)

BY_TESTS = (
    Defect(
        "a frame in a payload made a torn tail look like damage",
        ("what a frame's payloads hold is no frame of the log",),
    ),
    Defect(
        "a group that starts at the end began at 0 after a crash between two steps",
        (
            "a group's start position is in the step that makes it",
            "one caller at a time makes a group",
        ),
    ),
    Defect(
        "producers lived by the wall clock",
        ("deadlines follow the monotonic clock",),
    ),
    Defect(
        "a registry of a backup hung its groups",
        (
            "a log that has seen a higher epoch halts the group",
            "an accepted registry goes on above the epochs that the logs know",
        ),
    ),
    Defect(
        "a coordinator whose start failed once stayed dead",
        ("passing trouble of a start is tried again", "an error of a start is not kept"),
    ),
    Defect(
        "passing trouble of a commit stopped a partition for good",
        ("a commit waits for as long as the registry is away",),
    ),
    Defect(
        "a sync without a descriptor left appends without an answer",
        ("what could not be synced stays dirty",),
    ),
    Defect(
        "a tenant's move broke the order of its keys",
        ("a silent producer of tenants is fenced before others go on",),
    ),
    Defect(
        "a fact that the ledger's log compares no more was taken for the same",
        ("what the ledger's log does not compare any more is compared",),
    ),
)

BY_GUARD = {mutation.guard: mutation for mutation in MUTATIONS}


def measured(guards: Sequence[Mutation]) -> dict[str, tuple[str, int]]:
    """By guard, who noticed that it was gone, and after how many runs; without those that nobody
    noticed."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = WorkingCopy(Path(folder) / "copy")
        for mutation in guards:
            try:
                with copy.without(mutation):
                    verdict = simulate(copy, replace(mutation, first_seed=0))
            except subprocess.TimeoutExpired:
                print(f"{mutation.guard}: not noticed in time", flush=True)
                continue
            noticed = [checker for checker in mutation.seen_by if checker in verdict.checkers]
            if not noticed or verdict.seed is None:
                print(f"{mutation.guard}: not noticed\n{verdict.output}", flush=True)
                continue
            found[mutation.guard] = noticed[0], verdict.seed + 1
            print(f"{mutation.guard}: {noticed[0]} after {verdict.seed + 1} runs", flush=True)
        copy.close()
    return found


def rows_of(page: str) -> dict[str, tuple[str, int]]:
    """What the page says of each guard that the simulator finds."""
    text = page.partition("<!-- found again -->")[2].partition("<!-- /found again -->")[0]
    rows = re.findall(r"^\|[^|]*\| (.+?) \| `(\w+)` \| (\d+) \|$", text, re.MULTILINE)
    return {guard: (checker, int(runs)) for guard, checker, runs in rows}


def tables(found: dict[str, tuple[str, int]]) -> tuple[str, str]:
    """The two tables of the page."""
    simulated = HEAD
    for defect in FOUND_AGAIN:
        for guard in defect.guards:
            checker, runs = found[guard]
            simulated += f"| {defect.what} | {guard} | `{checker}` | {runs} |\n"
    tested = HEAD_OF_TESTS
    for defect in BY_TESTS:
        for guard in defect.guards:
            file = BY_GUARD[guard].tests[0].partition("::")[0]
            tested += f"| {defect.what} | {guard} | `{file}` |\n"
    return simulated, tested


def rewritten(page: str, found: dict[str, tuple[str, int]]) -> str:
    """The page with tables of what was found."""
    for name, table in zip(("found again", "by tests"), tables(found), strict=True):
        before, _, rest = page.partition(f"<!-- {name} -->")
        _, _, after = rest.partition(f"<!-- /{name} -->")
        page = f"{before}<!-- {name} -->\n{table}<!-- /{name} -->{after}"
    return page


def main(arguments: Sequence[str]) -> int:
    """The command line; answers the exit status."""
    wanted = [name for name in arguments if not name.startswith("--")]
    guards = [BY_GUARD[guard] for defect in FOUND_AGAIN for guard in defect.guards]
    if wanted:
        guards = [m for m in guards if any(name in m.guard for name in wanted)]
    page = PAGE.read_text()
    new = measured(guards)
    if "--rewrite" in arguments:
        PAGE.write_text(rewritten(page, {**rows_of(page), **new}))
    return int(len(new) < len(guards))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
