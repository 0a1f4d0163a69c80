"""Lines to a buffer, past Ray: what they carry, and what becomes of calls when they break."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.local_socket import REPLY_BYTES_MAX, SocketClient, connect
from pxrs_ray.data.protocol import Appended, Fetched, QueueSpec, Refused
from pxrs_ray.errors import BufferAway, SequenceGap
from tests.actors.conditions import until
from tests.leases import let_serve
from tests.logs import wire
from tests.settings import log_limits

WAIT_S = 20
LONG_MS = 20_000
POSITIONS = {0: (1, 0), 2: (1, 0)}
Use = Callable[[Buffer, str], Awaitable[None]]


def use(folder: Path, test: Use) -> None:
    """Run a test with a buffer that holds partitions 0 and 2, and the name of its lines."""

    async def run() -> None:
        buffer = Buffer("t", 0, 2, str(folder))
        try:
            await buffer.open(QueueSpec("q", 3, log_limits()), {}, make=True)
            await let_serve(buffer)
            name = await buffer.line()
            assert name == await buffer.line(), "one name for all"
            await asyncio.wait_for(test(buffer, name), 60)
        finally:
            await buffer.close()

    asyncio.run(run())


def connected(name: str) -> socket.socket:
    found = connect(name)
    assert found is not None
    return found


async def lines(name: str) -> tuple[SocketClient, SocketClient]:
    """A line for threads, and one for this event loop; each ends with the buffer, if not before."""
    loop = asyncio.get_running_loop()
    return SocketClient(connected(name)), SocketClient(connected(name), loop)


def call(line: SocketClient, *arguments: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(line.call(*arguments))


def test_appends_and_fetches_meet(tmp_path: Path) -> None:
    async def test(buffer: Buffer, name: str) -> None:
        line, reading = await lines(name)
        coming = reading.call("fetch", "q", "g", POSITIONS, 1 << 20, LONG_MS)
        frames = [(2, *wire([b"x"], 0)), (2, *wire([b"y" * 100_000], 2))]
        appended, gap = await call(line, "append", "q", frames, 0)
        assert appended == Appended(2, 0, 1)
        assert isinstance(gap, Refused) and isinstance(gap.error, SequenceGap)
        assert gap.expected_sequence == 1
        (fetched,) = await asyncio.wait_for(coming, WAIT_S)
        assert isinstance(fetched, Fetched)
        assert (fetched.partition, fetched.next_offset) == (2, 1)
        several = [call(line, "append", "q", [(0, *wire([b"%d" % s], s))], LONG_MS) for s in (1, 0)]
        answers = [answer for (answer,) in await asyncio.gather(*several)]
        assert [answer.base_offset for answer in answers] == [1, 0]
        line.close()
        reading.close()

    use(tmp_path, test)


def test_an_exception_is_the_callers(tmp_path: Path) -> None:
    async def test(buffer: Buffer, name: str) -> None:
        line, reading = await lines(name)
        for answer in (call(line, "append", "q", [0], 0), reading.call("fetch", "q", "g", 5)):
            with pytest.raises(TypeError):
                await asyncio.wait_for(answer, WAIT_S)
        assert await call(line, "append", "q", [], 0) == [], "the line goes on"
        line.close()
        reading.close()

    use(tmp_path, test)


def test_calls_of_a_line_that_breaks_are_told(tmp_path: Path) -> None:
    async def test(buffer: Buffer, name: str) -> None:
        line, reading = await lines(name)
        waiting = [
            call(line, "append", "q", [(0, *wire([b"too early"], 7))], LONG_MS),
            reading.call("fetch", "q", "g", POSITIONS, 1 << 20, LONG_MS),
        ]
        counts = buffer._counts
        await until(lambda: counts["appends_waiting"] + counts["fetches_waiting"] == 2)
        buffer._line.close()
        for answer in waiting:
            with pytest.raises(BufferAway):
                await asyncio.wait_for(answer, WAIT_S)
        assert line.broken and reading.broken
        for answer in (call(line, "append", "q", [], 0), reading.call("fetch")):
            with pytest.raises(BufferAway):
                await asyncio.wait_for(answer, WAIT_S)
        assert connect(name) is None, "nobody listens there any more"

    use(tmp_path, test)


def test_nothing_of_another_user_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(buffer: Buffer, name: str) -> None:
        stranger = connected(name)
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        assert connect(name) is None
        line = SocketClient(stranger)
        with pytest.raises(BufferAway):
            await asyncio.wait_for(call(line, "append", "q", [(0, *wire([b"x"], 0))], 0), WAIT_S)
        assert buffer._counts["appends"] == 0

    use(tmp_path, test)


def test_nonsense_ends_a_line_and_nothing_else(tmp_path: Path) -> None:
    async def test(buffer: Buffer, name: str) -> None:
        line, vandal = SocketClient(connected(name)), connected(name)
        vandal.setblocking(False)
        loop = asyncio.get_running_loop()
        for byte in b"\xff\xff\xff\xff":
            await loop.sock_sendall(vandal, bytes([byte]))
        assert await asyncio.wait_for(loop.sock_recv(vandal, 1), WAIT_S) == b"", "hung up"
        vandal.close()
        assert await call(line, "append", "q", [], 0) == []
        line.close()

    use(tmp_path, test)


def test_an_answer_that_nobody_understands_breaks_the_line() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        line = SocketClient(ours)
        answer = call(line, "append", "q", [], 0)
        theirs.sendall(b"\x03\0\0\0abc")
        with pytest.raises(BufferAway):
            await asyncio.wait_for(answer, WAIT_S)
        assert line.broken
        theirs.close()

    asyncio.run(run())


class RayLike:
    """A handle whose calls reach the buffer as calls through Ray do; counts the fetches."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.fetches = 0

    @property
    def line(self) -> RayLike:
        return self

    fetch = line

    def remote(self, *arguments: Any) -> Any:
        if not arguments:
            return _Named(self._buffer)
        self.fetches += 1
        return asyncio.ensure_future(self._buffer.fetch(*arguments))


class _Named:
    """The name of a buffer's lines, on its way as Ray brings it: to a thread."""

    def __init__(self, buffer: Buffer) -> None:
        self._coming = asyncio.run_coroutine_threadsafe(buffer.line(), asyncio.get_running_loop())

    def future(self) -> Future[str]:
        return self._coming


def test_fetching_takes_the_line_for_little_and_ray_for_much(tmp_path: Path) -> None:
    async def test(buffer: Buffer, name: str) -> None:
        handle = RayLike(buffer)
        fetching = BufferClient(handle, asyncio.get_running_loop(), sockets=True)
        await buffer.append("q", [(0, *wire([b"x"], 0))])

        async def offsets(at: int) -> list[int]:
            found = await fetching.fetch("q", "g", {0: (1, at)}, 1 << 20, 0)
            return [part.next_offset for part in found if isinstance(part, Fetched)]

        while fetching._socket is None:
            assert await offsets(0) == [1]
        through_ray = handle.fetches
        assert await offsets(0) == [1]
        assert handle.fetches == through_ray, "little goes over the line"
        await buffer.append("q", [(0, *wire([b"y" * (REPLY_BYTES_MAX + 1)], 1))])
        assert await offsets(1) == [2]
        assert handle.fetches == through_ray + 1, "much comes through Ray"
        assert await offsets(2) == []
        assert handle.fetches == through_ray + 2, "and more is expected where much was"
        assert await offsets(0) == [2]
        assert handle.fetches == through_ray + 3, "asked over the line, answered through Ray"
        buffer._line.close()
        line = fetching._socket
        assert line is not None
        await until(lambda: line.broken)
        assert await offsets(0) == [2], "without a line Ray carries everything"
        fetching.close()

    use(tmp_path, test)
