"""Asks who listens at an address, in seconds: Ray itself tries a wrong one for half a minute.

Rules of this file. What Ray speaks is gRPC, which is HTTP/2. The question is one call by hand: the
headers of its answer say whether a gRPC server is there, whether it has the service that was asked
for, and whether it takes the token. A proxy that answers for whoever is not there is none.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum

GCS = "/ray.rpc.NodeInfoGcsService/CheckAlive"
CLIENT_SERVER = "/ray.rpc.RayletDriver/ClusterInfo"

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES = 9
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
# Entries of HPACK's static table: ":method: POST", ":scheme: http", ":status: 200".
_POST, _HTTP, _STATUS_200 = b"\x83", b"\x86", 0x88
_RESIZES = range(0x20, 0x40)
# A header that is written out, its value of two bytes.
_NO_SUCH_SERVICE, _NO_TOKEN = b"\x0bgrpc-status\x0212", b"\x0bgrpc-status\x0216"
_LENGTH_MAX = 0x7F
_NO_MESSAGE = b"\0\0\0\0\0"
_READ_BYTES = 1 << 16
_ANSWER_BYTES_MAX = 1 << 20


class Knocked(StrEnum):
    """What came back."""

    SERVICE = "the service"
    OTHER_SERVICE = "another service"
    NOT_LET_IN = "the service, which does not take the token"
    NO_RAY = "no gRPC"
    SETTINGS = "the beginning of HTTP/2"
    NOTHING = "nothing"


def knock(
    place: tuple[str, int], service: str, wait_s: float, more: Mapping[str, str] | None = None
) -> Knocked:
    """Call `service` at `place`, with `more` headers. Raises OSError where nobody listens; takes
    `wait_s` at most, but for the name of the host.

    SETTINGS: something speaks HTTP/2, and has not answered the call in that time.
    """
    end_s = time.monotonic() + wait_s
    with socket.create_connection(place, wait_s) as connection:
        heard = Knocked.NOTHING
        try:
            connection.sendall(_question(place[0], service, more or {}))
            for kind, flags, body in _frames(connection, end_s):
                if kind == _HEADERS:
                    return _judged(body)
                if kind != _SETTINGS and heard is Knocked.NOTHING:
                    return Knocked.NO_RAY
                if kind == _SETTINGS and not flags & _ACK:
                    heard = Knocked.SETTINGS
                    connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        except TimeoutError:
            return heard
        except ValueError:
            return Knocked.NO_RAY
        except OSError:
            return heard
        return Knocked.NO_RAY if heard is Knocked.NOTHING else heard


def _question(host: str, service: str, more: Mapping[str, str]) -> bytes:
    headers = (
        _POST
        + _HTTP
        + b"".join(
            _written(name, value)
            for name, value in (
                (":path", service),
                (":authority", host[:100]),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                *more.items(),
            )
        )
    )
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
        + _frame(_DATA, _END_STREAM, 1, _NO_MESSAGE)
    )


def _written(name: str, value: str) -> bytes:
    """A header as it stands: of HPACK's forms the plainest."""
    plain = [text.encode(errors="replace") for text in (name.lower(), value)]
    return b"\0" + b"".join(_length(len(text)) + text for text in plain)


def _length(number: int) -> bytes:
    if number < _LENGTH_MAX:
        return bytes([number])
    number, told = number - _LENGTH_MAX, [_LENGTH_MAX]
    while number >= 0x80:
        number, low = number >> 7, number & 0x7F
        told.append(low | 0x80)
    return bytes([*told, number])


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _frames(connection: socket.socket, end_s: float) -> Iterator[tuple[int, int, bytes]]:
    """Kind, flags and body of what comes until the end. Raises TimeoutError, and ValueError for
    what is no HTTP/2."""
    had = b""
    while True:
        connection.settimeout(max(0.01, end_s - time.monotonic()))
        more = connection.recv(_READ_BYTES)
        if not more or time.monotonic() > end_s:
            return
        had += more
        while len(had) >= _HEAD_BYTES:
            size = int.from_bytes(had[:3], "big")
            if size > _ANSWER_BYTES_MAX or had[3] > 0x10:
                raise ValueError("no frame")
            if len(had) < _HEAD_BYTES + size:
                break
            yield had[3], had[4], had[_HEAD_BYTES : _HEAD_BYTES + size]
            had = had[_HEAD_BYTES + size :]


def _judged(headers: bytes) -> Knocked:
    begun = headers[1:] if headers[:1] and headers[0] in _RESIZES else headers
    if not begun or begun[0] != _STATUS_200:
        return Knocked.NO_RAY
    if _NO_TOKEN in headers:
        return Knocked.NOT_LET_IN
    return Knocked.OTHER_SERVICE if _NO_SUCH_SERVICE in headers else Knocked.SERVICE
