"""`DelayMoves`: moves the messages of one tier on when they have waited, each once. Pure.

Rules of this file. An owner of the tier moves its messages in their order, and appends to each log
under an identity that belongs to the tier, in the epoch of its ownership: a log refuses an owner
whose time is over. Each message that is moved says from which offset. So an owner that is new to a
log hears from it up to where the tier was moved before: what it appends first names the position of
the former owner, and the log refuses it until that is right. Until an append is answered it is made
again as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import NamedTuple

from pxrs_ray.data.delay import WAITS_MS, DelayedMessage, OwnHeaders
from pxrs_ray.data.frame import NOBODY, Mark, mark
from pxrs_ray.data.protocol import Heard
from pxrs_ray.errors import RetryAfter
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Message, Offset, PartitionId

# A producer whose clock is ahead by more holds nobody up: its messages go another way.
CLOCK_AHEAD_MS = 1_000
FRAME_MESSAGES_MAX = 10_000
FRAME_BYTES_MAX = 4 << 20


class NotDue(RetryAfter):
    """Nothing of a tier is to be moved for so long. No trouble: it is not logged."""


class DelayTarget(NamedTuple):
    """A log that messages are moved to: a tier, or a partition of the queue itself."""

    is_tier: bool
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class MovedOn:
    """A message as it is in the log that it is moved to; `source` is its offset in the tier."""

    source: Offset
    message: Message
    headers: OwnHeaders
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AppendMoved:
    """Append these to `target`; tell it with `appended`, or with `refused` what the log said of
    their number. Without an answer it is made again."""

    target: DelayTarget
    sequence: int
    follows: Mark | None
    messages: tuple[MovedOn, ...]


@dataclass(frozen=True, slots=True)
class ReadMoved:
    """Read the last message of the frame at `base_offset` of `target`, and tell with `read` from
    which offset of the tier it was moved; None where the log has dropped it."""

    target: DelayTarget
    base_offset: Offset


@dataclass(slots=True)
class _Way:
    """What is known of one log: how far the tier was moved there, and what is next."""

    waiting: list[MovedOn] = field(default_factory=list)
    frame: AppendMoved | None = None
    moved_to: Offset = -1
    sequence: int = 0
    follows: Mark = field(default_factory=lambda: mark(NOBODY, 0))
    read_at: Offset | None = None


class DelayMoves:
    """The moves of one tier under one epoch. Not thread-safe.

    `partition_of` says where in its queue a message belongs, and always the same of one.
    """

    def __init__(
        self, tier: int, epoch: Epoch, partition_of: Callable[[Message], PartitionId]
    ) -> None:
        self._tier, self._epoch, self._partition_of = tier, epoch, partition_of
        self._ways: dict[DelayTarget, _Way] = {}
        self._next: Offset = -1

    def take(self, messages: Iterable[Message], now_ms: int) -> int | None:
        """Take those that have waited long enough, from where it has come to; answers when the
        first of the others has. None: all were taken."""
        for message in messages:
            if message.offset < self._next:
                continue
            found = DelayedMessage.of(message)
            if found.until_ms > now_ms and not self._is_ahead(found, now_ms):
                return found.until_ms
            self._next = message.offset + 1
            self._add(found, now_ms)
        return None

    def _is_ahead(self, found: DelayedMessage, now_ms: int) -> bool:
        """Whether it would wait longer than this tier holds anything: it was dated by a clock that
        is wrong."""
        return found.until_ms - now_ms > WAITS_MS[self._tier] + CLOCK_AHEAD_MS

    def _add(self, found: DelayedMessage, now_ms: int) -> None:
        message = found.message
        if self._is_ahead(found, now_ms):
            found = DelayedMessage(message, found.due_ms, now_ms, found.sent_ms, found.timestamp_ms)
        tier, place = found.next_tier, (self._tier, message.offset)
        if tier is None:
            target = DelayTarget(False, self._partition_of(message))
            headers, dated_ms = found.delivered(place)
        else:
            target = DelayTarget(True, tier)
            headers, dated_ms = found.sent_on(tier, place)
        way = self._ways.setdefault(target, _Way())
        if message.offset > way.moved_to:
            way.waiting.append(MovedOn(message.offset, message, headers, dated_ms))

    # --- what is to be done -----------------------------------------------------------------------

    def next(self) -> AppendMoved | ReadMoved | None:
        """What is to be done now; None when all that was taken is moved."""
        for target, way in self._ways.items():
            if way.read_at is not None:
                return ReadMoved(target, way.read_at)
            if way.frame is None and way.waiting:
                follows = None if way.sequence else way.follows
                messages = tuple(_within(way.waiting))
                way.frame = AppendMoved(target, way.sequence, follows, messages)
            if way.frame is not None:
                return way.frame
        return None

    def appended(self, step: AppendMoved) -> None:
        """The log has them."""
        way = self._ways[step.target]
        way.frame = None
        way.sequence = step.sequence + 1
        self._learn(way, step.messages[-1].source)

    def refused(self, step: AppendMoved, heard: Heard | None) -> None:
        """The log was to have another number of this tier, and knows of its owners what it says."""
        way = self._ways[step.target]
        way.frame = None
        if heard is not None and heard.epoch == self._epoch:
            way.sequence = heard.next_sequence
            return
        way.sequence = 0
        way.follows = mark(NOBODY, 0)
        if heard is not None:
            way.follows = mark(heard.epoch, heard.next_sequence)
            way.read_at = heard.places[-1][1] if heard.places else None

    def read(self, step: ReadMoved, moved_to: Offset | None) -> None:
        """Up to there the tier was moved to that log."""
        way = self._ways[step.target]
        way.read_at = None
        if moved_to is not None:
            self._learn(way, moved_to)

    def _learn(self, way: _Way, moved_to: Offset) -> None:
        way.moved_to = max(way.moved_to, moved_to)
        way.waiting = [each for each in way.waiting if each.source > way.moved_to]


def _within(waiting: list[MovedOn]) -> Iterator[MovedOn]:
    """The first of them, as many as one frame may have."""
    size_bytes = 0
    for each in waiting[:FRAME_MESSAGES_MAX]:
        size_bytes += len(each.message.payload) + len(each.message.key or b"")
        if size_bytes > FRAME_BYTES_MAX and each is not waiting[0]:
            return
        yield each
