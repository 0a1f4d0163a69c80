"""What replicas say to each other, as bytes. Pure.

Rules of this file. A message is a fixed head (version, kind, bytes that follow), the disk that it
is for, and its fields one after the other. Nothing is evaluated: fields are numbers, texts and the
bytes of frames as they lie on disk. A length is compared with its bound, and with what is there,
before anything of it is kept; a message must end where its head says. What breaks a rule raises
ProtocolError, and ends the connection. `to` is compared by who hears it: a disk that has gone to
another place, or an address that was given to another process, is spoken to by mistake.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from pxrs_ray.errors import ProtocolError
from pxrs_ray.model import Offset
from pxrs_ray.replication.peer_messages import (
    Agreed,
    BeginAt,
    CutAt,
    Follower,
    Frames,
    LogKey,
    Position,
    Stored,
    ToFollower,
    ToLeader,
    Watermark,
)
from pxrs_ray.replication.placement import Disk, LeaderEpoch

VERSION = 1
TEXT_BYTES_MAX = 1 << 10
EPOCHS_MAX = 1 << 16
# A frame is bounded by the log's own limits, a snapshot by how many producers a log remembers.
DATA_BYTES_MAX = 256 << 20

_HEAD = struct.Struct("<BBHI")
_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
_NUMBER_MAX = (1 << 64) - 1


class PeerMessage(NamedTuple):
    """One message, and the disk that it is for."""

    to: Disk
    message: ToLeader | ToFollower


class _Reader:
    """Takes a message apart, from its beginning to its end."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> memoryview:
        """The next bytes. Raises ProtocolError where there are not as many."""
        if count > len(self.data) - self.at:
            raise ProtocolError(f"a message of replicas ends in the middle of {count} bytes")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        found: int = _NUMBER.unpack(self.take(_NUMBER.size))[0]
        return found

    def length(self, most: int) -> int:
        found: int = _LENGTH.unpack(self.take(_LENGTH.size))[0]
        if found > most:
            raise ProtocolError(f"a message of replicas names {found}: {most} at most")
        return found

    def text(self) -> str:
        try:
            return str(self.take(self.length(TEXT_BYTES_MAX)), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(
                f"a message of replicas has no text in its place: {error}"
            ) from None

    def key(self) -> LogKey:
        return self.text(), self.length((1 << 32) - 1)

    def follower(self) -> Follower:
        return Follower(self.text(), self.text(), self.number())

    def epochs(self) -> tuple[tuple[LeaderEpoch, Offset], ...]:
        return tuple((self.number(), self.number()) for _ in range(self.length(EPOCHS_MAX)))

    def data_bytes(self) -> bytes:
        return bytes(self.take(self.length(DATA_BYTES_MAX)))


def _number(number: int) -> bytes:
    if not 0 <= number <= _NUMBER_MAX:
        raise ProtocolError(f"{number} is no number of a message of replicas")
    return _NUMBER.pack(number)


def _counted(count: int, most: int) -> bytes:
    if count > most:
        raise ProtocolError(f"a message of replicas cannot carry {count}: {most} at most")
    return _LENGTH.pack(count)


def _text(text: str) -> bytes:
    packed = text.encode()
    return _counted(len(packed), TEXT_BYTES_MAX) + packed


def _key(key: LogKey) -> bytes:
    return _text(key[0]) + _LENGTH.pack(key[1])


def _follower(who: Follower) -> bytes:
    return _text(who.disk) + _text(who.boot) + _number(who.life)


def _epochs(epochs: tuple[tuple[LeaderEpoch, Offset], ...]) -> bytes:
    numbers = [_number(number) for begun in epochs for number in begun]
    return _counted(len(epochs), EPOCHS_MAX) + b"".join(numbers)


def _data(data: bytes) -> bytes:
    return _counted(len(data), DATA_BYTES_MAX) + data


_Field = tuple[Callable[[Any], bytes], Callable[[_Reader], Any]]
_N: _Field = (_number, _Reader.number)
_K: _Field = (_key, _Reader.key)
_F: _Field = (_follower, _Reader.follower)
_E: _Field = (_epochs, _Reader.epochs)
_D: _Field = (_data, _Reader.data_bytes)
# In the order of the fields of each; a new one goes to the end of a new version.
_FORMS: dict[int, tuple[type, tuple[_Field, ...]]] = {
    1: (Position, (_N, _F, _K, _N, _N, _N, _N, _N)),
    2: (Stored, (_N, _F, _K, _N, _N, _N, _N, _N)),
    65: (CutAt, (_N, _K, _N, _N, _N, _N)),
    66: (Agreed, (_N, _K, _N, _N)),
    67: (BeginAt, (_N, _K, _N, _N, _N, _D)),
    68: (Frames, (_N, _K, _N, _N, _E, _N, _N, _D)),
    69: (Watermark, (_N, _K, _N, _N)),
}
_KINDS = {kind: number for number, (kind, _) in _FORMS.items()}


def pack_peer(to: Disk, message: ToLeader | ToFollower) -> bytes:
    """A message for the replica on disk `to`. Raises ProtocolError for what no message can say."""
    number = _KINDS[type(message)]
    _, fields = _FORMS[number]
    values = (getattr(message, name) for name in type(message).__slots__)
    parts = [_text(to), *(pack(value) for (pack, _), value in zip(fields, values, strict=True))]
    size = sum(map(len, parts))
    return b"".join((_HEAD.pack(VERSION, number, 0, size), *parts))


def unpack_peer(data: bytes | memoryview) -> PeerMessage:
    """The message that these bytes are, no more and no less. Raises ProtocolError."""
    reader = _Reader(memoryview(data))
    version, number, _, size = _HEAD.unpack(reader.take(_HEAD.size))
    if version != VERSION or number not in _FORMS:
        raise ProtocolError(
            f"message {number} of version {version} is none of replicas: use the same pxrs-ray on "
            "all nodes"
        )
    if size != len(reader.data) - _HEAD.size:
        raise ProtocolError(
            f"a message of replicas has {len(reader.data) - _HEAD.size} bytes, and says {size}"
        )
    kind, fields = _FORMS[number]
    to = reader.text()
    message = kind(*(unpack(reader) for _, unpack in fields))
    if reader.at != len(reader.data):
        raise ProtocolError("a message of replicas goes on behind its end")
    return PeerMessage(to, message)
