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
from pxrs_ray.actors.buffer.local_socket import connect
from pxrs_ray.actors.buffer.server_end import MUCH_REPLY_BYTES_MAX, REPLY_BYTES_MAX
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.data import link_plan, link_room
from pxrs_ray.data.link_door import LinkOffer, Tickets, greeting
from pxrs_ray.data.link_messages import appended_answer, ping, pong
from pxrs_ray.data.protocol import Appended, Fetched, QueueSpec, Refused
from pxrs_ray.errors import BufferAway, LogError, NotFound, ProtocolError, SequenceGap
from tests.actors.conditions import until
from tests.actors.hearing import hearing
from tests.leases import let_serve
from tests.logs import wire
from tests.settings import log_limits

WAIT_S = 20
LONG_MS = 20_000
POSITIONS = {0: (1, 0), 2: (1, 0)}
Use = Callable[[Buffer, LinkOffer], Awaitable[None]]


def use(folder: Path, test: Use) -> None:
    """Run a test with a buffer that holds partitions 0 and 2, and leave to connect to it."""

    async def run() -> None:
        buffer = Buffer("t", 0, 2, str(folder))
        try:
            await buffer.open(QueueSpec("q", 3, log_limits()), {}, make=True)
            await let_serve(buffer)
            offer, other = await buffer.line(), await buffer.line()
            assert offer is not None and other is not None
            assert offer.address == other.address, "one name for all"
            assert offer.ticket != other.ticket and offer.key != other.key
            await asyncio.wait_for(test(buffer, offer), 60)
        finally:
            await buffer.close()

    asyncio.run(run())


def connected(offer: LinkOffer) -> socket.socket:
    found = connect(offer.address)
    assert found is not None
    return found


async def line_to(buffer: Buffer, on_loop: bool = False) -> SocketClient:
    """A line for threads, or for this event loop, which is welcome."""
    offer = await buffer.line()
    assert offer is not None
    hears = asyncio.get_running_loop() if on_loop else hearing()
    line = SocketClient(connected(offer), offer, hears)
    await until(lambda: line.welcome)
    return line


async def lines(buffer: Buffer) -> tuple[SocketClient, SocketClient]:
    """A line for threads, and one for this event loop; each ends with the buffer, if not before."""
    return await line_to(buffer), await line_to(buffer, on_loop=True)


def call(line: SocketClient, *arguments: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(line.call(*arguments))


def test_appends_and_fetches_meet(tmp_path: Path) -> None:
    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        line, reading = await lines(buffer)
        coming = reading.call("fetch", "q", "g", POSITIONS, 1 << 20, LONG_MS, "")
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


def test_an_exception_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        line, reading = await lines(buffer)

        def fails(*arguments: Any) -> Any:
            raise KeyError("by accident")

        looking = {0: (1, 0), 1: (1, 0)}
        (refused,) = await reading.call("fetch", "q", "g", looking, 1 << 20, 0, "")
        assert isinstance(refused, Refused) and isinstance(refused.error, NotFound)
        for place in ("_append_at_once", "_append_round"):
            monkeypatch.setattr(buffer, place, fails)
            with pytest.raises(LogError, match="by accident"):
                await call(line, "append", "q", [(0, *wire([b"x"], 0))], 0)
            monkeypatch.undo()
            monkeypatch.setattr(buffer._writer, "at_once", lambda *_: False)
        monkeypatch.undo()
        for nonsense in ([0], [(-1, b"", b"")], [(0, b"", b"x" * (2 << 20))]):
            with pytest.raises(ProtocolError):
                line.call("append", "q", nonsense, 0)
        assert await call(line, "append", "q", [], 0) == [], "the line goes on"
        line.close()
        reading.close()

    use(tmp_path, test)


def test_calls_of_a_line_that_breaks_are_told(tmp_path: Path) -> None:
    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        line, reading = await lines(buffer)
        waiting = [
            call(line, "append", "q", [(0, *wire([b"too early"], 7))], LONG_MS),
            reading.call("fetch", "q", "g", POSITIONS, 1 << 20, LONG_MS, ""),
        ]
        counts = buffer._counts
        await until(lambda: counts["appends_waiting"] + counts["fetches_waiting"] == 2)
        buffer._line.close()
        for answer in waiting:
            with pytest.raises(BufferAway):
                await asyncio.wait_for(answer, WAIT_S)
        assert line.broken and reading.broken
        for answer in (
            call(line, "append", "q", [], 0),
            reading.call("fetch", "q", "g", {}, 1, 0, ""),
        ):
            with pytest.raises(BufferAway):
                await asyncio.wait_for(answer, WAIT_S)
        assert connect(offer.address) is None, "nobody listens there any more"

    use(tmp_path, test)


def test_nothing_of_another_user_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        stranger = connected(offer)
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        assert connect(offer.address) is None
        line = SocketClient(stranger, offer, hearing())
        with pytest.raises(BufferAway):
            await asyncio.wait_for(call(line, "append", "q", [(0, *wire([b"x"], 0))], 0), WAIT_S)
        assert buffer._counts["appends"] == 0

    use(tmp_path, test)


def test_nonsense_ends_a_line_and_nothing_else(tmp_path: Path) -> None:
    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        line, other = await lines(buffer)
        loop = asyncio.get_running_loop()
        other._hears.remove_reader(other._socket)  # type: ignore[union-attr]
        for byte in b"\xff" * 16:
            await loop.sock_sendall(other._socket, bytes([byte]))
        assert await asyncio.wait_for(loop.sock_recv(other._socket, 1), WAIT_S) == b"", "hung up"
        other.close()
        assert await call(line, "append", "q", [], 0) == []
        line.close()

    use(tmp_path, test)


def test_a_stranger_is_told_nothing_and_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_room, "GREETING_WAIT_S", 0.2)
    monkeypatch.setattr(link_room, "STRANGERS_MAX", 3)

    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        loop = asyncio.get_running_loop()
        line = await line_to(buffer)
        said_by = [(said, connected(offer)) for said in (b"", b"PXLK", b"x" * 70, b"y" * 9_000)]
        for said, stranger in [*said_by, (b"", connected(offer))]:
            stranger.setblocking(False)
            try:
                await loop.sock_sendall(stranger, said)
                assert await asyncio.wait_for(loop.sock_recv(stranger, 1), WAIT_S) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
            stranger.close()
        await until(lambda: len(buffer._line.ends) == 1)
        assert await call(line, "append", "q", [], 0) == [], "the others work on"
        line.close()

    use(tmp_path, test)


def test_a_greeting_that_was_overheard_opens_nothing(tmp_path: Path) -> None:
    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        loop = asyncio.get_running_loop()
        said, expected = greeting(offer)
        for welcome in (expected, b""):
            caller = connected(offer)
            caller.setblocking(False)
            await loop.sock_sendall(caller, said)
            assert await asyncio.wait_for(loop.sock_recv(caller, 100), WAIT_S) == welcome
            caller.close()

    use(tmp_path, test)


def test_an_answer_that_nobody_understands_breaks_the_line() -> None:
    async def run() -> None:
        for said in (b"\x03\0\0\0abc" + bytes(25), None):
            ours, theirs = socket.socketpair()
            offer = Tickets().offer("", 0)
            line = SocketClient(ours, offer, hearing())
            answer = call(line, "append", "q", [], 0)
            if said is None:  # welcome, and an answer to what nobody has asked
                said = line._expected + b"".join(appended_answer(77, []))
            theirs.sendall(said)
            with pytest.raises(BufferAway):
                await asyncio.wait_for(answer, WAIT_S)
            assert line.broken
            theirs.close()

    asyncio.run(run())


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_buffer_that_is_frozen_is_found(on_loop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_plan, "SILENT_S", 0.2)

    async def run() -> None:
        ours, theirs = socket.socketpair()
        hears = asyncio.get_running_loop() if on_loop else hearing()
        line = SocketClient(ours, Tickets().offer("", 0), hears)
        theirs.sendall(line._expected)
        await until(lambda: line.welcome)
        answer = line.call("append", "q", [], 0)
        await until(lambda: line._life._asked)
        theirs.sendall(pong(1))
        await until(lambda: not line._life._asked)
        assert not line.broken, "it has given a sign of life"
        await until(lambda: line.broken and answer.done())
        assert isinstance(answer.exception(), BufferAway)
        theirs.close()

    asyncio.run(run())


def test_a_caller_who_takes_no_answers_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_room, "STUCK_S", 0.2)

    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        loop = asyncio.get_running_loop()
        caller = connected(offer)
        caller.setblocking(False)
        await loop.sock_sendall(caller, greeting(offer)[0])
        await until(lambda: bool(buffer._line.ends))
        (end,) = buffer._line.ends
        asking = asyncio.ensure_future(loop.sock_sendall(caller, ping(1) * 1_000_000))
        await until(lambda: not buffer._line.ends)
        assert end._transport.get_write_buffer_size() == 0
        asking.cancel()
        caller.close()

    use(tmp_path, test)


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
        if len(arguments) == 2:
            return _Named(self._buffer, *arguments)
        self.fetches += 1
        return asyncio.ensure_future(self._buffer.fetch(*arguments))


class _Named:
    """A buffer's offer of a line, on its way as Ray brings it: to a thread."""

    def __init__(self, buffer: Buffer, network: bool, much: bool) -> None:
        coming = buffer.line(network, much)
        self._coming = asyncio.run_coroutine_threadsafe(coming, asyncio.get_running_loop())

    def future(self) -> Future[LinkOffer | None]:
        return self._coming


def test_fetching_has_a_line_for_little_one_for_much_and_ray_for_more(tmp_path: Path) -> None:
    async def test(buffer: Buffer, offer: LinkOffer) -> None:
        handle = RayLike(buffer)
        fetching = BufferClient(handle, asyncio.get_running_loop())
        await buffer.append("q", [(0, *wire([b"x"], 0))])

        async def offsets(at: int, partition: int = 0) -> list[int]:
            found = await fetching.fetch("q", "g", {partition: (1, at)}, 1 << 20, 0)
            return [part.next_offset for part in found if isinstance(part, Fetched)]

        async def through_ray(at: int, end: int, partition: int = 0) -> bool:
            before = handle.fetches
            assert await offsets(at, partition) == [end]
            return handle.fetches > before

        while fetching._here.line() is None:
            assert await offsets(0) == [1]
        assert not await through_ray(0, 1), "little goes over the line"
        await buffer.append("q", [(0, *wire([b"y" * (REPLY_BYTES_MAX + 1)], 1))])
        assert await through_ray(1, 2), "it is not known yet how much there is"
        while fetching._here_much.line() is None:
            assert await offsets(1) == [2]
        assert not await through_ray(1, 2), "much has a line of its own"
        assert fetching._line() is fetching._here.socket
        assert fetching._line(much=True) is fetching._here_much.socket
        await buffer.append("q", [(2, *wire([b"z" * (MUCH_REPLY_BYTES_MAX + 1)], 0))])
        assert await through_ray(0, 1, 2), "more comes through Ray"
        assert await through_ray(0, 1, 2), "and is expected where it was"
        assert await through_ray(1, 2) and not await through_ray(1, 2)
        buffer._line.close()
        for line in (fetching._here.socket, fetching._here_much.socket):
            assert line is not None
            await until(lambda line=line: line.broken)  # type: ignore[misc]
        assert await through_ray(1, 2), "without a line Ray carries everything"
        fetching.close()

    use(tmp_path, test)
