"""What the coordinator counts for metrics, out of what a real core decides."""

from __future__ import annotations

from pxrs_ray.clock import Instant
from pxrs_ray.group.counters import GroupCounters
from pxrs_ray.group.events import Commit, Died, Event, Join, Progress, Tick
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.model import Member, PartitionRow, Snapshot
from tests.settings import group_settings


def test_causes_moves_pauses_commits_and_refusals_are_counted() -> None:
    rows = tuple(PartitionRow(p) for p in range(4))
    settings = group_settings(lease_ms=10_000)
    core = GroupCoordinator(Snapshot("g", 1, rows, (), 0), settings, Instant(0, 0))
    tally = GroupCounters()

    def handle(event: Event, at_ms: int) -> None:
        tally.note(event, core.handle(event, Instant(at_ms, at_ms)))

    handle(Join((Member("a", 1),)), 100)
    assert tally.rebalances == {"join": 1} and tally.moves == 4 and not tally.pauses_ms
    epoch = core.state.rows[0].epoch
    handle(Commit("a", 1, (Progress(0, epoch, 5),)), 200)
    handle(Commit("a", 1, (Progress(1, epoch - 1, 5),)), 200)
    assert tally.commits == 1 and tally.fenced == 1
    handle(Tick(), 300)
    handle(Died("a", 1, "killed"), 400)
    handle(Join((Member("b", 1),)), 450)
    assert tally.rebalances == {"join": 2, "death": 1}
    assert tally.moves == 8 and list(tally.pauses_ms) == [50] * 4
