"""What is kept, and what is seen from outside, in the world of topologies."""

from __future__ import annotations

from dataclasses import dataclass, field

from pxrs_ray.model import PartitionRow
from pxrs_ray.topology.tombstones import Tombstones

GROUPS, QUEUES, PARTITIONS = ("a", "b", "c"), ("q", "r"), 2
Key = tuple[str, int]


class Died(BaseException):
    """The coordinator's process ended at this step."""


@dataclass
class Kept:
    """What the registry holds, and what is noted on the node's disk."""

    queues: set[str] = field(default_factory=set)
    groups: dict[str, str] = field(default_factory=dict)  # of the configuration: its queue
    listed: set[str] = field(default_factory=set)
    ends: Tombstones = field(default_factory=Tombstones)
    rows: dict[str, dict[int, PartitionRow]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    noted: dict[str, int] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)
    version: int = 0  # of the configuration


@dataclass
class Seen:
    """What was seen from outside."""

    granted: dict[Key, int] = field(default_factory=dict)
    committed: dict[str, dict[int, int]] = field(default_factory=dict)
    there: dict[str, bool] = field(default_factory=dict)  # what the last answered command says
    deaths: int = 0
    steps: int = 0
    broken: list[str] = field(default_factory=list)
