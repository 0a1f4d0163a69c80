"""A buffer of another node, as links over TCP reach it, and who knocks there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer import (
    tcp_socket,
)
from pxrs_ray.actors.buffer.buffer_client import CALL_BYTES_MAX, BufferClient
from pxrs_ray.actors.buffer.buffer_link import BufferLink, LinkWay
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.actors.buffer.socket_server import SocketServer
from pxrs_ray.data.link_door import LinkOffer
from pxrs_ray.data.link_ports import LinkPorts
from pxrs_ray.data.protocol import Appended, Fetched
from tests.actors.conditions import until
from tests.contract.certificates import Certificates

HERE = "127.0.0.1"
WAIT_S = 20
LARGE = b"x" * (CALL_BYTES_MAX + 1)
Test = Callable[["Far"], Awaitable[None]]


class Far:
    """A buffer of another node: nobody reaches its local socket. Counts what Ray carries."""

    def __init__(self) -> None:
        self.server = SocketServer(
            {"append": self.append, "fetch": self.fetch, "fetch_much": self.fetch},
            lambda: HERE,
        )
        self.server.allow(LinkPorts())
        self.through_ray = self.asked = 0
        self.bodies: list[int] = []
        self.reply = [Fetched(0, (b"r",), 1, 0, 1)]
        self.loop = asyncio.get_running_loop()

    async def append(self, queue: str, frames: Any, wait_ms: int) -> list[Appended]:
        self.bodies += [len(body) for _, _, body in frames]
        await asyncio.sleep(wait_ms / 1_000)
        return [Appended(partition, 0, 1) for partition, _, _ in frames]

    async def fetch(self, *arguments: Any) -> list[Fetched]:
        return self.reply

    def handle(self) -> Any:
        """As Ray's handle of the buffer."""
        return SimpleNamespace(
            line=SimpleNamespace(remote=lambda *way: self._then(self._line(*way))),
            append=SimpleNamespace(remote=lambda *given: self._by_ray(self.append(*given))),
            fetch=SimpleNamespace(remote=lambda *given: self._by_ray(self.fetch(*given))),
        )

    async def _line(self, network: bool = False, much: bool = False) -> LinkOffer | None:
        self.asked += network
        return await (self.server.open_network if network else self.server.open)(much=much)

    def _by_ray(self, work: Any) -> Any:
        self.through_ray += 1
        return self._then(work)

    def _then(self, work: Any) -> Any:
        coming: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return SimpleNamespace(
            future=lambda: coming, __await__=lambda: asyncio.wrap_future(coming).__await__()
        )

    async def offer(self, *, much: bool = False) -> LinkOffer:
        """Leave to connect once."""
        found = await self.server.open_network(much=much)
        assert found is not None
        return found

    async def line(self, hears: Any = None, *, much: bool = False) -> SocketClient:
        """A line that is welcome."""
        offer = await self.offer(much=much)
        link = BufferLink(None, hears or self.loop, LinkWay.MUCH if much else LinkWay.SMALL)
        connected = link._connected(offer)
        assert connected is not None
        link.take(connected, offer)
        made = link.socket
        assert made is not None
        await until(lambda: made.welcome or made.broken)
        return made


def run(test: Test) -> None:
    async def main() -> None:
        far = Far()
        try:
            await asyncio.wait_for(test(far), 60)
        finally:
            far.server.close()
            await asyncio.sleep(0.05)

    asyncio.run(main())


def frames(body: bytes = b"b") -> Any:
    return [(3, b"h" * 80, body)]


async def soon(answer: Any) -> Any:
    found = asyncio.wrap_future(answer) if isinstance(answer, Future) else answer
    return await asyncio.wait_for(found, WAIT_S)


async def appended(client: BufferClient, body: bytes = b"b") -> Any:
    reply = client.append("q", frames(body), 0, size_bytes=len(body))
    return await soon(reply.future())


async def raw(offer: LinkOffer) -> socket.socket:
    """A connection in the hand of the test."""
    made = tcp_socket.begin_to_connect(offer.address)
    assert made is not None
    await asyncio.get_running_loop().sock_sendall(made, b"")
    return made


async def over(stranger: socket.socket) -> bool:
    """Whether the other end hangs up without a word."""
    try:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.sock_recv(stranger, 1), WAIT_S) == b""
    except ConnectionError:
        return True


def use_tls(patch: pytest.MonkeyPatch, made: Certificates, who: str = "server") -> None:
    for name, value in (
        ("RAY_USE_TLS", "1"),
        ("RAY_TLS_SERVER_CERT", made[f"{who}.pem"]),
        ("RAY_TLS_SERVER_KEY", made[f"{who}.key"]),
        ("RAY_TLS_CA_CERT", made["ca.pem"]),
    ):
        patch.setenv(name, value)
