"""Links over TCP: the same calls as over a local socket, from a node that is not the buffer's."""

from __future__ import annotations

import asyncio
import gc
import socket
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.buffer import (
    socket_server,
    tcp_socket,
)
from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.actors.buffer.buffer_client import CALL_BYTES_MAX, BufferClient
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.data import link_plan
from pxrs_ray.data.link_door import LinkOffer, greeting
from pxrs_ray.data.link_messages import VERSION, LinkKind, append_call, ping
from pxrs_ray.data.link_ports import LinkPorts
from pxrs_ray.data.protocol import Appended, BufferGrant, Fetched
from tests.actors.conditions import until
from tests.actors.far_buffer import (
    HERE,
    LARGE,
    WAIT_S,
    Far,
    appended,
    frames,
    raw,
    run,
    soon,
    use_tls,
)
from tests.actors.hearing import hearing
from tests.contract.certificates import Certificates

pytestmark = pytest.mark.usefixtures("far_away")


# ---- what goes over it


@pytest.mark.parametrize("tls", [False, True])
def test_producers_take_a_link_for_little_and_one_for_much(
    tls: bool, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tls:
        use_tls(monkeypatch, certificates)

    async def test(far: Far) -> None:
        client = BufferClient(far.handle(), hearing())
        while client._line() is None:
            assert await appended(client) == [Appended(3, 0, 1)]
        by_ray = far.through_ray
        assert by_ray >= 3, "Ray carries what comes before there is a link"
        assert await appended(client) == [Appended(3, 0, 1)]
        assert far.through_ray == by_ray
        while client._line(much=True) is None:
            assert await appended(client, LARGE) == [Appended(3, 0, 1)]
        by_ray, far.bodies = far.through_ray, []
        sizes = [16 << 20, 1, CALL_BYTES_MAX + 1]
        got = [asyncio.ensure_future(appended(client, bytes(size))) for size in sizes]
        assert await asyncio.gather(*got) == [[Appended(3, 0, 1)]] * 3
        assert far.through_ray == by_ray, "large ones too"
        assert sorted(far.bodies) == sorted(sizes)
        assert far.server.counts["links"] == 2
        assert far.server.counts["link_calls"] >= 4
        assert await appended(client, bytes(18 << 20)) == [Appended(3, 0, 1)]
        assert far.through_ray == by_ray + 1, "what is too large for a link goes through Ray"
        client.close()
        await until(lambda: far.server.counts["links"] == 0)

    run(test)


def test_what_is_small_does_not_wait_for_what_is_large() -> None:
    async def test(far: Far) -> None:
        small, much = await far.line(hearing()), await far.line(hearing(), much=True)
        large = [much.call("append", "q", frames(bytes(8 << 20)), 0) for _ in range(6)]
        await soon(small.call("append", "q", frames(), 0))
        assert not all(answer.done() for answer in large), "it has overtaken them"
        for answer in large:
            assert await soon(answer) == [Appended(3, 0, 1)]
        small.close()
        much.close()

    run(test)


@pytest.mark.parametrize("tls", [False, True])
def test_fetchers_take_a_link_whatever_the_size(
    tls: bool, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tls:
        use_tls(monkeypatch, certificates)

    async def test(far: Far) -> None:
        client = BufferClient(far.handle(), far.loop)

        async def fetched() -> Any:
            return await asyncio.wait_for(client.fetch("q", "g", {0: (1, 0)}), WAIT_S)

        while client._here.line() is None and client._much.line() is None:
            assert await fetched() == far.reply
        by_ray = far.through_ray
        for size in (1, 300_000, 6 << 20, 1):
            far.reply = [Fetched(0, (b"r" * size, b"s"), 1, 0, 1)]
            assert await fetched() == far.reply
        assert far.through_ray == by_ray
        assert client._small.socket is None, "a reader needs one link"
        client.close()

    run(test)


@pytest.mark.parametrize("on_loop", [False, True])
def test_both_ends_send_at_once_and_find_who_is_gone(on_loop: bool) -> None:
    async def test(far: Far) -> None:
        line = await far.line(far.loop if on_loop else hearing())
        (end,) = far.server.ends
        theirs = end._transport.get_extra_info("socket")
        for found in (line._socket, theirs):
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 3
            gone_ms = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert gone_ms == tcp_socket.GONE_MS
        line.close()

    run(test)


# ---- where, and whether


def test_the_ports_of_the_option_are_taken_and_none_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_server, "TELL_EVERY_S", 0.0)

    async def test(far: Far) -> None:
        with socket.create_server((HERE, 0)) as free:
            port = free.getsockname()[1]
            far.server.allow(LinkPorts(port, port))
            assert await far.server.open_network(much=False) is None, "it is taken"
        assert (await far.offer()).address == f"{HERE}:{port}"
        bound = far.server._doors[True][0].sockets[0].getsockname()[0]
        assert bound == HERE, "never on every address"

    run(test)


def test_switched_off_links_end_and_ray_carries_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_plan, "ASK_AGAIN_S", 0.1)
    monkeypatch.setattr(link_plan, "PAUSE_FIRST_S", 0.1)

    async def test(far: Far) -> None:
        client = BufferClient(far.handle(), hearing())
        while client._line() is None:
            assert await appended(client) == [Appended(3, 0, 1)]
        line = client._small.socket
        assert line is not None
        far.server.allow(None)
        await until(lambda: line.broken and not far.server.ends)
        by_ray = far.through_ray
        for _ in range(5):
            assert await appended(client) == [Appended(3, 0, 1)]
            await asyncio.sleep(0.05)
        assert far.through_ray == by_ray + 5 and client._line() is None
        far.server.allow(LinkPorts())
        while client._line() is None:
            assert await appended(client) == [Appended(3, 0, 1)]
            await asyncio.sleep(0.01)
        client.close()

    run(test)


def test_a_buffer_without_an_address_opens_no_door() -> None:
    async def test(far: Far) -> None:
        far.server._address = str
        assert await far.server.open_network(much=False) is None
        assert True not in far.server._doors

    run(test)


def test_a_ping_is_answered_beside_calls_that_wait() -> None:
    async def test(far: Far) -> None:
        offer = await far.offer()
        caller = await raw(offer)
        await far.loop.sock_sendall(caller, greeting(offer)[0])
        await far.loop.sock_recv(caller, 100)
        waits = append_call(1, "q", frames(), 60_000)
        await far.loop.sock_sendall(caller, waits * 2 + ping(7))
        said = await asyncio.wait_for(far.loop.sock_recv(caller, 100), WAIT_S)
        assert said[1] == LinkKind.PONG
        caller.close()

    run(test)


def test_nothing_of_the_secrets_is_shown() -> None:
    offer = LinkOffer("10.0.0.1:5", VERSION, b"ticket-of-16-byt", b"k" * 32)
    assert "ticket" not in repr(offer) and "kkkk" not in repr(offer)


def test_a_former_coordinator_says_nothing_about_ports(tmp_path: Path) -> None:
    async def main() -> None:
        buffer = Buffer("t", 0, 1, str(tmp_path))
        await buffer.ping(BufferGrant(2, 1, 10_000, link_ports="any"))
        await buffer.ping(BufferGrant(1, 1, 10_000, link_ports="off"))
        assert buffer._line._ports == LinkPorts()
        await buffer.ping(BufferGrant(2, 1, 10_000, link_ports="off"))
        assert buffer._line._ports is None
        await buffer.close()

    asyncio.run(main())


def test_a_thread_takes_a_link_for_reading_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(far: Far) -> None:
        client = BufferClient(far.handle(), hearing())

        async def fetched() -> Any:
            return await soon(client.fetch("q", "g", {0: (1, 0)}).future())

        while client._much.line() is None:
            assert await fetched() == far.reply
        by_ray = far.through_ray
        far.reply = [Fetched(0, (b"r" * (4 << 20),), 1, 0, 1)]
        assert await fetched() == far.reply
        assert far.through_ray == by_ray
        monkeypatch.setattr(far, "reply", None)
        assert await fetched() is None, "what the link does not bring, Ray brings"
        assert far.through_ray == by_ray + 1
        line = client._much.socket
        assert line is not None
        far.reply = [Fetched(0, (b"r",), 1, 0, 1)]
        coming = client.fetch("q", "g", {0: (1, 0)}).future()
        line.close()
        assert await soon(coming) == far.reply, "so it does when the link breaks"
        client.close()

    run(test)


def test_who_forgets_its_clients_leaves_no_link_open() -> None:
    async def test(far: Far) -> None:
        clients = BufferClients("t", {0: far.handle()})
        while clients.of(0)._line() is None:
            assert await appended(clients.of(0)) == [Appended(3, 0, 1)]
        assert far.server.counts["links"] == 1
        del clients
        gc.collect()
        await until(lambda: far.server.counts["links"] == 0)

    run(test)
