"""What one process of a buffer has in memory, and what the queue of these worlds is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pxrs_ray.data.log_limits import Durability, LossPolicy
from pxrs_ray.data.protocol import BufferInfo, QueueSpec
from pxrs_ray.log.lease_term import LeaseTerm
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import Offset, PartitionId
from tests.settings import log_limits
from tests.simulation.simulator.frames import lines_in
from tests.simulation.stepping import Respond

if TYPE_CHECKING:
    from tests.simulation.homes.machines import BufferProcess

TOPOLOGY, GROUP, QUEUE = "t", "t/g", "q"
SLOTS, PARTITIONS = 3, 6
DATA = Path("/data")


class Life:
    """What one process of a buffer has in memory."""

    def __init__(self, process: BufferProcess, incarnation: str) -> None:
        self.process = process
        self.incarnation = incarnation
        # Who told it to close, until it has.
        self.stopped_by: list[Respond] = []
        self.tenure = LeaseTerm(incarnation)
        self.manager: LogManager | None = None
        self.fence: ReadFence | None = None
        self.here = process.at.disk.disk_id
        if process.lives.sees_disk(self.here):
            process.lives.opened()
            part = process.part
            self.manager = LogManager(DATA, process.slot, SLOTS, process.now().wall_ms, files=part)
            self.fence = ReadFence(self.manager.folder / "fence.jsonl", part)

    @property
    def closed(self) -> bool:
        """Whether it has stopped for a move."""
        return self.process.lives.is_closed

    def info(self) -> BufferInfo:
        process = self.process
        return BufferInfo(
            TOPOLOGY,
            process.slot,
            self.incarnation,
            1,
            process.at.node,
            (),
            disk_id=self.here,
            generation=self.tenure.generation,
            term=self.tenure.term,
            monotonic_ms=process.monotonic_ms(),
            ends=self.manager.known_ends() if self.manager is not None else {},
            problem=process.lives.problem,
        )

    def texts(self) -> dict[PartitionId, dict[Offset, str]]:
        """All that a reader would find."""
        found: dict[PartitionId, dict[Offset, str]] = {}
        for log in self.manager.all_logs() if self.manager is not None else ():
            mine = found.setdefault(log.partition, {})
            offset = log.start_offset
            while offset < log.visible_end:
                run = log.read(offset)
                mine.update({line.offset: line.message for line in lines_in(run.chunks, 0)})
                offset = run.next_offset
        return found


def spec_of(queue_id: str = "") -> QueueSpec:
    limits = log_limits(
        durability=Durability.ALWAYS, lost_log_policy=LossPolicy.CONTINUE, segment_bytes_max=4_000
    )
    return QueueSpec(QUEUE, PARTITIONS, limits, queue_id=queue_id)
