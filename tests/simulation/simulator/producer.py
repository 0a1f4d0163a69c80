"""A producer: the `Sender` that ships, over a network that does what it likes.

Rules of this file. The sender numbers frames, says which call goes now, and what becomes of each;
here its calls are carried. A producer has a name, and begins a life before it sends: the former
lives of its name are fenced then.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.data.frame import pack_header
from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import BufferAway, PxrsError
from pxrs_ray.log.producer_fence import Generation, named_producer_id
from pxrs_ray.model import PartitionId
from pxrs_ray.producer.in_flight import Call, SenderLimits
from pxrs_ray.producer.sender import Sender
from tests.settings import sender_limits
from tests.simulation.history import Acknowledged
from tests.simulation.simulator.buffer import Answer
from tests.simulation.simulator.frames import frame_of
from tests.simulation.simulator.world import Process, call

if TYPE_CHECKING:
    from tests.simulation.simulator.cluster import Cluster

BEGIN_MS = 50
ANSWER_MS = 400


class ProducerProcess(Process):
    """One life of a producer; a later one of the same name has a higher number."""

    role = "producer"

    def __init__(self, cluster: Cluster, name: str, number: int) -> None:
        super().__init__(cluster.world, name)
        world = self.world
        self.number = number
        self.sending = True
        self._cluster = cluster
        self._identity = named_producer_id(name, number)
        cluster.log.identities[self._identity] = (name, number)
        timeout_ms = world.scenario.append_timeout_ms
        limits: SenderLimits = sender_limits(
            append_timeout_ms=timeout_ms, calls_max=3, call_frames_max=4, call_bytes_min=1
        )
        self._sender = Sender(1, limits)
        self._begun = False
        self._calls: dict[Call, None] = {}
        self._alarm_ms: int | None = None
        self._begin()
        self.every(world.scenario.send_interval_ms, self._make)

    def idle(self) -> bool:
        """Whether everything that was made is acknowledged, or given up."""
        return not self._sender.pending_frames

    # --- beginning --------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._begun:
            return
        buffer, name, number = self._cluster.find_log(), self.name, self.number
        call(
            self,
            buffer,
            lambda respond: buffer.begin_producer(name, number, f"{number}", respond),
            self._is_begun,
        )
        self.after(BEGIN_MS, self._begin)

    def _is_begun(self, newest: Generation | None) -> None:
        if newest is not None and newest.number > self.number:
            self.crash()
        self._begun = True

    # --- sending ----------------------------------------------------------------------------------

    def _make(self) -> None:
        if not self.sending or not self._begun:
            return
        world, sender = self.world, self._sender
        key = f"key-{world.random.randrange(world.scenario.keys)}".encode()
        partition = zlib.crc32(key) % world.scenario.partitions
        count = 2 if world.chance(0.2) else 1
        messages = tuple(f"m{world.number()}" for _ in range(count))
        header, body = frame_of(key, messages)
        epoch, sequence = sender.numbers(partition)
        header = header._replace(
            producer_id=self._identity, producer_epoch=epoch, sequence=sequence
        )
        ticket = _Ticket(self, partition, messages)
        sender.add(partition, pack_header(header), body, ticket, 0, self.monotonic_ms())
        self._go_on()

    def _go_on(self) -> None:
        """Make every call that should be made now, and look again in time."""
        sender, now_ms = self._sender, self.monotonic_ms()
        for each in sender.calls(now_ms):
            self._call(each, now_ms)
        look_ms = sender.next_look_ms()
        if look_ms is None or (self._alarm_ms is not None and self._alarm_ms <= look_ms):
            return
        self._alarm_ms = look_ms
        self.after(max(1, look_ms - now_ms), partial(self._look, look_ms))

    def _look(self, alarm_ms: int) -> None:
        if alarm_ms == self._alarm_ms:
            self._alarm_ms = None
            self._sender.expire(self.monotonic_ms())
            self._go_on()

    def _call(self, made: Call, now_ms: int) -> None:
        self._calls[made] = None
        buffer, frames, wait_ms = self._cluster.find_log(), made.arguments(), made.wait_ms(now_ms)
        call(
            self,
            buffer,
            lambda respond: buffer.append(frames, wait_ms, respond),
            partial(self._answered, made),
        )
        self.after(wait_ms + ANSWER_MS, partial(self._answered, made, None))

    def _answered(self, made: Call, answer: Answer) -> None:
        """Each call has one answer; a line that is broken is noticed after a while."""
        if made not in self._calls:
            return
        del self._calls[made]
        if answer is None:
            self._sender.failed(made, BufferAway("no answer"), self.monotonic_ms())
        else:
            self._sender.answered(made, answer, self.monotonic_ms())
        if self._sender.fenced is not None:
            self.crash()
        self._go_on()

    def settled(
        self, partition: PartitionId, messages: tuple[str, ...], answer: Appended | PxrsError
    ) -> None:
        """A frame is in the log, or was given up."""
        if isinstance(answer, Appended) and answer.base_offset is not None:
            for offset, message in enumerate(messages, answer.base_offset):
                self.world.record(Acknowledged(self.world.now_ms, partition, offset, message))


class _Ticket:
    """Whoever waits for one frame."""

    __slots__ = ("_messages", "_partition", "_producer")

    def __init__(
        self, producer: ProducerProcess, partition: PartitionId, messages: tuple[str, ...]
    ) -> None:
        self._producer, self._partition, self._messages = producer, partition, messages

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        """Told once."""
        self._producer.settled(self._partition, self._messages, answer)
