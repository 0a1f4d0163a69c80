"""`QueueReader`: reads a queue's messages without being a member of any group, and leaves no trace.

Rules of this file. Reads carry epoch 0 under a group name that no group can have, so nothing fences
them and retention does not wait for them. There is one long poll for each buffer, and no other
polling.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RayTaskError

from pxrs_ray.actors import names
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.actors.cluster.join import join
from pxrs_ray.actors.cluster.ray_errors import ours
from pxrs_ray.data.batch import batches
from pxrs_ray.data.protocol import Fetched, LogEnds, Refused
from pxrs_ray.errors import DeadlineExceeded, LeaseOver, NotFound, OffsetOutOfRange
from pxrs_ray.model import Message, Offset, PartitionId

READER = "?peek"
WAIT_MS = 1_000
BYTES_MAX = 1 << 20
CALL_WAIT_S = 30.0
AWAY_PAUSE_S = 0.5
LEASE_PAUSE_S = 0.1


@dataclass(slots=True)
class QueueReader:
    """Reads some partitions of one queue, each from its own position on."""

    topology: Topology
    queue: str
    positions: dict[PartitionId, Offset] = field(default_factory=dict)
    _full_name: str = ""
    _buffers: int = 1
    _waits_since_s: float | None = None

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
        calls = [self._handle(i).ends.remote(self._full_name) for i in range(self._buffers)]
        found: dict[PartitionId, LogEnds] = {}
        for answer in ray.get(calls, timeout=CALL_WAIT_S):
            found.update(answer)
        return dict(sorted(found.items()))

    def only(self, partitions: Mapping[PartitionId, Offset]) -> None:
        """Read these partitions from these offsets on. Raises NotFound."""
        for partition in partitions:
            if partition not in self.positions:
                raise NotFound(f"queue {self.queue!r} has no partition {partition}")
        self.positions = dict(partitions)

    def newest(self, count: int) -> None:
        """Step back so that each partition's newest `count` messages come."""
        ends = self.ends()
        self.positions = {
            p: max(ends[p].start_offset, ends[p].end_offset - count) for p in self.positions
        }

    def messages(self, *, follow: bool) -> Iterator[Message]:
        """What is there now, and with `follow` what comes, for ever; in order per partition."""
        goal = None if follow else {p: end.end_offset for p, end in self.ends().items()}
        calls: dict[Any, int] = {}
        while True:
            for index in set(range(self._buffers)) - set(calls.values()):
                mine = {
                    p: (0, at)
                    for p, at in self.positions.items()
                    if p % self._buffers == index and (goal is None or at < goal[p])
                }
                if mine:
                    call = self._handle(index).fetch.remote(
                        self._full_name, READER, mine, BYTES_MAX, WAIT_MS if follow else 0
                    )
                    calls[call] = index
            if not calls:
                return
            done, _ = ray.wait(list(calls), timeout=CALL_WAIT_S)
            if not done:
                raise DeadlineExceeded(f"no buffer of {self.queue} answered in {CALL_WAIT_S:g} s")
            del calls[done[0]]
            for fetched in self._answer(done[0]):
                yield from self._taken(fetched)

    def _answer(self, call: Any) -> list[Fetched | Refused]:
        try:
            found: list[Fetched | Refused] = ray.get(call)
        except (RayActorError, ActorUnschedulableError):
            time.sleep(AWAY_PAUSE_S)
            return []
        except RayTaskError as error:
            answer = ours(error)
            if not isinstance(answer, LeaseOver):
                raise
            self._wait_out(answer)
            return []
        return found

    def _taken(self, fetched: Fetched | Refused) -> Iterator[Message]:
        partition = fetched.partition
        at = self.positions[partition]
        if isinstance(fetched, Fetched):
            self._waits_since_s = None
            for batch in batches(fetched, at):
                yield from batch
            self.positions[partition] = fetched.next_offset
        elif isinstance(fetched.error, LeaseOver):
            self._wait_out(fetched.error)
        elif isinstance(fetched.error, OffsetOutOfRange) and (fetched.start_offset or 0) > at:
            self.positions[partition] = fetched.start_offset or 0
        else:
            raise fetched.error

    def _wait_out(self, error: LeaseOver) -> None:
        """Pause before a buffer that may not serve is asked again. Raises what lasts too long."""
        now_s = time.monotonic()
        self._waits_since_s = self._waits_since_s or now_s
        if now_s - self._waits_since_s > CALL_WAIT_S:
            raise error
        time.sleep(LEASE_PAUSE_S)

    def _handle(self, index: int) -> Any:
        return ray.get_actor(names.buffer(self.topology.name, index), namespace=names.NAMESPACE)
