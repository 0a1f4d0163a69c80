"""What outlives a process of the world of replicas: disks, the registry, and what a run is like."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pxrs_ray.replication.peer_messages import LogKey
from pxrs_ray.replication.placement import (
    Placement,
)
from pxrs_ray.replication.placements import PLACEMENTS, Placements, placements_from
from tests.simulation.simulator.disk import SimulatedDisk

SLOT = 0
PING_MS = 40
HEARD_MS = 250
ANSWER_MS = 60
TICK_MS = 25
AGAIN_MS = 80
FRAMES_BYTES = 900  # of one message between replicas: three frames or so
STORE_MS = 15
# A disk that is away for so long has another one in its place.
REPLACE_MS = 250
SPARES = 2
TROUBLE_MS = 4_000
SETTLE_MS = 20_000
FAULTS = (
    "kill",
    "power_cut",
    "freeze",
    "cut_pair",
    "cut_coordinator",
    "network",
    "coordinator_crash",
    "second_coordinator",
    "damage",
    "rot",
    "lost_disk",
    "failing_disk",
    "retention",
    "new_queue",
    "removed_queue",
    "emptied",
    "drain",
    "resize",
    "move",
    "hand_over",
)


class Entry(NamedTuple):
    """One message of a log."""

    offset: int
    producer: bytes
    sequence: int
    value: int


class Wanted(NamedTuple):
    """What a producer wants appended."""

    key: LogKey
    producer: str
    sequence: int
    value: int


@dataclass(slots=True)
class ReplicaDisk:
    """What a replica keeps, from one process to the next. `made`: these logs were, once;
    `emptied`: these were lost since, and not made anew; `rotten`: these are damaged."""

    name: str
    files: SimulatedDisk
    made: set[LogKey] = field(default_factory=set)
    whole: bool = True
    emptied: set[LogKey] = field(default_factory=set)
    rotten: set[LogKey] = field(default_factory=set)

    def drop(self, key: LogKey) -> None:
        """A log is gone; it is known that it was."""
        queue, partition = key
        self.files.lose(Path(f"/{self.name}/{queue}/p{partition:05d}"))
        self.rotten.discard(key)
        self.emptied.add(key)

    def lose_logs(self) -> None:
        """The logs are gone; how many lives there were is still known."""
        for queue, _ in self.made:
            self.files.lose(Path(f"/{self.name}/{queue}"))
        self.emptied |= self.made
        self.rotten.clear()


@dataclass
class Rules:
    """What a run is like, drawn from its seed."""

    replicas: int
    partitions: int
    synced_only: bool
    min_isr: int
    weights: dict[str, float]
    fault_ms: int = 180
    lag_max_ms: int = 400
    catch_up_bytes_per_s: int = 0


class Registry:
    """The registry's document of placements: whoever leads last may write, and nobody else."""

    def __init__(self, placement: Placement) -> None:
        self.text = PLACEMENTS.encode_text(Placements(slots={SLOT: placement}))
        self.generation = 0

    @property
    def placement(self) -> Placement:
        """What stands."""
        return placements_from(self.text).slots[SLOT]

    def lead(self) -> tuple[int, str]:
        """Take the lead."""
        self.generation += 1
        return self.generation, self.text

    def put(self, generation: int, text: str) -> bool:
        """Write; False for a coordinator that was replaced."""
        if generation != self.generation:
            return False
        self.text = text
        return True
