"""The group core alone: planning and applying a change of members, and commits per second."""

from __future__ import annotations

import time

from pxrs_ray.clock import Instant
from pxrs_ray.group.events import Commit, Join, Leave, PartitionProgress, Release
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.model import Grant, Member, PartitionRow, Progress, Snapshot
from tests.benchmarks.harness import figure
from tests.settings import group_settings

NOW = Instant(1, 1)
PARTITIONS = 4_096
MEMBERS = 512
ROWS = 64
COMMITS = 2_000


def _group(partitions: int, members: int) -> GroupCoordinator:
    """A group in which every member has its share."""
    rows = tuple(PartitionRow(number) for number in range(partitions))
    core = GroupCoordinator(Snapshot("bench", 1, rows, (), 0), group_settings(), NOW)
    core.start(NOW)
    core.handle(Join(tuple(Member(f"m{n:04}", 1) for n in range(members))), NOW)
    return core


def _hand_back(core: GroupCoordinator, name: str) -> None:
    """What `name` was asked for is released, as its session would."""
    mine = [grant for grant in core.state.grants(name) if grant.partition in core.state.revoking]
    core.handle(Release(name, 1, tuple(map(_progress, mine))), NOW)


def _progress(grant: Grant) -> PartitionProgress:
    return PartitionProgress(grant.partition, grant.epoch, Progress(grant.checkpoint))


@figure("core.plan_4096x512_ms", unit="ms")
def plan_4096x512() -> float:
    """The slower of a join and a leave: the plan of it, the decision, and all its records applied.

    What members do in between (draining) is theirs; their releases are handled and counted.
    """
    core = _group(PARTITIONS, MEMBERS)
    newcomer = Member("x", 1)
    began = time.perf_counter()
    plan = core.plan("one more", add=[newcomer])
    core.handle(Join((newcomer,)), NOW)
    joined = time.perf_counter() - began
    assert len(plan.moves) == len(core.state.revoking) == PARTITIONS // (MEMBERS + 1)
    for name in {core.state.rows[partition].owner for partition in core.state.revoking}:
        assert name is not None
        _hand_back(core, name)
    assert len(core.state.owned["x"]) == PARTITIONS // (MEMBERS + 1)

    began = time.perf_counter()
    core.plan("one less", remove=["x"])
    core.handle(Leave("x", 1), NOW)
    _hand_back(core, "x")
    left = time.perf_counter() - began
    assert "x" not in core.state.members and all(row.owner for row in core.state.rows)
    return max(joined, left) * 1_000


@figure("core.commits_per_s", unit="commits/s")
def commits_per_s() -> float:
    """Commits of 64 rows each, every row a change: decided, recorded and applied."""
    core = _group(ROWS, 1)
    epochs = {grant.partition: grant.epoch for grant in core.state.grants("m0000")}
    events = [
        Commit(
            "m0000",
            1,
            tuple(PartitionProgress(p, epoch, Progress(number)) for p, epoch in epochs.items()),
        )
        for number in range(1, COMMITS + 1)
    ]
    began = time.perf_counter()
    records = sum(len(core.handle(event, NOW).records) for event in events)
    seconds = time.perf_counter() - began
    assert records == COMMITS * ROWS
    return records / seconds
