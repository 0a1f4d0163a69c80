"""Every guard, and how to take it away: the text that is changed, and who must notice.

Rules of this file. One guard a mutation. Where a second layer stands behind a guard, either a
checker of its own sees the first one fail, or both are taken away at once, and `note` says so.
`settings` make likelier what it takes to show the hole, in the simulated `world`; the unharmed copy
is run with each of them too, and has to pass.

What no simulation reaches (files, actors, producers, stores) names `tests` instead: one of these
pytest ids has to fail without the guard, quickly. A net of `tests/faults` is named like any test.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.worlds import GROUP


@dataclass(frozen=True)
class Change:
    """In `file` (below pxrs_ray; actors/... and spark/... too), `text` becomes `instead`."""

    file: str
    text: str
    instead: str


@dataclass(frozen=True)
class Mutation:
    """A guard that is gone. At least one of `seen_by` has to notice, or of `tests` to fail.

    Runs are looked at from `first_seed` on: one that few runs show is found sooner where it was
    found before.
    """

    guard: str
    changes: tuple[Change, ...]
    seen_by: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    note: str = ""
    tests: tuple[str, ...] = ()
    first_seed: int = 0
    world: str = GROUP

    def __post_init__(self) -> None:
        assert bool(self.seen_by) != bool(self.tests), f"{self.guard}: who must notice?"


OUTAGES = ("store_outage=15", "consumer_freeze=10")
SEEKS = ("seek=15", "slow=0.3", "slow_ms_max=400")
LATE_STORE = ("store_trouble=20", "seek=10")
SILENT_CRASHES = ("consumer_crash=10", "death_noticed=0")
TWO_LEADERS = ("second_coordinator=15", "write_records_max=1", "write_latency_ms=40")
