"""`QuarantineLog`: one partition's quarantine, kept in the log of the same number.

Rules of this file. Calls block: worker threads make them. The owner appends under a producer
identity that belongs to (group, partition) and under the epoch of its ownership. So the log itself
refuses an owner whose time is over; an append whose answer is lost is repeated as it was, with the
same number, before anything else is appended (`NumberedAppends`), and adds nothing twice.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from pxrs_ray.actors.buffer.partition_client import PartitionClient
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.model import Epoch, Message, Offset, PartitionId
from pxrs_ray.processing.numbered_appends import NumberedAppends
from pxrs_ray.processing.quarantine_state import Quarantine, QuarantineRecord, headers_of
from pxrs_ray.status.answers import QuarantineSize

OPERATOR = "?operator"


class QuarantineLog:
    """Reads and writes partition `partition` of a group's quarantine queue."""

    def __init__(
        self, spec: GroupSpec, partition: PartitionId, producer: bytes, reader: str, epoch: Epoch
    ) -> None:
        assert spec.quarantine, "the group has no quarantine"
        self.queue = spec.quarantine
        self.partition = partition
        self.state = Quarantine()
        self.lock = threading.RLock()
        self._log = PartitionClient(
            spec.topology, spec.buffers, self.queue, partition, reader, epoch
        )
        self._producer = producer
        self.epoch = epoch
        self._appends: NumberedAppends[Batch] = NumberedAppends()

    @classmethod
    def of_owner(cls, spec: GroupSpec, partition: PartitionId, epoch: Epoch) -> QuarantineLog:
        """As the owner of the partition under `epoch`."""
        producer = producer_id(f"{spec.topology}/{spec.group}/{partition}")
        return cls(spec, partition, producer, spec.group, epoch)

    @classmethod
    def of_operator(cls, spec: GroupSpec, partition: PartitionId) -> QuarantineLog:
        """As somebody who looks, and asks the owner for something."""
        return cls(spec, partition, uuid.uuid4().bytes, OPERATOR, 0)

    def refresh(self) -> Quarantine:
        """Take in what is new in the log, behind what was sent and is not answered yet."""
        with self.lock:
            self._send()
            for batch in self._log.read(self.state.next_position):
                self.state.dropped(self._log.dropped_to)
                for record in batch:
                    self.state.apply(record)
            self.state.dropped(self._log.dropped_to)
            self._appends.read()
            return self.state

    def settle(self) -> None:
        """Have `state` tell of all that was sent."""
        with self.lock:
            if not self._appends.is_settled:
                self.refresh()

    def records(self, position: Offset, count: int) -> list[Message]:
        """Up to `count` records from `position` on."""
        return list(islice(chain.from_iterable(self._log.read(position)), count))

    def append(self, messages: Sequence[Message]) -> None:
        """Append records; returns when they are in the log, and in `state`."""
        with self.lock:
            batch = Batch.of(
                [message.key for message in messages],
                [message.payload for message in messages],
                timestamp_ms=0,
                timestamps_ms=[message.timestamp_ms for message in messages],
                headers=[message.headers for message in messages],
                ids=[message.id for message in messages],
            )
            self._appends.add(batch)
            self.refresh()

    def _send(self) -> None:
        self._appends.send(
            lambda batch, number: self._log.append(batch, self._producer, self.epoch, number)
        )

    def tidy(self) -> None:
        """Drop the log when nothing is put aside: the next owner has less to read."""
        with self.lock:
            if not self.state.keys:
                self._log.drop_before(self.state.next_position)

    def note(self, kind: QuarantineRecord, key: bytes | None, **values: object) -> None:
        """Append one record about `key` that carries no message."""
        self.append([Message(self.partition, -1, key, b"", wall_ms(), headers_of(kind, **values))])


class OwnQuarantines:
    """The quarantines of the partitions that one consumer owns: one object for each epoch.

    A log numbers its records within an epoch. A worker that begins again in the same epoch (for
    other options, after a fault) must go on with the same object: numbered from 0 again, its
    records would be refused, or taken for repeats and lost.
    """

    def __init__(self) -> None:
        self._logs: dict[PartitionId, QuarantineLog] = {}

    def of(self, spec: GroupSpec, partition: PartitionId, epoch: Epoch) -> QuarantineLog:
        """As the owner of the partition under `epoch`."""
        found = self._logs.get(partition)
        if found is None or found.epoch != epoch:
            found = self._logs[partition] = QuarantineLog.of_owner(spec, partition, epoch)
        return found

    def look(self, partitions: Iterable[PartitionId]) -> QuarantineSize:
        """What is put aside in those of `partitions` that have a quarantine."""
        keys = messages = 0
        for log in filter(None, map(self._logs.get, partitions)):
            # A copy in one step: worker threads change it meanwhile.
            aside = list(log.state.keys.values())
            keys += len(aside)
            messages += sum(len(key.entries) for key in aside)
        return QuarantineSize(keys, messages)
