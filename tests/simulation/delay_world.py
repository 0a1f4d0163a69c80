"""A world of delayed messages: `DelayMoves` and what logs know of producers, as they ship.

Rules of this file. Producers send with delays; each tier has one owner after another, some after a
crash between any two steps, and a former one may go on beside the next until a log refuses it.
Appends are lost, or their answers are. What came into the queue is all that is judged: `run(seed)`
answers what was broken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import blake2b

from pxrs_ray.data.delay import TIER_MS_MIN, DelayedMessage, place_of, tier_for
from pxrs_ray.data.frame import FrameHeader, producer_id
from pxrs_ray.data.protocol import Heard
from pxrs_ray.errors import BufferAway, ProducerFenced, SequenceGap
from pxrs_ray.log.producer_state import ProducerStates
from pxrs_ray.model import Message, Offset
from pxrs_ray.processing.delay_moves import AppendMoved, DelayMoves, DelayTarget, ReadMoved

MESSAGES = 60
PARTITIONS = 2
DELAYS_MS = (40, 400, 401, 1_500, 4_000)
LOST, UNHEARD, CRASH = 0.1, 0.15, 0.03
STEP_MS_MAX = 60
# All have come by then, for owners crash no more.
QUIET_MS, END_MS = 6_000, 20_000


@dataclass
class PlayedLog:
    """A log's messages, and what it knows of its producers."""

    messages: list[Message] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=lambda: ProducerStates(1_000, 1 << 60))

    def append(self, header: FrameHeader, messages: list[Message]) -> None:
        """Append a frame once. Raises what a log raises."""
        if self.producers.repeat(header) is None:
            header = header._replace(base_offset=len(self.messages))
            self.producers.record(header, 0)
            self.put(messages)

    def put(self, messages: list[Message]) -> None:
        """At the end, numbered."""
        for m in messages:
            at = len(self.messages)
            self.messages.append(
                Message(m.partition, at, m.key, m.payload, m.timestamp_ms, m.headers, m.id)
            )


class DelayWorld:
    """The tiers, the queue, and the time."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"delay {seed}")
        self.now_ms = 1_000_000
        self.quiet = False
        self.logs: dict[DelayTarget, PlayedLog] = {}
        self.committed: dict[int, Offset] = {}
        self.epochs: dict[int, int] = {}
        self.owners: list[PlayedOwner] = []
        self.broken: list[str] = []
        self.sent: list[DelayedMessage] = []
        self.came_ms: dict[int, int] = {}

    def log(self, target: DelayTarget) -> PlayedLog:
        """One log; made when it is first asked for."""
        return self.logs.setdefault(target, PlayedLog())

    def send(self) -> None:
        """A producer sends a message, dated by a clock that may be wrong."""
        number = len(self.sent)
        clock_ms = self.now_ms + self.dice.choice((0, 0, 0, 900, -900))
        due_ms = self.now_ms + self.dice.choice(DELAYS_MS)
        if clock_ms != self.now_ms:
            due_ms = max(due_ms, clock_ms + 1)
        found = DelayedMessage(Message(-1, -1, b"k", b"%d" % number, 0), due_ms, clock_ms, clock_ms)
        tier = tier_for(due_ms - clock_ms)
        headers, until_ms = found.sent_on(tier, None)
        message = Message(tier, -1, b"k", b"%d" % number, until_ms, headers)
        self.sent.append(found)
        self.log(DelayTarget(True, tier)).put([message])
        if tier not in self.epochs:
            self.begin(tier)

    def begin(self, tier: int) -> None:
        """Another owner takes over."""
        self.epochs[tier] = self.epochs.get(tier, 0) + 1
        self.owners.append(PlayedOwner(self, tier, self.epochs[tier]))

    def play(self) -> None:
        """Send, let owners work and die, and see that all comes."""
        end_ms, quiet_ms = self.now_ms + END_MS, self.now_ms + QUIET_MS
        while self.now_ms < end_ms:
            self.now_ms += self.dice.randrange(STEP_MS_MAX)
            self.quiet = self.now_ms > quiet_ms
            if self.quiet and len(self.came_ms) == MESSAGES:
                break
            if len(self.sent) < MESSAGES and self.dice.random() < 0.5:
                self.send()
            for owner in list(self.owners):
                owner.work()
                if not self.quiet and not owner.is_stale and self.dice.random() < CRASH:
                    self._replace(owner)
        self.judge()

    def _replace(self, owner: PlayedOwner) -> None:
        if self.dice.random() < 0.5:
            self.owners.remove(owner)
        else:  # it does not know yet
            owner.is_stale = True
        self.begin(owner.tier)

    def arrived(self, messages: list[Message]) -> None:
        """These came into the queue just now."""
        for message in messages:
            number = int(message.payload)
            due_ms = self.sent[number].due_ms
            if self.now_ms < due_ms:
                self.broken.append(f"{number} came {due_ms - self.now_ms} ms before its time")
            self.came_ms.setdefault(number, self.now_ms)

    def judge(self) -> None:
        """Each came once; those of one delay in order; with nobody in the way soon."""
        came: list[int] = []
        for partition in range(PARTITIONS):
            log = self.logs.get(DelayTarget(False, partition), PlayedLog())
            here = [int(message.payload) for message in log.messages]
            came += here
            for delay_ms in DELAYS_MS:
                those = [n for n in here if self._delay_ms(n) == delay_ms]
                if those != sorted(those):
                    self.broken.append(f"out of order, with a delay of {delay_ms} ms: {those}")
        if sorted(came) != list(range(len(self.sent))):
            twice = sorted({n for n in came if came.count(n) > 1})
            lost = sorted(set(range(len(self.sent))) - set(came))
            self.broken.append(f"twice: {twice}, lost: {lost}")
        for number, at_ms in self.came_ms.items():
            late_ms = at_ms - self.sent[number].due_ms
            if late_ms > QUIET_MS:
                self.broken.append(f"{number} came {late_ms} ms late")

    def _delay_ms(self, number: int) -> int:
        found = self.sent[number]
        return found.due_ms - found.until_ms


class PlayedOwner:
    """One ownership of a tier: steps that may be cut off after any of them."""

    def __init__(self, world: DelayWorld, tier: int, epoch: int) -> None:
        self.world, self.tier, self.epoch = world, tier, epoch
        self.is_stale = False
        self._moves = DelayMoves(tier, epoch, lambda m: int(m.payload) % PARTITIONS)
        self._at = world.committed.get(tier, 0)
        self._batch_end = self._at
        # Its call ended in the middle: the next one begins as every call does.
        self._begins = True

    def work(self) -> None:
        """Some steps; the call of a batch may end in the middle, as one that waits does."""
        for _ in range(self.world.dice.randrange(4) + self.world.quiet * 4):
            step = None if self._begins else self._moves.next()
            try:
                if step is None:
                    self._begins = False
                    self._take()
                elif isinstance(step, ReadMoved):
                    self._read(step)
                else:
                    self._append(step)
            except BufferAway:
                self._begins = True
            except ProducerFenced:
                self.world.owners.remove(self)
                if not self.is_stale:
                    self.world.broken.append(f"tier {self.tier}: its owner was refused")
                return

    def _take(self) -> None:
        """A batch is done when all of it is moved: only then may that be committed."""
        log = self.world.log(DelayTarget(True, self.tier)).messages
        self._batch_end = min(len(log), self._at + 1 + self.world.dice.randrange(5))
        until_ms = self._moves.take(log[self._at : self._batch_end], self.world.now_ms)
        if until_ms is None and self._moves.next() is None:
            self._at = self._batch_end
            if not self.is_stale and self.world.dice.random() < 0.3:
                self.world.committed[self.tier] = self._at

    def _append(self, step: AppendMoved) -> None:
        world, luck = self.world, 1.0 if self.world.quiet else self.world.dice.random()
        if luck < LOST:
            raise BufferAway("it does not arrive")
        messages = [
            Message(-1, -1, m.message.key, m.message.payload, m.timestamp_ms, m.headers)
            for m in step.messages
        ]
        text = repr([(m.payload, m.headers) for m in messages]).encode()
        checksum = int.from_bytes(blake2b(text, digest_size=8).digest())
        identity = producer_id(f"tier {self.tier}")
        header = FrameHeader(
            len(messages),
            0,
            0,
            identity,
            self.epoch,
            step.sequence,
            0,
            0,
            0,
            checksum,
            step.follows,
        )
        log = world.log(step.target)
        before = len(log.messages)
        try:
            log.append(header, messages)
        except SequenceGap:
            self._moves.refused(step, self._heard(log))
            return
        if not step.target.is_tier:
            world.arrived(log.messages[before:])
        elif step.target.partition not in world.epochs:
            world.begin(step.target.partition)
        if luck < LOST + UNHEARD:
            raise BufferAway("its answer does not arrive")
        self._moves.appended(step)

    def _heard(self, log: PlayedLog) -> Heard | None:
        return log.producers.heard(producer_id(f"tier {self.tier}"), self.epoch)

    def _read(self, step: ReadMoved) -> None:
        log = self.world.log(step.target)
        last = -1
        for message in log.messages[step.base_offset :]:
            place = place_of(message)
            if place is None or place[0] != self.tier:
                break
            last = place[1]
            break_at = message.offset + 1
            states = log.producers.heard(producer_id(f"tier {self.tier}"), -1)
            if states is not None and any(base == break_at for _, base in states.places):
                break
        self._moves.read(step, last)


def run(seed: int) -> list[str]:
    """Play a world; answer what was broken."""
    world = DelayWorld(seed)
    world.play()
    return world.broken


assert min(DELAYS_MS) > TIER_MS_MIN
