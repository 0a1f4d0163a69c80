"""A producer: the `Sender` that ships, over a network that does what it likes.

Rules of this file. The sender numbers frames, says which call goes now, and what becomes of each;
here its calls are carried. A producer has a name, and begins a life before it sends, as the
`LifeStart` that ships says: the former lives of its name are fenced then. Whoever is fenced must
have a successor that began later than it did.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.data.frame import pack_header
from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import BufferAway, PxrsError
from pxrs_ray.log.producer_fence import ProducerLife
from pxrs_ray.model import PartitionId
from pxrs_ray.producer.in_flight import Call, SenderLimits
from pxrs_ray.producer.life_start import LifeStart
from pxrs_ray.producer.sender import Sender
from tests.settings import sender_limits
from tests.simulation.history import Acknowledged, Failed
from tests.simulation.simulator.buffer import Answer
from tests.simulation.simulator.frames import frame_of
from tests.simulation.simulator.world import Process, call

if TYPE_CHECKING:
    from tests.simulation.simulator.cluster import Cluster

# How long a round of asking waits for its answer.
ROUND_MS = 50
ANSWER_MS = 400
# Clocks agree more often here than elsewhere: two lives may begin with one number.
TICK_MS = 1_000
# How often a message is one that ends the process of its handler, where there are such.
DEADLY = 0.05


class ProducerProcess(Process):
    """One life of a producer: which of a name is the newest, the buffer says."""

    role = "producer"

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster.world, name)
        world = self.world
        self.sending = True
        self._cluster = cluster
        timeout_ms = world.scenario.append_timeout_ms
        limits: SenderLimits = sender_limits(
            append_timeout_ms=timeout_ms,
            inflight_appends_max=3,
            call_frames_max=4,
            call_bytes_min=1,
        )
        self._sender = Sender(1, limits)
        number = self.now().wall_ms // TICK_MS * TICK_MS
        token = f"{name} {world.number()}"
        self._start = LifeStart(name, 1, number, token, self.monotonic_ms() / 1_000)
        # The number of the present round, and when it began.
        self._round = 0
        self._asked_ms = 0
        self._calls: dict[Call, None] = {}
        self._alarm_ms: int | None = None
        self._begin()
        self.every(world.scenario.send_interval_ms, self._make)

    def idle(self) -> bool:
        """Whether everything that was made is acknowledged, or given up."""
        return not self._sender.pending_frames

    # --- beginning --------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Ask once more."""
        self._round += 1
        self._asked_ms = self.world.now_ms
        buffer, name, start = self._cluster.find_log(), self.name, self._start
        call(
            self,
            buffer,
            lambda respond: buffer.begin_producer(name, start.number, start.token, respond),
            partial(self._heard, self._round),
        )
        self.after(ROUND_MS, partial(self._heard, self._round, BufferAway("no answer")))

    def _heard(self, round_: int, answer: ProducerLife | PxrsError | None) -> None:
        """A round is over; what comes later is not listened to."""
        if round_ != self._round or self._start.begun:
            return
        self._round += 1
        pause_s = self._start.answered({0: answer}, self.world.roll())
        if pause_s is not None:
            self.after(1 + int(pause_s * 1_000), self._begin)
            return
        self._identity = self._start.identity
        self._cluster.log.identities[self._identity] = (self.name, self._start.number)

    def _is_fenced(self) -> None:
        """Another life began after this one, or a fence is where none belongs."""
        began_ms, token = self._cluster.log.begins.get(self.name, (-1, ""))
        if token == self._start.token or began_ms < self._asked_ms:
            text = f"{self.name} is fenced, and nobody began after {self._asked_ms} ms"
            self.world.record(Failed(self.world.now_ms, "a producer's life", text))
        self.crash()

    # --- sending ----------------------------------------------------------------------------------

    def _make(self) -> None:
        if not self.sending or not self._start.begun:
            return
        world, sender = self.world, self._sender
        key = f"key-{world.random.randrange(world.scenario.keys)}".encode()
        partition = zlib.crc32(key) % world.scenario.partitions
        count = 2 if world.chance(0.2) else 1
        messages = tuple(f"m{world.number()}" for _ in range(count))
        is_early = world.now_ms < world.scenario.trouble_ms // 2
        if is_early and len(world.deadly) < world.scenario.deadly and world.chance(DEADLY):
            world.deadly.add(messages[0])
        header, body = frame_of(key, messages, framed=world.scenario.framed)
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
            self._is_fenced()
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
