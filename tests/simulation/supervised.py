"""What a simulated coordinator knows of its consumers, and what outlives it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pxrs_ray.group.replica_life import ReplicaLife
from pxrs_ray.model import Incarnation, MemberId
from tests.simulation.played_consumers import PlayedConfig, PlayedConsumer

TAKE_WAIT_MS = 500


@dataclass(slots=True)
class Kept:
    """What outlives a coordinator."""

    numbers: dict[MemberId, Incarnation] = field(default_factory=dict)
    members: dict[MemberId, tuple[Incarnation, str]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Life(ReplicaLife):
    """A wanted consumer, with its process."""

    process: PlayedConsumer | None = None
    # What it is known to work by.
    config: PlayedConfig | None = None
    jobs: list[Job] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Job:
    """Something that is done beside for a life."""

    life: Life | None
    off: bool = False
    over: bool = False


def its(life: ReplicaLife) -> Life:
    assert isinstance(life, Life)
    return life
