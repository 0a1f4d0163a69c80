"""`DeadLetters`: sends messages that no attempt could process to a group's dead-letter queue."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from pxrs_ray.actors.buffer.partition_client import PartitionClient
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.consumer.worker import Failure
from pxrs_ray.clock import wall_ms
from pxrs_ray.consumer.dead_letter import letter_identity, letter_of, letter_partition
from pxrs_ray.errors import SequenceConflict, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Message, PartitionId
from pxrs_ray.partitioning import PartitioningSpec

# Not for long: whoever waits must hear soon that it shall stop, and tries again by itself.
TRY_FOR_S = 5.0


@dataclass(frozen=True, slots=True)
class _Address:
    queue: str
    buffers: int
    spread: PartitioningSpec


class DeadLetters:
    """One group's sender to its dead-letter queue. Several worker threads call it at once."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._address: _Address | None = None
        # A client belongs to one thread at a time.
        self._clients = threading.local()

    def send(self, messages: Iterable[Message], failure: Failure) -> None:
        """Return when the messages are in the dead-letter queue, each of them once.

        Raises what keeps them out, soon; sending them again is harmless.
        """
        address = self._find()
        for message in messages:
            client = self._client(address, letter_partition(address.spread, message))
            letter = letter_of(message, failure.context, failure.error, wall_ms())
            try:
                client.append(letter, letter_identity(message, failure.context), 0, 0)
            except SequenceConflict:
                continue  # it is there, from another time that the message failed

    def _client(self, address: _Address, partition: PartitionId) -> PartitionClient:
        known: dict[Any, PartitionClient] = self._clients.__dict__
        if partition not in known:
            topology, queue = self._spec.topology, address.queue
            known[partition] = PartitionClient(
                topology, address.buffers, queue, partition, try_for_s=TRY_FOR_S
            )
        return known[partition]

    def _find(self) -> _Address:
        from pxrs_ray.actors.client.topology import attach

        with self._lock:
            if self._address is None:
                queue = self._spec.config.dead_letter_queue
                if queue is None:
                    raise UsageError(f"group {self._spec.group} has no dead-letter queue")
                spec, config, buffers = attach(self._spec.topology).queue_spec(queue)
                spread = config.resolved_queue(queue).spread()
                self._address = _Address(spec.queue, buffers, spread)
            return self._address
