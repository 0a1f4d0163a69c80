"""The door of the live page: raw bytes on a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pxrs_ray.dashboard.page_state import PageState
from pxrs_ray.dashboard.server import OWN_HEADER, Server
from pxrs_ray.errors import UsageError
from tests.cli.pictures import buffer_stats, group_status, topology_status
from tests.fuzz.knocking import Give

TOKEN = b"s3cret"


class _Page:
    def look(self) -> PageState:
        return PageState(topology_status(group_status()), {0: buffer_stats()})

    def act(self, action: str, group: str, value: Any) -> str:
        raise UsageError("not here")


class _Pages:
    def names(self) -> list[str]:
        return ["shop"]

    def of(self, topology: str) -> Any:
        return _Page()


@contextmanager
def http() -> Iterator[Give]:
    """Raw bytes on a connection; after each, a call that is right is answered as ever."""
    from aiohttp import web

    loop = asyncio.new_event_loop()
    runner = web.AppRunner(Server(_Pages(), TOKEN.decode(), 0.05).app(), access_log=None)
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    port = loop.run_until_complete(start())

    async def said(data: bytes, wait_s: float) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = b""
        try:
            writer.write(data)
            await writer.drain()
            while part := await asyncio.wait_for(reader.read(1 << 16), wait_s):
                answer += part
        except (TimeoutError, ConnectionError, OSError):
            pass
        finally:
            writer.close()
        return answer

    def give(data: bytes) -> None:
        answer = loop.run_until_complete(said(data, 0.05))
        for line in answer.split(b"\r\n"):
            assert not line.startswith(b"HTTP/1.1 5"), (line, answer[:500])
        assert b"Traceback" not in answer
        right = b"GET / HTTP/1.1\r\nHost: h\r\nCookie: a=b\r\nConnection: close\r\n\r\n"
        answer = loop.run_until_complete(said(right, 5.0))
        assert answer.startswith(b"HTTP/1.1 401"), answer[:200]
        right = right.replace(b"GET / ", b"GET /?token=" + TOKEN + b" ")
        answer = loop.run_until_complete(said(right, 5.0))
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        assert not faults, faults[0]

    try:
        yield give
    finally:
        loop.run_until_complete(runner.cleanup())
        loop.close()


_HEADERS = b"Host: h\r\n" + OWN_HEADER.encode() + b": 1\r\nContent-Type: application/json\r\n"
REQUESTS = tuple(
    b"%s %s?token=%s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s"
    % (method, path, TOKEN, _HEADERS, len(sent), sent)
    for method, path, sent in (
        (b"GET", b"/", b""),
        (b"GET", b"/events", b""),
        (b"POST", b"/actions", b'{"action": "scale", "group": "g", "value": 3}'),
        (b"POST", b"/actions", b'{"action": "seek", "group": "g", "value": "start"}'),
        (b"PUT", b"/app.js", b"x" * 50),
    )
)
