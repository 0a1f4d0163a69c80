"""`Target`: a queue as the processes on the Spark side must know it. Plain data that pickles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import ray

from pxrs_ray.actors import names
from pxrs_ray.data.log_limits import MIB, LogLimits
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.partitioning import Partitioner, PartitioningSpec

if TYPE_CHECKING:
    from pxrs_ray.actors.client.topology import Topology


@dataclass(frozen=True, slots=True)
class Target:
    """One queue of a running topology, and the Ray cluster that it runs in.

    Processes that Spark starts know no Ray: `address` is where they find it.
    """

    topology: str
    queue: str
    spread: PartitioningSpec
    buffers: int
    message_bytes_max: int
    limits: LogLimits
    address: str

    @classmethod
    def of(cls, topology: Topology | str, queue: str) -> Target:
        """Ask the topology. Raises NotFound when it does not run, or has no such queue."""
        if isinstance(topology, str):
            from pxrs_ray.actors.client.topology import attach

            topology = attach(topology)
        spec, config, buffers = topology.queue_spec(queue)
        options = config.resolved_queue(queue)
        return cls(
            topology.name,
            spec.queue,
            options.spread(),
            buffers,
            options.message_bytes_max,
            spec.limits,
            ray.get_runtime_context().gcs_address,
        )

    def partitioner(self, turn: int) -> Partitioner:
        """What finds the partitions of one Spark partition's rows, keyless ones from `turn` on."""
        return self.spread.partitioner(turn)

    @property
    def partitions(self) -> int:
        """How many partitions the queue has."""
        return self.spread.partitions

    def ledger(self) -> Target:
        """The small log beside the queue that remembers its feeds; users cannot name it so."""
        return replace(self, queue=names.feeds_of(self.queue), spread=PartitioningSpec(1))

    def stream_ledger(self) -> Target:
        """The same for micro-batches: only each stream's latest plan matters."""
        limits = replace(self.limits, retention_bytes=MIB, segment_bytes_max=MIB)
        return replace(
            self, queue=names.streams_of(self.queue), spread=PartitioningSpec(1), limits=limits
        )

    def spec(self) -> QueueSpec:
        """The queue as buffers know it."""
        return QueueSpec(self.queue, self.partitions, self.limits)
