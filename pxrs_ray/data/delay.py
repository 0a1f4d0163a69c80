"""Delayed messages: in which tier of its queue's delays one waits, and what it carries. Pure.

Rules of this file. What is sent with a delay waits in a queue beside its own, '<queue>.delayed',
whose partitions are tiers. A tier holds each of its messages for the same time, so it is worked
strictly in order, and its checkpoint is all that is to be remembered. A message waits in the
longest tier that is not too long for it, then in the next one, until less than the shortest is
left. Which tiers it passes depends on its delay alone: messages of one delay stay in order. What a
message needs on its way stands in its last headers.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, repeat
from typing import Any

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Message

DELAYED_SUFFIX = ".delayed"
TIERS = 64
TIER_MS_MIN = 32
# How long each tier holds a message: a step is 1.4 times the one before.
WAITS_MS = tuple(accumulate(repeat(TIER_MS_MIN, TIERS), lambda wait_ms, _: wait_ms * 7 // 5))
DELAY_MS_MAX = 366 * 86_400_000
assert WAITS_MS[-1] > DELAY_MS_MAX

PREFIX = "pxrs-"
DUE, UNTIL, SENT, DATED, PLACE = (
    f"{PREFIX}{name}" for name in ("due-ms", "until-ms", "sent-ms", "timestamp-ms", "delayed")
)
_OURS = (DUE, UNTIL, SENT, DATED, PLACE)
OwnHeaders = tuple[tuple[str, bytes], ...]


def is_of_delays(group: str, queue: str) -> bool:
    """Whether a group is the one that moves a queue's delayed messages."""
    return group == queue and group.endswith(DELAYED_SUFFIX)


def due_at(delay_s: float | None, deliver_at_ms: int | None, now_ms: int) -> int:
    """When a message is due that is sent with one of them. Raises UsageError."""
    if (delay_s is None) == (deliver_at_ms is None):
        raise UsageError("give delay_s, or deliver_at_ms, and not both")
    given: Any = delay_s if delay_s is not None else deliver_at_ms
    if delay_s is None:
        if type(given) is not int or given - now_ms > DELAY_MS_MAX:
            raise UsageError(
                "deliver_at_ms is a whole number of milliseconds since 1970, at most "
                f"{DELAY_MS_MAX // 86_400_000} days ahead, not {given!r:.50}"
            )
        due_ms: int = given
        return due_ms
    if type(given) not in (int, float) or not 0 <= given <= DELAY_MS_MAX / 1_000:
        raise UsageError(f"delay_s is 0 to {DELAY_MS_MAX // 1_000} seconds, not {given!r:.50}")
    seconds: float = given
    return now_ms + round(seconds * 1_000)


def refuse_delays(queue: str) -> UsageError:
    """What says that a queue takes no delayed messages."""
    return UsageError(
        f"queue {queue} takes no delayed messages: write `delays = true` below [queues.{queue}], "
        "and `pxrs up` the file"
    )


def tier_for(left_ms: int) -> int:
    """The tier in which a message waits that is due in so long, which is more than nothing."""
    return max(0, bisect_right(WAITS_MS, left_ms) - 1)


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A delayed message: as it was sent, when it is due, and until when it stays where it is.

    `timestamp_ms` is the one that it was given; None where it was given none. `place` is the tier
    that it was moved from last, and its offset there.
    """

    message: Message
    due_ms: int
    until_ms: int
    sent_ms: int
    timestamp_ms: int | None = None
    place: tuple[int, int] | None = None

    @classmethod
    def sent(cls, headers: Any, timestamp_ms: Any, due_ms: int, now_ms: int) -> DelayedMessage:
        """One that is sent now, with headers and a timestamp as its sender gave them. Raises
        UsageError."""
        # Here: a status asks this module too, and loads no Arrow for it.
        from pxrs_ray.data.message_form import checked_headers, checked_timestamp

        if timestamp_ms is not None:
            checked_timestamp(timestamp_ms)
        own = tuple(checked_headers(headers)[0]) if headers else ()
        return cls(Message(-1, -1, None, b"", 0, own), due_ms, now_ms, now_ms, timestamp_ms)

    @classmethod
    def of(cls, found: Message) -> DelayedMessage:
        """Take apart what is in a tier; what somebody else put there is due."""
        told: dict[str, bytes] = {}
        own = len(found.headers)
        while own and (name := found.headers[own - 1][0]) in _OURS and name not in told:
            own -= 1
            told[name] = found.headers[own][1]
        numbers = {name: _number(value) for name, value in told.items() if name != PLACE}
        message = Message(
            found.partition,
            found.offset,
            found.key,
            found.payload,
            found.timestamp_ms,
            tuple(found.headers[:own]),
            found.id,
        )
        due_ms = numbers.get(DUE, 0)
        sent_ms = numbers.get(SENT, found.timestamp_ms)
        place = _place(told.get(PLACE, b""))
        return cls(message, due_ms, numbers.get(UNTIL, 0), sent_ms, numbers.get(DATED), place)

    @property
    def next_tier(self) -> int | None:
        """Where it goes when it has waited here; None: it is due then."""
        left_ms = self.due_ms - self.until_ms
        return tier_for(left_ms) if left_ms > 0 else None

    def sent_on(self, tier: int, place: tuple[int, int] | None) -> tuple[OwnHeaders, int]:
        """The headers that it bears in a tier, and the timestamp: until when it stays there."""
        until_ms = self.until_ms + WAITS_MS[tier]
        told = [(DUE, self.due_ms), (UNTIL, until_ms), (SENT, self.sent_ms)]
        if self.timestamp_ms is not None:
            told.append((DATED, self.timestamp_ms))
        return (*self.message.headers, *_told(told), *_placed(place)), until_ms

    def delivered(self, place: tuple[int, int]) -> tuple[OwnHeaders, int]:
        """The headers that it bears in its queue, and its timestamp there."""
        told = [(DUE, self.due_ms), (SENT, self.sent_ms)]
        dated_ms = self.due_ms if self.timestamp_ms is None else self.timestamp_ms
        return (*self.message.headers, *_told(told), *_placed(place)), dated_ms


def _told(values: list[tuple[str, int]]) -> OwnHeaders:
    return tuple((name, b"%d" % value) for name, value in values)


def _placed(place: tuple[int, int] | None) -> OwnHeaders:
    return () if place is None else ((PLACE, b"%d@%d" % place),)


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:  # somebody else wrote it
        return 0


def _place(text: bytes) -> tuple[int, int] | None:
    tier, at, offset = text.partition(b"@")
    try:
        return (int(tier), int(offset)) if at else None
    except ValueError:
        return None


def place_of(message: Message) -> tuple[int, int] | None:
    """The tier, and the offset there, that a message was moved from; None: from none."""
    return DelayedMessage.of(message).place
