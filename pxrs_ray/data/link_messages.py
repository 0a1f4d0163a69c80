"""The messages between a process and a buffer on a stream: calls and answers as bytes. Pure.

Rules of this file. A message is a fixed head (version, kind, length of the rest, number of the
call) and its fields, one after the other. Nothing is evaluated: fields are numbers, texts and the
bytes of frames as they are on disk. A length is checked against its bound before anything is kept,
and a message must end where its head says. Errors travel as the name of one of our classes and its
texts. A violation raises ProtocolError, and ends the connection. `link_reader` cuts what comes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from pxrs_ray import errors
from pxrs_ray.data.protocol import Appended, Fetched, Heard, OutFrame, ReadPosition, Refused
from pxrs_ray.errors import ProtocolError, PxrsError
from pxrs_ray.model import PartitionId

VERSION = 1
CALL_BYTES_MAX = 1 << 20
# Of a connection that carries much, which has little wait behind nothing of it.
MUCH_CALL_BYTES_MAX = 17 << 20
ANSWER_BYTES_MAX = 8 << 20
TEXT_BYTES_MAX = 8 << 10

HEAD = struct.Struct("<BBHIQ")  # version, kind, nothing, bytes that follow, number of the call
_TEXT = struct.Struct("<H")
_COUNT = struct.Struct("<I")
_APPEND = struct.Struct("<II")  # how long the buffer may hold it, how many frames
_FRAME = struct.Struct("<IHI")  # partition, bytes of the header, bytes of the body
_FETCH = struct.Struct("<QII")  # bytes_max, wait_ms, how many positions
_POSITION = struct.Struct("<IQQ")  # partition, epoch, offset
_APPENDED = struct.Struct("<BIQI")  # what it is, partition, base offset, messages
_REFUSED = struct.Struct("<BIB")  # what it is, partition, which of the optional fields follow
_FETCHED = struct.Struct("<BIQQQI")  # what it is, partition, next, start, end, how many chunks
_NUMBER = struct.Struct("<Q")
_HEARD = struct.Struct("<QQI")  # epoch, next sequence, how many places
_PLACE = struct.Struct("<QQ")

_IS_REFUSED, _IS_APPENDED, _IS_REPEATED, _IS_FORGOTTEN, _IS_FETCHED = range(5)
_HAS_EXPECTED, _HAS_START, _HAS_END, _HAS_HEARD = 1, 2, 4, 8

_ERRORS = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, PxrsError)
}


class LinkKind(IntEnum):
    """What a message is."""

    APPEND = 1
    FETCH = 2
    PING = 3
    HEAR = 4
    APPENDED = 65
    FETCHED = 66
    TOO_MUCH = 67
    FAILED = 68
    PONG = 69
    HEARD = 70


CALLS = {LinkKind.APPEND: CALL_BYTES_MAX, LinkKind.FETCH: CALL_BYTES_MAX, LinkKind.PING: 0}
MUCH_CALLS = {
    **CALLS,
    LinkKind.APPEND: MUCH_CALL_BYTES_MAX,
    LinkKind.HEAR: MUCH_CALL_BYTES_MAX,
}
ANSWERS = {
    LinkKind.APPENDED: ANSWER_BYTES_MAX,
    LinkKind.FETCHED: ANSWER_BYTES_MAX,
    LinkKind.TOO_MUCH: 0,
    LinkKind.FAILED: TEXT_BYTES_MAX * 8,
    LinkKind.PONG: 0,
    LinkKind.HEARD: 0,
}


class LinkMessage(NamedTuple):
    """One message: what it is, which call it is or answers, and what it says."""

    kind: LinkKind
    number: int
    content: Any


# ---- writing


def append_call(number: int, queue: str, frames: Sequence[OutFrame], wait_ms: int) -> bytes:
    """A call of `Buffer.append`. Raises ProtocolError for what is too large here."""
    return b"".join(append_parts(number, queue, frames, wait_ms, CALL_BYTES_MAX))


def append_parts(
    number: int,
    queue: str,
    frames: Sequence[OutFrame],
    wait_ms: int,
    bytes_max: int = MUCH_CALL_BYTES_MAX,
) -> list[Any]:
    """The same in its parts, in which the frames are the caller's own bytes and no copies."""
    parts: list[Any] = [_text(queue), _APPEND.pack(wait_ms, len(frames))]
    for partition, header, body in frames:
        parts += (_FRAME.pack(partition, len(header), len(body)), header, body)
    return [_head(LinkKind.APPEND, number, parts, bytes_max), *parts]


def fetch_call(
    number: int,
    queue: str,
    group: str,
    positions: Mapping[PartitionId, ReadPosition],
    bytes_max: int,
    wait_ms: int,
    reader: str,
) -> bytes:
    """A call of `Buffer.fetch`. Raises ProtocolError for what is too large here."""
    parts = [_text(queue), _text(group), _text(reader)]
    parts.append(_FETCH.pack(bytes_max, wait_ms, len(positions)))
    parts += [_POSITION.pack(p, epoch, offset) for p, (epoch, offset) in positions.items()]
    return _whole(LinkKind.FETCH, number, parts)


def hear_parts(number: int, messages: Sequence[bytes]) -> list[Any]:
    """A call of `ReplicaBuffer.hear`, in its parts. Raises ProtocolError for what is too large."""
    parts: list[Any] = [_COUNT.pack(len(messages))]
    for message in messages:
        parts += (_COUNT.pack(len(message)), message)
    return [_head(LinkKind.HEAR, number, parts, MUCH_CALL_BYTES_MAX), *parts]


def heard_answer(number: int, _: None) -> list[Any]:
    """`ReplicaBuffer.hear` has taken it."""
    return [_whole(LinkKind.HEARD, number, [])]


def ping(number: int) -> bytes:
    """Asks for a sign of life."""
    return _whole(LinkKind.PING, number, [])


def pong(number: int) -> bytes:
    """Answers `ping`."""
    return _whole(LinkKind.PONG, number, [])


def appended_answer(number: int, answers: Sequence[Appended | Refused]) -> list[Any]:
    """What `Buffer.append` has answered, in parts."""
    parts = [_COUNT.pack(len(answers))]
    for answer in answers:
        if isinstance(answer, Refused):
            _refused(parts, answer)
            continue
        kind = _IS_REPEATED if answer.repeated else _IS_APPENDED
        kind = _IS_FORGOTTEN if answer.base_offset is None else kind
        parts.append(_APPENDED.pack(kind, answer.partition, answer.base_offset or 0, answer.count))
    return [_whole(LinkKind.APPENDED, number, parts)]


def fetched_answer(number: int, found: Sequence[Fetched | Refused] | None) -> list[Any]:
    """What `Buffer.fetch` has answered, in parts, in which the frames are the log's own bytes and
    no copies; None: it is too much for this way."""
    if found is None:
        return [_whole(LinkKind.TOO_MUCH, number, [])]
    parts: list[Any] = [_COUNT.pack(len(found))]
    for part in found:
        if isinstance(part, Refused):
            _refused(parts, part)
            continue
        places = (part.partition, part.next_offset, part.start_offset, part.end_offset)
        parts.append(_FETCHED.pack(_IS_FETCHED, *places, len(part.chunks)))
        for chunk in part.chunks:
            view = memoryview(chunk).cast("B")
            parts += (_COUNT.pack(len(view)), view)
    return [_head(LinkKind.FETCHED, number, parts, ANSWER_BYTES_MAX), *parts]


def failed_answer(number: int, error: PxrsError) -> bytes:
    """The call has raised `error`."""
    parts: list[bytes] = []
    _error(parts, error)
    return _whole(LinkKind.FAILED, number, parts)


def _whole(kind: LinkKind, number: int, parts: Sequence[Any]) -> bytes:
    most = CALLS.get(kind, ANSWERS.get(kind, 0))
    return b"".join((_head(kind, number, parts, most), *parts))


def _head(kind: LinkKind, number: int, parts: Sequence[Any], bytes_max: int) -> bytes:
    size = sum(map(len, parts))
    if size > bytes_max:
        raise ProtocolError(f"{kind.name} of {size} bytes: a message has {bytes_max} at most")
    return HEAD.pack(VERSION, kind, 0, size, number)


def _text(text: str) -> bytes:
    data = text.encode(errors="surrogatepass")
    if len(data) > TEXT_BYTES_MAX:
        raise ProtocolError(f"a text of {len(data)} bytes: {TEXT_BYTES_MAX} at most")
    return _TEXT.pack(len(data)) + data


def _error(parts: list[bytes], error: PxrsError) -> None:
    """The nearest of the classes that both ends know, and the texts; long ones are cut."""
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    texts = [str(each)[: TEXT_BYTES_MAX // 4] for each in error.args[:4]]
    parts += (_text(name), bytes([len(texts)]), *map(_text, texts))


def _refused(parts: list[bytes], refused: Refused) -> None:
    numbers = (refused.expected_sequence, refused.start_offset, refused.end_offset)
    flags = sum(1 << at for at, number in enumerate(numbers) if number is not None)
    heard = refused.heard
    flags |= _HAS_HEARD if heard is not None else 0
    parts.append(_REFUSED.pack(_IS_REFUSED, refused.partition, flags))
    parts += [_NUMBER.pack(number) for number in numbers if number is not None]
    if heard is not None:
        parts.append(_HEARD.pack(heard.epoch, heard.next_sequence, len(heard.places)))
        parts += [_PLACE.pack(*place) for place in heard.places]
    _error(parts, refused.error)


# ---- reading


class _Fields:
    """Takes one field after the other out of a message."""

    __slots__ = ("_at", "_data", "_is_own")

    def __init__(self, data: memoryview, *, is_own: bool) -> None:
        self._data = data
        self._is_own = is_own
        self._at = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        end = self._at + form.size
        if end > len(self._data):
            raise ProtocolError("a message ends before its fields")
        found = form.unpack_from(self._data, self._at)
        self._at = end
        return found

    def copy(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ProtocolError("a message ends before its fields")
        found = bytes(self._data[self._at : end])
        self._at = end
        return found

    def view(self, size: int) -> bytes | memoryview:
        """As `copy`, of memory that is the message's own without a copy: it stays as long as
        anybody has the view."""
        if not self._is_own:
            return self.copy(size)
        end = self._at + size
        if end > len(self._data):
            raise ProtocolError("a message ends before its fields")
        found = self._data[self._at : end]
        self._at = end
        return found

    def chunk(self, size: int) -> bytes | memoryview:
        """As `view`, for what is kept: a small part does not hold the memory of the whole."""
        return self.view(size) if 2 * size >= len(self._data) else self.copy(size)

    def text(self) -> str:
        (size,) = self.take(_TEXT)
        try:
            return self.copy(size).decode(errors="surrogatepass")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a text is none: {error}") from None

    def error(self) -> PxrsError:
        name, texts = self.text(), [self.text() for _ in range(self.copy(1)[0])]
        return _ERRORS.get(name, PxrsError)(*texts)

    def refused(self) -> Refused:
        partition, flags = self.take(_REFUSED)[1:]
        expected, start, end = (
            self.take(_NUMBER)[0] if flags & flag else None
            for flag in (_HAS_EXPECTED, _HAS_START, _HAS_END)
        )
        heard = None
        if flags & _HAS_HEARD:
            epoch, following, count = self.take(_HEARD)
            places: Any = tuple(self.take(_PLACE) for _ in range(count))
            heard = Heard(epoch, following, places)
        return Refused(partition, self.error(), expected, start, end, heard)

    def next_is(self) -> int:
        if self._at >= len(self._data):
            raise ProtocolError("a message ends before its fields")
        return self._data[self._at]

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError("a message goes on behind its fields")


def content_of(kind: LinkKind, data: memoryview, *, is_own: bool = False) -> Any:
    """What a whole message says. `is_own`: the memory of `data` is this message's alone.

    Raises ProtocolError.
    """
    fields = _Fields(data, is_own=is_own)
    read = _READ.get(kind)
    content = read(fields) if read is not None else None
    fields.end()
    return content


def _read_append(fields: _Fields) -> tuple[str, list[OutFrame], int]:
    queue = fields.text()
    wait_ms, count = fields.take(_APPEND)
    frames: list[OutFrame] = []
    for _ in range(count):
        partition, header_bytes, body_bytes = fields.take(_FRAME)
        frames.append((partition, fields.copy(header_bytes), fields.view(body_bytes)))
    return queue, frames, wait_ms


def _read_fetch(fields: _Fields) -> tuple[Any, ...]:
    queue, group, reader = fields.text(), fields.text(), fields.text()
    bytes_max, wait_ms, count = fields.take(_FETCH)
    positions = {}
    for _ in range(count):
        partition, epoch, offset = fields.take(_POSITION)
        positions[partition] = (epoch, offset)
    return queue, group, positions, bytes_max, wait_ms, reader


def _read_appended(fields: _Fields) -> list[Appended | Refused]:
    answers: list[Appended | Refused] = []
    for _ in range(fields.take(_COUNT)[0]):
        if fields.next_is() == _IS_REFUSED:
            answers.append(fields.refused())
            continue
        kind, partition, base, count = fields.take(_APPENDED)
        if kind not in (_IS_APPENDED, _IS_REPEATED, _IS_FORGOTTEN):
            raise ProtocolError(f"an answer of kind {kind}")
        offset = None if kind == _IS_FORGOTTEN else base
        answers.append(Appended(partition, offset, count, kind != _IS_APPENDED))
    return answers


def _read_fetched(fields: _Fields) -> list[Fetched | Refused]:
    found: list[Fetched | Refused] = []
    for _ in range(fields.take(_COUNT)[0]):
        if fields.next_is() == _IS_REFUSED:
            found.append(fields.refused())
            continue
        kind, partition, following, start, end, chunks = fields.take(_FETCHED)
        if kind != _IS_FETCHED:
            raise ProtocolError(f"an answer of kind {kind}")
        parts = tuple(fields.chunk(fields.take(_COUNT)[0]) for _ in range(chunks))
        found.append(Fetched(partition, parts, following, start, end))
    return found


def _read_hear(fields: _Fields) -> tuple[list[bytes]]:
    (count,) = fields.take(_COUNT)
    return ([fields.copy(fields.take(_COUNT)[0]) for _ in range(count)],)


_READ: Mapping[LinkKind, Any] = {
    LinkKind.HEAR: _read_hear,
    LinkKind.APPEND: _read_append,
    LinkKind.FETCH: _read_fetch,
    LinkKind.APPENDED: _read_appended,
    LinkKind.FETCHED: _read_fetched,
    LinkKind.FAILED: _Fields.error,
}


def reply_bytes(found: Collection[Fetched | Refused]) -> int:
    """What the messages in a reply to `Buffer.fetch` weigh."""
    chunks = (chunk for part in found if isinstance(part, Fetched) for chunk in part.chunks)
    return sum(memoryview(chunk).nbytes for chunk in chunks)
