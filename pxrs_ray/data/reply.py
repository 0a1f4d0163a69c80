"""Replies: what a handler answers to who sent a message, kept by the message's id. Pure.

Rules of this file. Replies stand in a queue beside the one of the messages, '<queue>.replies',
under the message's id as their key. The first one to a message counts, in the order of its log: a
handler that is called again, after a crash or a retry, changes nothing for who waits. A group that
gives a message up replies with its error. One that puts it into quarantine says so *for now*: the
reply to a message that is re-driven takes the place of that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from pxrs_ray.errors import HandlerError, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Message

REPLIES_SUFFIX = ".replies"
ERROR = "pxrs-error"
ERROR_FOR_NOW = "pxrs-error-for-now"
ERROR_CHARS_MAX = 2_000
# How many replies who waits remembers of each partition.
REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler replied. `error` is set where its group gave the message up, or put it into
    quarantine (`for_now`)."""

    payload: bytes
    headers: tuple[tuple[str, bytes], ...]
    at_ms: int
    error: str | None = None
    for_now: bool = False

    @classmethod
    def of(cls, found: Message) -> Reply:
        """The reply that a message of the queue of replies is."""
        told = found.headers[-1] if found.headers else ("", b"")
        if told[0] not in (ERROR, ERROR_FOR_NOW):
            return cls(found.payload, found.headers, found.timestamp_ms)
        error = told[1].decode(errors="replace")
        for_now = told[0] == ERROR_FOR_NOW
        return cls(b"", found.headers[:-1], found.timestamp_ms, error, for_now)

    def sound(self) -> Reply:
        """The same. Raises HandlerError when the message was given up, or put aside."""
        if self.for_now:
            raise HandlerError(
                f"the message is in quarantine: {self.error}; its reply can be waited for again "
                "when it is re-driven: `pxrs quarantine retry`"
            )
        if self.error is not None:
            raise HandlerError(f"the message was given up, and nobody replies to it: {self.error}")
        return self


def error_header(error: str, *, for_now: bool = False) -> tuple[str, bytes]:
    """What stands last in a reply that says why a message was given up, or put aside."""
    return ERROR_FOR_NOW if for_now else ERROR, error[:ERROR_CHARS_MAX].encode(
        errors="backslashreplace"
    )


def answerable(message_id: str | None) -> str:
    """The id that a reply goes to. Raises UsageError where there is none."""
    if message_id is None:
        raise UsageError("only a message with an id can be replied to: send(..., id=...)")
    return message_id


def refuse_replies(queue: str) -> UsageError:
    """What says that nobody hears replies to a queue's messages."""
    return UsageError(
        f"queue {queue} keeps no replies: write `replies = true` below [queues.{queue}], and "
        "`pxrs up` the file"
    )


class RepliesRead:
    """The first reply to each message, as far as one partition was read; the newest of them."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._found: OrderedDict[bytes, Reply] = OrderedDict()
        self._max = remembered_max
        self.has_forgotten = False

    def take(self, messages: Iterable[Message]) -> None:
        """These were read next."""
        for message in messages:
            if message.key is None:
                continue
            known = self._found.get(message.key)
            if known is None or known.for_now:
                self._found[message.key] = Reply.of(message)
        while len(self._found) > self._max:
            self._found.popitem(last=False)
            self.has_forgotten = True

    def to(self, message_id: str) -> Reply | None:
        """The reply to that message; None where none is remembered."""
        return self._found.get(message_id.encode())
