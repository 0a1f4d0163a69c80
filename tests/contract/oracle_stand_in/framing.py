"""TNS packets, and the small encodings inside them: the two lowest layers of the wire.

Rules of this file. A packet has an 8-byte header: its length (2 bytes until the ACCEPT, 4 after
it), its type and flags. DATA packets begin with two bytes of data flags, and one message may
spread over several of them. Inside a message, integers are "universal": one byte says how many
bytes follow, big-endian, none for zero; texts and bytes carry one length byte up to 252, or 254
and then chunks that end with an empty one. The protocol of 19c marks no end of a message: who
reads it knows when it is complete, and asks for the next packet until then.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

CONNECT = 1
ACCEPT = 2
REFUSE = 4
DATA = 6
MARKER = 12

DATA_FLAGS_END = b"\x00\x40"
PAYLOAD_BYTES_MAX = 8_000
CHUNK_BYTES_MAX = 32_767
SHORT_BYTES_MAX = 252
LONG_LENGTH = 254
NULL_LENGTH = 255


class Disconnected(Exception):
    """Raised when the client has gone, or when a fault has cut the connection."""


class MessageReader:
    """Reads one message, taking further packets as it needs them."""

    def __init__(self, data: bytes, more: Callable[[], bytes]) -> None:
        """`data` is what the first packet holds; `more` waits for what the next one does."""
        self._data = bytearray(data)
        self._more = more
        self._at = 0

    def raw(self, count: int) -> bytes:
        """The next `count` bytes as they are."""
        end = self._at + count
        while end > len(self._data):
            self._data += self._more()
        taken = bytes(self._data[self._at : end])
        self._at = end
        return taken

    def byte(self) -> int:
        """One byte as a number."""
        return self.raw(1)[0]

    def integer(self) -> int:
        """A universal integer; the driver sends none that is negative."""
        count = self.byte()
        return int.from_bytes(self.raw(count & 0x7F), "big") if count else 0

    def octets(self) -> bytes | None:
        """Bytes with their length in front, chunked when long; None for null (and for empty)."""
        count = self.byte()
        if count in (0, NULL_LENGTH):
            return None
        if count != LONG_LENGTH:
            return self.raw(count)
        chunks = []
        while size := self.integer():
            chunks.append(self.raw(size))
        return b"".join(chunks)

    def counted_octets(self) -> bytes:
        """Bytes with their length told twice, as keys and values are sent; b'' when absent."""
        return (self.octets() or b"") if self.integer() else b""

    def skip_integers(self, count: int) -> None:
        """Pass over universal integers that mean nothing here."""
        for _ in range(count):
            self.integer()


class MessageWriter:
    """Builds one message; every method returns the writer, so that fields read as a list."""

    def __init__(self) -> None:
        self.data = bytearray()

    def byte(self, *values: int) -> MessageWriter:
        """Single bytes as they are."""
        self.data += bytes(values)
        return self

    def raw(self, data: bytes) -> MessageWriter:
        """Bytes as they are."""
        self.data += data
        return self

    def integer(self, *values: int) -> MessageWriter:
        """Universal integers, in the widths that the database itself uses: 1, 2, 4 and 8."""
        for value in values:
            if value == 0:
                self.data.append(0)
                continue
            least = (value.bit_length() + 7) // 8
            width = next(width for width in (1, 2, 4, 8) if width >= least)
            self.data.append(width)
            self.data += value.to_bytes(width, "big")
        return self

    def octets(self, value: bytes | None) -> MessageWriter:
        """Bytes with their length in front; None and b'' are both the null of the database."""
        if not value:
            self.data.append(0)
        elif len(value) <= SHORT_BYTES_MAX:
            self.data.append(len(value))
            self.data += value
        else:
            self.data.append(LONG_LENGTH)
            for start in range(0, len(value), CHUNK_BYTES_MAX):
                chunk = value[start : start + CHUNK_BYTES_MAX]
                self.integer(len(chunk)).raw(chunk)
            self.data.append(0)
        return self

    def counted_octets(self, value: bytes) -> MessageWriter:
        """Bytes with their length told twice."""
        self.integer(len(value))
        return self.octets(value) if value else self


class PacketSocket:
    """One client's socket, read and written in packets."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._wide_lengths = False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def widen_lengths(self) -> None:
        """From the ACCEPT of protocol 315 on, packet lengths take four bytes."""
        self._wide_lengths = True

    def read(self) -> tuple[int, bytes]:
        """The type and body of the next packet."""
        header = self._read_exactly(8)
        length = int.from_bytes(header[:4] if self._wide_lengths else header[:2], "big")
        return header[4], self._read_exactly(length - 8)

    def _read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = self._sock.recv(count - len(data))
            except OSError as error:
                raise Disconnected from error
            if not part:
                raise Disconnected
            data += part
        return bytes(data)

    def send(self, kind: int, body: bytes) -> None:
        """Send one packet."""
        length = len(body) + 8
        if self._wide_lengths:
            header = struct.pack(">IBBH", length, kind, 0, 0)
        else:
            header = struct.pack(">HHBBH", length, 0, kind, 0, 0)
        try:
            self._sock.sendall(header + body)
        except OSError as error:
            raise Disconnected from error

    def send_message(self, message: bytes) -> None:
        """Send one message in as many DATA packets as it takes."""
        for start in range(0, len(message), PAYLOAD_BYTES_MAX):
            self.send(DATA, b"\x00\x00" + message[start : start + PAYLOAD_BYTES_MAX])

    def cut(self) -> None:
        """Break the connection as a crash of the server would: a reset, no farewell."""
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.end()

    def end(self) -> None:
        """Close the socket, waking whoever reads it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
