"""`QueueReader`: reads a queue's messages without being a member of any group, and leaves no trace.

Rules of this file. Reads carry epoch 0 under a group name that no group can have, so nothing fences
them and retention does not wait for them. There is one long poll for each buffer, and no other
polling. A buffer that is away is asked again for `AWAY_FOR_S`; what it says then is raised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import field

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of, not_served, ours
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.actors.cluster.join import join
from pxrs_ray.data.batch import batches
from pxrs_ray.data.protocol import Fetched, LogEnds, PartsRead, ReadPosition, Refused
from pxrs_ray.errors import DeadlineExceeded, NotFound, OffsetOutOfRange, PxrsError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Message, Offset, PartitionId

READER = "?peek"
WAIT_MS = 1_000
BYTES_MAX = 1 << 20
CALL_WAIT_S = 30.0
AWAY_FOR_S = 60.0
AWAY_PAUSE_S = 0.2


@dataclass(slots=True)
class QueueReader:
    """Reads some partitions of one queue, each from its own position on."""

    topology: Topology
    queue: str
    positions: dict[PartitionId, Offset] = field(default_factory=dict)
    _full_name: str = ""
    _buffers: int = 1
    _clients: BufferClients = field(init=False)
    _away_since_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clients = BufferClients(self.topology.name)

    @classmethod
    def of(cls, topology: Topology, queue: str) -> QueueReader:
        """Look at `queue`, from its present ends on. Raises NotFound."""
        join()
        spec, _, buffers = topology.queue_spec(queue)
        made = cls(topology, queue, {}, spec.queue, buffers)
        made.positions = {p: end.end_offset for p, end in made.ends().items()}
        return made

    def ends(self) -> dict[PartitionId, LogEnds]:
        """The ends and the state of each log now."""
        logs = BlockingBufferClient(self.topology.name, self._buffers, clients=self._clients)
        return logs.ends(self._full_name)

    def only(self, partitions: Mapping[PartitionId, Offset]) -> None:
        """Read these partitions from these offsets on. Raises NotFound."""
        for partition in partitions:
            if partition not in self.positions:
                raise NotFound(
                    f"queue {self.queue} has partitions 0 to {len(self.positions) - 1}, not "
                    f"{partition}"
                )
        self.positions = dict(partitions)

    def newest(self, count: int) -> None:
        """Step back so that each partition's newest `count` messages come."""
        ends = self.ends()
        self.positions = {
            p: max(ends[p].start_offset, ends[p].end_offset - count) for p in self.positions
        }

    def from_start(self) -> None:
        """Step back to the oldest message that each log has."""
        ends = self.ends()
        self.positions = {p: ends[p].start_offset for p in self.positions}

    def from_time(self, timestamp_ms: int) -> None:
        """Step to the first message of each partition that is not older than that."""
        logs = BlockingBufferClient(self.topology.name, self._buffers, clients=self._clients)
        found = logs.offsets_at(self._full_name, timestamp_ms)
        self.positions = {p: found.get(p, at) for p, at in self.positions.items()}

    def messages(self, *, follow: bool) -> Iterator[Message]:
        """What is there now, and with `follow` what comes, for ever; in order per partition."""
        goal = None if follow else {p: end.end_offset for p, end in self.ends().items()}
        wait_ms = WAIT_MS if follow else 0
        calls: dict[Future[PartsRead], int] = {}
        while True:
            for index in set(range(self._buffers)) - set(calls.values()):
                mine = {
                    p: (0, at)
                    for p, at in self.positions.items()
                    if p % self._buffers == index and (goal is None or at < goal[p])
                }
                if mine:
                    calls[self._fetch(index, mine, wait_ms)] = index
            if not calls:
                return
            done, _ = wait(calls, timeout=CALL_WAIT_S, return_when=FIRST_COMPLETED)
            if not done:
                raise DeadlineExceeded(f"no buffer of {self.queue} answered in {CALL_WAIT_S:g} s")
            for call in done:
                for fetched in self._answer(calls.pop(call), call):
                    yield from self._taken(fetched)

    def _fetch(
        self, index: int, positions: Mapping[PartitionId, ReadPosition], wait_ms: int
    ) -> Future[PartsRead]:
        try:
            client = self._clients.of(index)
            return client.fetch(self._full_name, READER, positions, BYTES_MAX, wait_ms).future()
        except PxrsError as error:
            failed: Future[PartsRead] = Future()
            failed.set_exception(error)
            return failed

    def _answer(self, index: int, call: Future[PartsRead]) -> PartsRead:
        """What a buffer says; nothing while it is away. Raises what it says, or lasts too long."""
        error = call.exception()
        found = call.result() if error is None else []
        trouble = ours(error) if error is not None else not_served(found)
        if trouble is None:
            self._away_since_s.pop(index, None)
            return found
        if failure_of(trouble) is not CallFailure.AWAY:
            raise trouble from error
        self._clients.failed(index, error or trouble)
        now_s = time.monotonic()
        if now_s - self._away_since_s.setdefault(index, now_s) > AWAY_FOR_S:
            raise trouble from error
        time.sleep(AWAY_PAUSE_S)
        return []

    def _taken(self, fetched: Fetched | Refused) -> Iterator[Message]:
        partition = fetched.partition
        at = self.positions[partition]
        if isinstance(fetched, Fetched):
            for batch in batches(fetched, at):
                yield from batch
            self.positions[partition] = fetched.next_offset
        elif isinstance(fetched.error, OffsetOutOfRange) and (fetched.start_offset or 0) > at:
            self.positions[partition] = fetched.start_offset or 0
        else:
            raise fetched.error
