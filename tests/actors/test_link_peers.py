"""Links over TCP: who is gone, frozen or hostile is found, and holds no memory."""

from __future__ import annotations

import asyncio
import socket

import pytest

from pxrs_ray.actors.buffer import (
    tcp_socket,
)
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.server_end import MUCH_REPLY_BYTES_MAX
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.data import link_plan, link_room
from pxrs_ray.data.link_door import LinkOffer, greeting
from pxrs_ray.data.link_messages import VERSION, append_call, fetch_call
from pxrs_ray.data.link_room import CALLS_BYTES_MAX
from pxrs_ray.data.protocol import Appended, Fetched
from pxrs_ray.errors import BufferAway
from tests.actors.conditions import until
from tests.actors.far_buffer import (
    HERE,
    Far,
    appended,
    frames,
    over,
    raw,
    run,
    soon,
)
from tests.actors.hearing import hearing

pytestmark = pytest.mark.usefixtures("far_away")


# ---- who is gone, frozen or hostile


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_peer_that_never_proves_itself_is_given_up(
    on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_plan, "WELCOME_S", 0.2)

    async def test(far: Far) -> None:
        deaf = socket.create_server((HERE, 0))
        offer = LinkOffer(f"{HERE}:{deaf.getsockname()[1]}", VERSION, b"t" * 16, b"k" * 32)
        connected = tcp_socket.begin_to_connect(offer.address)
        assert connected is not None
        line = SocketClient(connected, offer, far.loop if on_loop else hearing())
        await until(lambda: line.broken)
        deaf.close()

    run(test)


def test_a_port_that_nobody_listens_on_is_given_up() -> None:
    async def test(far: Far) -> None:
        for hears in (far.loop, hearing()):
            offer = await far.offer()
            far.server.close()
            connected = tcp_socket.begin_to_connect(offer.address)
            if connected is not None:
                line = SocketClient(connected, offer, hears)
                await until(lambda: line.broken)  # noqa: B023

    run(test)


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_frozen_buffer_is_found_and_its_calls_hear_it(
    on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(far: Far) -> None:
        line = await far.line(far.loop if on_loop else hearing())
        monkeypatch.setattr(link_plan, "SILENT_S", 0.2)
        if on_loop:
            line._look()
        (end,) = far.server.ends
        end._transport.pause_reading()
        answer = line.call("append", "q", frames(), 0)
        with pytest.raises(BufferAway):
            await soon(answer)
        assert line.broken

    run(test)


def test_a_link_that_breaks_is_made_anew_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_plan, "ASK_AGAIN_S", 0.3)
    monkeypatch.setattr(link_plan, "PAUSE_FIRST_S", 0.4)

    async def test(far: Far) -> None:
        client = BufferClient(far.handle(), hearing())

        async def linked() -> None:
            while client._line() is None:
                assert await appended(client) == [Appended(3, 0, 1)]

        await linked()
        for pause_s in (0.4, 0.8):
            line, asked = client._small.socket, far.asked
            for end in list(far.server.ends):
                end.hang_up()
            assert line is not None
            await until(lambda: line.broken)  # noqa: B023
            broke_s = far.loop.time()
            assert await appended(client) == [Appended(3, 0, 1)], "Ray carries it meanwhile"
            await linked()
            assert far.loop.time() - broke_s >= 0.7 * pause_s, "no storm of connections"
            assert far.asked <= asked + 2
        client.close()

    run(test)


@pytest.mark.parametrize("much", [False, True])
def test_hostile_lengths_end_a_link_and_hold_no_memory(much: bool) -> None:
    async def test(far: Far) -> None:
        for kind in (1, 2, 3, 65, 0, 255):
            for size in (1 << 25, 1 << 31, (1 << 32) - 1):
                offer = await far.offer(much=much)
                caller = await raw(offer)
                said, proof = greeting(offer)
                await far.loop.sock_sendall(caller, said)
                assert await far.loop.sock_recv(caller, 100) == proof
                head = bytes((VERSION, kind, 0, 0)) + size.to_bytes(4, "little") + bytes(8)
                await far.loop.sock_sendall(caller, head)
                assert await over(caller)
                caller.close()
        assert not far.bodies and far.server.counts["links"] == 0

    run(test)


def test_who_asks_for_much_and_takes_nothing_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_room, "STUCK_S", 1.0)

    async def test(far: Far) -> None:
        far.reply = [Fetched(0, (bytes(6 << 20),), 1, 0, 1)]
        offer = await far.offer(much=True)
        caller = await raw(offer)
        await far.loop.sock_sendall(caller, greeting(offer)[0])
        await far.loop.sock_recv(caller, 100)
        (end,) = far.server.ends
        asking = fetch_call(1, "q", "g", {0: (1, 0)}, 8 << 20, 0, "")
        sending = asyncio.ensure_future(far.loop.sock_sendall(caller, asking * 500))
        most = 0
        while far.server.ends:
            unsaid = sum(map(len, end._unsaid))
            most = max(most, end._transport.get_write_buffer_size() + unsaid)
            await asyncio.sleep(0.01)
        assert 0 < most <= CALLS_BYTES_MAX + MUCH_REPLY_BYTES_MAX + (1 << 20)
        sending.cancel()
        caller.close()

    run(test)


def test_who_calls_without_end_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(far: Far) -> None:
        offer = await far.offer(much=True)
        caller = await raw(offer)
        await far.loop.sock_sendall(caller, greeting(offer)[0])
        await far.loop.sock_recv(caller, 100)
        (end,) = far.server.ends
        waits = append_call(1, "q", frames(bytes(1 << 19)), 60_000)
        sending = asyncio.ensure_future(far.loop.sock_sendall(caller, waits * 200))
        await until(lambda: not end._room.has_room())
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert end._room.size_bytes <= CALLS_BYTES_MAX + (1 << 19)
            assert len(end._waiting) <= 1
        assert not sending.done(), "it waits for the buffer"
        sending.cancel()
        caller.close()

    run(test)
