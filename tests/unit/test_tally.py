"""What the coordinator counts for metrics, out of what a real core decides."""

from __future__ import annotations

from pxrs_ray.clock import Instant
from pxrs_ray.group.counters import GroupCounters
from pxrs_ray.group.events import Commit, Died, Event, Join, PartitionProgress, Release, Tick
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.model import Member, PartitionRow, Progress, Snapshot
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
    handle(Commit("a", 1, (PartitionProgress(0, epoch, Progress(5)),)), 200)
    handle(Commit("a", 1, (PartitionProgress(1, epoch - 1, Progress(5)),)), 200)
    assert tally.commits == 1 and tally.fenced == 1
    handle(Tick(), 300)
    handle(Died("a", 1, "killed"), 400)
    handle(Join((Member("b", 1),)), 450)
    assert tally.rebalances == {"join": 2, "death": 1}
    assert tally.moves == 8 and list(tally.pauses_ms) == [50] * 4


def test_a_hand_over_is_measured_from_when_the_owner_is_asked() -> None:
    rows = tuple(PartitionRow(p) for p in range(4))
    core = GroupCoordinator(Snapshot("g", 1, rows, (), 0), group_settings(), Instant(0, 0))
    tally = GroupCounters()

    def handle(event: Event, at_ms: int) -> None:
        decision = core.handle(event, Instant(at_ms, at_ms))
        tally.note_hand_overs(core.state.revoking, decision, at_ms)

    handle(Join((Member("a", 1),)), 100)
    handle(Join((Member("b", 1),)), 200)
    handle(Commit("a", 1, (PartitionProgress(0, 1, Progress(5)),)), 250)
    handle(
        Release(
            "a", 1, tuple(PartitionProgress(p, 1, Progress(0)) for p in sorted(core.state.revoking))
        ),
        300,
    )
    assert list(tally.hand_overs_ms) == [100, 100]
    handle(Died("b", 1, "killed"), 400)
    assert len(tally.hand_overs_ms) == 2, "nobody was asked for what a dead one had"
