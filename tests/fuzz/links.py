"""The doors of a link: the stream of messages, and a buffer's end of a connection."""

from __future__ import annotations

import asyncio
import random
import ssl
import tempfile
import tracemalloc
from collections.abc import Coroutine
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer import local_socket, tcp_socket
from pxrs_ray.actors.buffer.server_end import ServerEnd
from pxrs_ray.actors.buffer.socket_server import SocketServer
from pxrs_ray.data.link_door import GREETING_BYTES, GivenTicket, LinkOffer, greeting
from pxrs_ray.data.link_messages import (
    ANSWERS,
    CALLS,
    VERSION,
    append_call,
    appended_answer,
    failed_answer,
    fetch_call,
    fetched_answer,
    ping,
    pong,
)
from pxrs_ray.data.link_reader import LinkReader
from pxrs_ray.data.link_tls import TlsFiles, TlsStream
from pxrs_ray.data.protocol import Appended, Fetched, Heard, Refused
from pxrs_ray.errors import LogCorrupted, ProtocolError, SequenceGap
from tests.contract.certificates import make_certificates

# What a message may cost to read, beside what it is itself: names, numbers, objects of Python.
GROWTH_BYTES = 256 << 10
GROWTH_TIMES = 40
OFFER = LinkOffer("\0nowhere", VERSION, b"t" * 16, b"k" * 32)
SAID, PROOF = greeting(OFFER)

_GAP = Refused(3, SequenceGap("gap"), 7, heard=Heard(1, 7, ((5, 50), (6, 60))))
CALL_SAMPLES = (
    append_call(1, "q", [(0, b"h" * 80, b"b" * 100), (5, b"", b"")], 100),
    fetch_call(2, "q", "g", {0: (1, 2), 3: (4, 5)}, 1 << 20, 1_000, "reader"),
    ping(3),
)
ANSWER_SAMPLES = (
    b"".join(appended_answer(1, [Appended(0, 5, 2), Appended(1, None, 1, repeated=True), _GAP])),
    b"".join(
        fetched_answer(2, [Fetched(0, (b"x" * 50, b""), 7, 0, 9), Refused(1, LogCorrupted("no"))])
    ),
    b"".join(fetched_answer(3, None)),
    failed_answer(4, LogCorrupted("bad")),
    pong(5),
)
HOSTILE = tuple(
    bytes((VERSION, kind, 0, 0)) + size.to_bytes(4, "little") + bytes(8)
    for kind in (1, 2, 3, 65, 66, 0, 255)
    for size in (0, 1, 1 << 20, (1 << 20) + 1, 1 << 31, (1 << 32) - 1)
)


def messages(data: bytes) -> None:
    """A stream of these bytes, in pieces: messages or the end, and never more than it brings."""
    rng = random.Random(data)
    for kinds in (CALLS, ANSWERS):
        reader = LinkReader(kinds)
        tracemalloc.start()
        try:
            for piece in _pieces(data, rng):
                reader.feed(piece)
        except ProtocolError as refused:
            assert str(refused)
        finally:
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert most < GROWTH_BYTES + GROWTH_TIMES * len(data), f"{most} bytes of memory"


def _pieces(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 1, 5])))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class _Transport:
    """The other side of a connection, as the buffer's end sees it."""

    def __init__(self) -> None:
        self.said = b""
        self.over = False

    def write(self, data: bytes) -> None:
        assert not self.over
        self.said += data

    def abort(self) -> None:
        self.over = True

    def is_closing(self) -> bool:
        return self.over

    def set_write_buffer_limits(self, *, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str) -> Any:
        return SimpleNamespace(name=name)


def connections(data: bytes) -> None:
    """Whoever has no ticket is not answered and reaches nothing; whoever replays one neither."""
    _knock(_connect(data, network=False))


def far_connections(data: bytes) -> None:
    """The same at the door of the network."""
    _knock(_connect(data, network=True))


def tls_connections(data: bytes) -> None:
    """Who shows no certificate reaches nothing, and hears of nothing but TLS; it ends."""
    _knock(_connect_with_tls(data))


def _knock(connecting: Coroutine[Any, Any, None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_socket, "is_ours", lambda found: True)
        patch.setattr(tcp_socket, "tune", lambda found: None)
        asyncio.run(connecting)


@lru_cache
def _tls() -> TlsFiles:
    with tempfile.TemporaryDirectory(prefix="pxrs-fuzz-") as folder:
        made = make_certificates(Path(folder))
        files = TlsFiles(made["server.pem"], made["server.key"], made["ca.pem"])
        _contexts.update({side: files.context(server_side=side) for side in (False, True)})
    return files


_contexts: dict[bool, ssl.SSLContext] = {}


def hello() -> bytes:
    """What an end with TLS says first."""
    _tls()
    return TlsStream(_contexts[False], server_side=False).begin()


async def _connect_with_tls(data: bytes) -> None:
    reached: list[Any] = []

    async def method(*arguments: Any) -> list[Any]:
        reached.append(arguments)
        return []

    _tls()
    server = SocketServer({"append": method, "fetch": method})
    server.context = _contexts[True]
    server.tickets._given[OFFER.ticket] = GivenTicket(OFFER.key, float("inf"), network=True)
    transport, end = _Transport(), ServerEnd(server, server._methods, network=True)
    end.connection_made(transport)
    tracemalloc.start()
    for piece in _pieces(data, random.Random(data)):
        if not transport.over:
            end.data_received(piece)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await asyncio.sleep(0)
    assert not reached and end.stranger and PROOF not in transport.said
    assert most < GROWTH_BYTES + GROWTH_TIMES * len(data), f"{most} bytes of memory"
    end.connection_lost(None)


async def _connect(data: bytes, *, network: bool) -> None:
    reached: list[Any] = []

    async def method(*arguments: Any) -> list[Any]:
        reached.append(arguments)
        return []

    server = SocketServer({"append": method, "fetch": method})
    server.tickets._given[OFFER.ticket] = GivenTicket(OFFER.key, float("inf"), network)
    for welcome in (data[:GREETING_BYTES] == SAID, False):  # the second time it is a replay
        transport, end = _Transport(), ServerEnd(server, server._methods, network=network)
        end.connection_made(transport)
        reached.clear()
        for piece in _pieces(data, random.Random(data)):
            if not transport.over:
                end.data_received(piece)
        for _ in range(3):
            await asyncio.sleep(0)
        if welcome:
            assert transport.said.startswith(PROOF)
        else:
            assert not transport.said and not reached, "an answer before it is known who asks"
            assert transport.over or len(data) < GREETING_BYTES
            assert len(end._greeting or b"") <= GREETING_BYTES and not end._reader._data
        end.connection_lost(None)
    assert not server.ends


MESSAGE_SAMPLES = (*CALL_SAMPLES, *ANSWER_SAMPLES, *HOSTILE, b"".join(CALL_SAMPLES))
CONNECTION_SAMPLES = (
    SAID,
    SAID + b"".join(CALL_SAMPLES),
    *(SAID + hostile for hostile in HOSTILE[:6]),
    SAID[:-1] + b"\0",
    SAID[:40],
    greeting(LinkOffer("", VERSION, OFFER.ticket, b"w" * 32))[0] + CALL_SAMPLES[0],
    greeting(LinkOffer("", VERSION + 1, OFFER.ticket, OFFER.key))[0],
    b"".join(CALL_SAMPLES),
)
