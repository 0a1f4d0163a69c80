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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.guard_runs import ROOT, RUNS_MAX, WorkingCopy, simulate
from tests.simulation.mutations import MUTATIONS, Mutation

PAGE = ROOT / "docs" / "simulation.md"
HEAD = "| defect | guard | noticed by | runs |\n|---|---|---|---|\n"
FOUND, SMALL = "found again", "found in small worlds"
Rows = Mapping[str, tuple[str, int]]
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
        "passing trouble of a commit stopped a partition for good",
        ("a commit waits for as long as the registry is away",),
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
        "a frame in a payload made a torn tail look like damage",
        ("what a frame's payloads hold is no frame of the log (simulated)",),
    ),
    Defect(
        "a Spark partition that came again cut short was taken for done (found by the simulator)",
        ("who had more pieces was another",),
    ),
)

SMALL_WORLDS = {
    "homes": (
        "from tests.simulation.homes.run import LOST, run\n"
        "def broken(seed): return run(seed, LOST).wrong\n"
    ),
    "start_world.py": (
        "from tests.simulation.start_world import Starts\n"
        "def broken(seed): return Starts(seed).live()\n"
    ),
    "tenant_world.py": (
        "from tests.simulation.tenant_world import run\ndef broken(seed): return run(seed)[0]\n"
    ),
    "topology_world.py": (
        "from tests.simulation.topology_world import run\ndef broken(seed): return run(seed)[0]\n"
    ),
}
"""What judges one run of a small world, by its name in `tests/simulation`."""

IN_SMALL_WORLDS = (
    (
        Defect(
            "a group that starts at the end began at 0 after a crash between two steps",
            ("a group's start position is in the step that makes it",),
        ),
        "topology_world.py",
    ),
    (
        Defect(
            "a registry of a backup hung its groups",
            (
                "a log that has seen a higher epoch halts the group",
                "an accepted registry goes on above the epochs that the logs know",
            ),
        ),
        "homes",
    ),
    (
        Defect(
            "a coordinator whose start failed once stayed dead",
            ("passing trouble of a start is tried again", "an error of a start is not kept"),
        ),
        "start_world.py",
    ),
    (
        Defect(
            "a tenant's move broke the order of its keys",
            ("a silent producer of tenants is fenced before others go on",),
        ),
        "tenant_world.py",
    ),
)

BY_TESTS = (
    Defect(
        "a group that starts at the end began at 0 after a crash between two steps",
        ("one caller at a time makes a group",),
    ),
    Defect(
        "producers lived by the wall clock",
        ("deadlines follow the monotonic clock",),
    ),
    Defect(
        "a sync without a descriptor left appends without an answer",
        ("what could not be synced stays dirty",),
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


# One seed after the other, in the copy, until a run breaks a promise: tells how many it took.
LOOK_SMALL = """
import sys
for seed in range(int(sys.argv[1])):
    if broken(seed):
        print(seed + 1)
        break
"""


def measured_small(wanted: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The same of the small worlds: by guard, which world noticed, and after how many runs."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = WorkingCopy(Path(folder) / "copy")
        for defect, world in IN_SMALL_WORLDS:
            for guard in defect.guards:
                if wanted and not any(name in guard for name in wanted):
                    continue
                with copy.without(BY_GUARD[guard]):
                    said = copy.run("-c", SMALL_WORLDS[world] + LOOK_SMALL, str(RUNS_MAX))
                print(f"{guard}: {world} after {said.stdout.strip()} runs {said.stderr[-500:]}")
                if said.stdout.strip():
                    found[guard] = world, int(said.stdout)
        copy.close()
    return found


def rows_of(page: str, table: str = FOUND) -> dict[str, tuple[str, int]]:
    """What the page says of each guard that the simulator finds."""
    text = page.partition(f"<!-- {table} -->")[2].partition(f"<!-- /{table} -->")[0]
    rows = re.findall(r"^\|[^|]*\| (.+?) \| `([\w.]+)` \| (\d+) \|$", text, re.MULTILINE)
    return {guard: (checker, int(runs)) for guard, checker, runs in rows}


def tables(found: Rows, small: Rows) -> tuple[str, str, str]:
    """The tables of the page."""
    by_small_worlds = [defect for defect, _ in IN_SMALL_WORLDS]
    tested = HEAD_OF_TESTS
    for defect in BY_TESTS:
        for guard in defect.guards:
            file = BY_GUARD[guard].tests[0].partition("::")[0]
            tested += f"| {defect.what} | {guard} | `{file}` |\n"
    return _table(FOUND_AGAIN, found), _table(by_small_worlds, small), tested


def _table(defects: Sequence[Defect], found: Rows) -> str:
    text = HEAD
    for defect in defects:
        for guard in defect.guards:
            noticed_by, runs = found[guard]
            text += f"| {defect.what} | {guard} | `{noticed_by}` | {runs} |\n"
    return text


def rewritten(page: str, found: Rows, small: Rows) -> str:
    """The page with tables of what was found."""
    for name, table in zip((FOUND, SMALL, "by tests"), tables(found, small), strict=True):
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
    new, small = measured(guards), measured_small(wanted)
    if "--rewrite" in arguments:
        known = ({**rows_of(page), **new}, {**rows_of(page, SMALL), **small})
        PAGE.write_text(rewritten(page, *known))
    return int(len(new) < len(guards))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
