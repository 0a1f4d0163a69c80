"""The doctor's judgement: each thing that is wrong is found, named, and comes with a remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pxrs_ray.actors.nodes import orphans
from pxrs_ray.checkup import Level, check_topology
from pxrs_ray.stats import GroupStatus, QueueStatus, StoreStatus, TopologyStatus
from tests.cli.pictures import group_status, topology_status

STORE = topology_status().store


def first_partition(group: GroupStatus, **changes: object) -> GroupStatus:
    first = replace(group.partitions[0], **changes)  # type: ignore[arg-type]
    return replace(group, partitions=(first, *group.partitions[1:]))


def first_consumer(group: GroupStatus, **changes: object) -> GroupStatus:
    first = replace(group.consumers[0], **changes)  # type: ignore[arg-type]
    return replace(group, consumers=(first, *group.consumers[1:]))


def test_a_sound_topology_is_told_so() -> None:
    (found,) = check_topology(topology_status(group_status()))
    assert found.level is Level.OK and "1 queues, 1 groups" in found.text


@pytest.mark.parametrize(
    ("status", "level", "words"),
    [
        (topology_status(store=replace(STORE, problem="refused")), Level.PROBLEM, "refused"),
        (topology_status(store=replace(STORE, mean_ms=400.0)), Level.WARNING, "400 ms"),
        (
            topology_status(store=StoreStatus("memory", "memory:", False, 1, 1, 0.1)),
            Level.WARNING,
            "does not outlive",
        ),
        (topology_status(store=replace(STORE, warnings=("lru",))), Level.WARNING, "lru"),
        (topology_status(problems=("buffer 1 is away",)), Level.PROBLEM, "buffer 1"),
        (
            topology_status(queues=(QueueStatus("q", 1, 0, 0, ("P0 lost",)),)),
            Level.PROBLEM,
            "P0 lost",
        ),
        (
            topology_status(queues=(QueueStatus("q", 1, 0, 0, ("P0 lost offsets 3 to 4: x",)),)),
            Level.WARNING,
            "P0 lost offsets",
        ),
        (topology_status(group_status(problem="odd")), Level.PROBLEM, "halted: odd"),
        (
            topology_status(first_partition(group_status(), problem="ValueError()")),
            Level.PROBLEM,
            "stands still at offset 100: ValueError()",
        ),
        (
            topology_status(first_consumer(group_status(), state="pending", reason="no GPU")),
            Level.WARNING,
            "no GPU",
        ),
        (
            topology_status(first_consumer(group_status(), state="silent", reason="frozen")),
            Level.PROBLEM,
            "is silent: frozen",
        ),
        (
            topology_status(group_status(consumers=0, lag=3)),
            Level.WARNING,
            "lag of 360 and no consumer",
        ),
        (
            topology_status(first_partition(group_status(), owner=None)),
            Level.WARNING,
            "P0 without an owner, 3 consumers work",
        ),
        (topology_status(group_status(lag=10_000)), Level.WARNING, "minutes behind"),
        (
            topology_status(first_partition(group_status(), end_offset=100_000)),
            Level.WARNING,
            "times its share of all messages",
        ),
    ],
)
def test_each_illness_is_found(status: TopologyStatus, level: Level, words: str) -> None:
    (found,) = check_topology(status)
    assert found.level is level and words in found.text and found.remedy


def test_orphans_are_those_that_no_topology_knows() -> None:
    mine = [
        "pxrs/shop/coordinator",
        "pxrs/shop/buffer/0",
        "pxrs/shop/consumer/billing/billing-0/1",
        "pxrs/shop/consumer/billing/billing-0/9",
        "pxrs/gone/buffer/0",
    ]
    assert orphans(mine, [topology_status(group_status())]) == [
        "pxrs/gone/buffer/0",
        "pxrs/shop/consumer/billing/billing-0/9",
    ]
