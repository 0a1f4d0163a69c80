"""`replicas` and `min_isr`: what cannot be is refused before anything is deployed."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.errors import ConfigError

DISK = {"q": QueueConfig(durability="interval")}


def test_one_replica_is_what_there_is_where_nothing_is_said() -> None:
    config = PxrsConfig(queues={"q": QueueConfig(durability="memory")}, store="memory:")
    assert (config.replicas, config.min_isr) == (1, 1)


def test_two_replicas_on_disk_with_a_registry_that_stays() -> None:
    assert PxrsConfig(replicas=2, min_isr=2, queues=DISK).replicas == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"replicas": 4}, "replicas"),
        ({"min_isr": 2}, "min_isr = 2: must be at most replicas, which is 1"),
        ({"replicas": 2, "store": "memory:"}, "needs a registry that outlives its process"),
        (
            {"replicas": 2, "queues": {"q": QueueConfig(durability="memory")}},
            "queues.q.durability = 'memory': logs in memory have no replicas yet",
        ),
        (
            {"replicas": 2, "queues": {**DISK, "p": QueueConfig(durability="always")}},
            "all queues must have the same durability, and these have always and interval",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        PxrsConfig(**{"queues": DISK, **options})


def test_both_change_on_a_running_topology_that_has_replicas() -> None:
    config = PxrsConfig(replicas=3, queues=DISK)
    for change in ({"replicas": 2}, {"min_isr": 2}):
        (difference,) = config.diff(config.changed(**change))
        assert difference.allowed and "live" in str(difference)


def test_one_home_stays_one_home_on_a_running_topology() -> None:
    alone, two = PxrsConfig(queues=DISK), PxrsConfig(replicas=2, queues=DISK)
    for before, after in ((alone, two), (two, alone)):
        (difference,) = before.diff(after)
        assert not difference.allowed
