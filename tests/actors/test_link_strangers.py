"""Links over TCP: nobody is believed or answered who has not proven who they are."""

from __future__ import annotations

import asyncio
import logging
import socket
from concurrent.futures import Future
from pathlib import Path

import pytest

from pxrs_ray.actors.buffer import (
    socket_server,
    tcp_socket,
)
from pxrs_ray.actors.buffer.buffer_link import BufferLink, LinkWay
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.data import link_room
from pxrs_ray.data.link_door import LinkOffer, greeting
from pxrs_ray.data.link_messages import VERSION, append_call
from pxrs_ray.data.link_tls import TlsFiles
from pxrs_ray.data.protocol import Appended
from tests.actors.conditions import until
from tests.actors.far_buffer import (
    WAIT_S,
    Far,
    frames,
    over,
    raw,
    run,
    soon,
    use_tls,
)
from tests.actors.hearing import hearing
from tests.contract.certificates import Certificates, make_certificates

pytestmark = pytest.mark.usefixtures("far_away")


# ---- who may


def test_nobody_is_answered_who_has_no_ticket_for_this_door(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket_server, "TELL_EVERY_S", 0.0)

    async def test(far: Far) -> None:
        offer = await far.offer()
        here = await far.server.open()
        assert here is not None
        wrong = [
            greeting(LinkOffer("", VERSION, offer.ticket, b"w" * 32))[0],
            greeting(LinkOffer("", VERSION, b"t" * 16, offer.key))[0],
            greeting(LinkOffer("", VERSION + 1, offer.ticket, offer.key))[0],
            greeting(here)[0],
            append_call(1, "q", frames(), 0),
            b"GET / HTTP/1.1\r\n\r\n" + bytes(100),
        ]
        for said in wrong:
            stranger = await raw(offer)
            await far.loop.sock_sendall(stranger, said + append_call(1, "q", frames(), 0))
            assert await over(stranger)
            stranger.close()
        assert not far.bodies and far.server.counts["strangers_refused"] == len(wrong)
        said, proof = greeting(offer)
        for answer in (proof, b""):
            caller = await raw(offer)
            await far.loop.sock_sendall(caller, said)
            if answer:
                assert await far.loop.sock_recv(caller, 100) == answer
            else:
                assert await over(caller), "what was overheard opens nothing"
            caller.close()

    run(test)


def test_strangers_of_the_network_take_no_room_of_this_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_room, "STRANGERS_MAX", 3)
    monkeypatch.setattr(link_room, "GREETING_WAIT_S", 0.5)

    async def test(far: Far) -> None:
        offer, here = await far.offer(), await far.server.open()
        assert here is not None
        strangers = [await raw(offer) for _ in range(4)]
        await until(lambda: far.server.counts["strangers_refused"] == 1)
        near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        near.setblocking(False)
        near.connect(here.address)
        said, proof = greeting(here)
        await far.loop.sock_sendall(near, said)
        assert await asyncio.wait_for(far.loop.sock_recv(near, 100), WAIT_S) == proof
        for stranger in strangers:
            assert await over(stranger), "each is hung up on in time"
            stranger.close()
        near.close()

    run(test)


def test_an_end_of_another_version_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def test(far: Far) -> None:
        offer = await far.offer()
        newer = LinkOffer(offer.address, VERSION + 1, offer.ticket, offer.key)
        assert BufferLink(None, None, LinkWay.SMALL)._connected(newer) is None
        stranger = await raw(offer)
        await far.loop.sock_sendall(stranger, greeting(newer)[0])
        assert await over(stranger)
        stranger.close()

    with caplog.at_level(logging.WARNING):
        run(test)
    told = f"a buffer speaks version {VERSION + 1} of links and this process {VERSION}"
    assert told in caplog.text
    assert f"a caller speaks version {VERSION + 1} of links, and this is {VERSION}" in caplog.text


# ---- TLS


def test_with_tls_nothing_is_read_in_plain(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_tls(monkeypatch, certificates)

    async def test(far: Far) -> None:
        offer = await far.offer()
        assert offer.fingerprint
        stranger = await raw(offer)
        await far.loop.sock_sendall(stranger, greeting(offer)[0] + append_call(1, "q", [], 0))
        got = b""
        while True:
            try:
                part = await asyncio.wait_for(far.loop.sock_recv(stranger, 100), WAIT_S)
            except ConnectionError:
                break
            if not part:
                break
            got += part
        assert greeting(offer)[1] not in got and len(got) < 20, "an alert of TLS at most"
        stranger.close()
        line = await far.line(hearing())
        assert await soon(line.call("append", "q", frames(), 0)) == [Appended(3, 0, 1)]
        line.close()

    run(test)


def test_with_tls_both_ends_show_a_certificate_of_the_cluster(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = make_certificates(tmp_path)
    use_tls(monkeypatch, certificates)

    async def test(far: Far) -> None:
        async def line_of(who: dict[str, str]) -> SocketClient:
            offer = await far.offer()
            with pytest.MonkeyPatch.context() as patch:
                for name, value in who.items():
                    patch.setenv(name, value)
                link = BufferLink(None, far.loop, LinkWay.SMALL)
                connected = link._connected(offer)
                assert connected is not None
                link.take(connected, offer)
            made = link.socket
            assert made is not None
            await until(lambda: made.welcome or made.broken)
            return made

        certificate, key = others["client.pem"], others["client.key"]
        foreign = {"RAY_TLS_SERVER_CERT": certificate, "RAY_TLS_SERVER_KEY": key}
        assert (await line_of(foreign)).broken, "the buffer lets no foreign certificate in"
        assert (await line_of({"RAY_TLS_CA_CERT": others["ca.pem"]})).broken, "nor the caller"
        certificate, key = certificates["client.pem"], certificates["client.key"]
        member = {"RAY_TLS_SERVER_CERT": certificate, "RAY_TLS_SERVER_KEY": key}
        good = await line_of(member)
        assert good.welcome
        good.close()

    run(test)


def test_another_member_of_the_cluster_cannot_stand_in_between(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_tls(monkeypatch, certificates)

    async def test(far: Far) -> None:
        offer = await far.offer()
        other = TlsFiles(
            certificates["client.pem"], certificates["client.key"], certificates["ca.pem"]
        )
        far.server.context = other.context(server_side=True)
        connected = tcp_socket.begin_to_connect(offer.address)
        link = BufferLink(None, far.loop, LinkWay.SMALL)
        assert connected is not None
        link.take(connected, offer)
        made = link.socket
        assert made is not None
        await until(lambda: made.broken)
        assert not made.welcome

    run(test)


@pytest.mark.parametrize("at_the_caller", [False, True])
def test_tls_at_one_end_alone_is_told_of_and_makes_no_link(
    at_the_caller: bool,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(far: Far) -> None:
        if not at_the_caller:
            use_tls(monkeypatch, certificates)
        offer = await far.offer()
        monkeypatch.delenv("RAY_USE_TLS", raising=False)
        if at_the_caller:
            use_tls(monkeypatch, certificates)
        link = BufferLink(None, far.loop, LinkWay.SMALL)
        done: Future[LinkOffer | None] = Future()
        done.set_result(offer)
        link._told(done)
        assert link.socket is None

    run(test)
    assert "one end uses TLS and the other does not" in caplog.text


def test_files_that_are_not_there_make_no_link_and_are_told_of(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_tls(monkeypatch, certificates)
    for missing in ("", "/nowhere/at/all", certificates["server.key"]):
        monkeypatch.setenv("RAY_TLS_SERVER_CERT", missing)

        async def test(far: Far) -> None:
            assert await far.server.open_network(much=False) is None

        run(test)
    assert caplog.text.count("no links between nodes") == 3
    assert "RAY_TLS_SERVER_CERT" in caplog.text
