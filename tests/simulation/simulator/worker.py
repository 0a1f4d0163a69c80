"""What a simulated consumer knows of one partition that it works."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pxrs_ray.model import Epoch, PartitionId
from pxrs_ray.processing.key_ordered import KeyLanes
from tests.simulation.simulator.log import Line


@dataclass(slots=True)
class Worker:
    """Handles the messages of one partition under one epoch."""

    partition: PartitionId
    epoch: Epoch
    lines: deque[Line] = field(default_factory=deque)
    attempts: int = 0
    busy: int = 0
    stopping: bool = False
    course: KeyLanes | None = None
