"""What a simulated consumer knows of one partition that it works."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pxrs_ray.model import Epoch, PartitionId
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.scheduler import Standing
from tests.simulation.simulator.log import Line


@dataclass(slots=True)
class Worker:
    """Handles the messages of one partition under one epoch."""

    partition: PartitionId
    epoch: Epoch
    at: Standing
    lines: deque[Line] = field(default_factory=deque)
    busy: int = 0
    stopping: bool = False
    course: KeyLanes | None = None

    def standing(self) -> Standing:
        """How far it is."""
        return self.at if self.course is None else self.course.standing()
