"""A client has one line to its buffer, and closes what it has opened, whoever comes between."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from pxrs_ray.actors.buffer import buffer_clients, local_socket
from pxrs_ray.actors.buffer.answer_poll import AnswerPoll
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.data.link_door import LinkOffer, Tickets
from pxrs_ray.data.link_plan import CALLS_BEFORE_A_LINK


class FakeBuffer:
    """A handle that answers appends, and notes who asks it for a line."""

    def __init__(self) -> None:
        self.asked: list[Future[LinkOffer | None]] = []
        self.sockets: list[socket.socket] = []
        self.line = SimpleNamespace(remote=self._line)
        self.append = SimpleNamespace(remote=lambda *_: SimpleNamespace(future=Future))

    def _line(self, elsewhere: bool, much: bool) -> Any:
        self.asked.append(Future())
        return SimpleNamespace(future=lambda: self.asked[-1])

    def connect(self, address: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.sockets += (ours, theirs)
        return ours

    def offer(self) -> None:
        """Answer the call for a line."""
        self.asked[-1].set_result(Tickets().offer("", 0.0))


class FirstOfAll:
    """A lock before which something happens, once."""

    def __init__(self, first: Callable[[], None]) -> None:
        self._first: Callable[[], None] | None = first
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()


@pytest.fixture
def buffer(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = FakeBuffer()
    monkeypatch.setattr(local_socket, "connect", made.connect)
    yield made
    for each in made.sockets:
        each.close()


def small_calls(client: BufferClient, count: int) -> None:
    for _ in range(count):
        client.append("q", [], 0)


def test_who_has_a_line_when_its_turn_comes_asks_for_no_other(buffer: FakeBuffer) -> None:
    poll = AnswerPoll()
    client = BufferClient(buffer, poll)
    small_calls(client, CALLS_BEFORE_A_LINK + 1)
    assert len(buffer.asked) == 1
    client._here._lock = FirstOfAll(buffer.offer)  # type: ignore[assignment]
    small_calls(client, 1)
    assert client._here.socket is not None and len(buffer.asked) == 1
    client.close()
    poll.close()
    assert buffer.sockets[0].fileno() == -1


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_line_that_comes_after_the_end_is_closed(buffer: FakeBuffer, on_loop: bool) -> None:
    stands_still = SimpleNamespace(call_soon_threadsafe=lambda *_: None)
    poll = AnswerPoll()
    hears: Any = stands_still if on_loop else poll
    for before in (True, False):
        client = BufferClient(buffer, hears)
        small_calls(client, CALLS_BEFORE_A_LINK + 1)
        for step in (client.close, buffer.offer) if before else (buffer.offer, client.close):
            step()
        poll.close()
        assert buffer.sockets[-2].fileno() == -1


def test_what_is_large_asks_for_its_connection_at_once(buffer: FakeBuffer) -> None:
    for asks in (
        lambda client: client.append("q", [], 0, size_bytes=1 << 20),
        lambda client: client.connect(much=True),
    ):
        poll = AnswerPoll()
        client = BufferClient(buffer, poll)
        before = len(buffer.asked)
        assert client.connect() and client.connect(much=True), "first of all where the buffer is"
        buffer.offer()
        assert len(buffer.asked) == before + 1
        line = client._here.socket
        assert line is not None
        buffer.sockets[-1].sendall(line._expected)
        assert line.receive() and line.welcome
        asks(client)
        assert len(buffer.asked) == before + 2 and client._here_much._plan.asking
        client.close()
        poll.close()


def test_a_loop_that_is_closed_takes_no_line(buffer: FakeBuffer) -> None:
    def closed(*_: Any) -> None:
        raise RuntimeError("Event loop is closed")

    hears: Any = SimpleNamespace(call_soon_threadsafe=closed)
    client = BufferClient(buffer, hears)
    small_calls(client, CALLS_BEFORE_A_LINK + 1)
    buffer.offer()
    assert buffer.sockets[0].fileno() == -1


def test_a_buffer_that_is_found_after_the_end_is_called_through_ray(
    buffer: FakeBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = BufferClients("t", None, AnswerPoll())

    def find(topology: str, index: int) -> FakeBuffer:
        clients.close()
        return buffer

    monkeypatch.setattr(buffer_clients, "find_buffer", find)
    small_calls(clients.of(0), CALLS_BEFORE_A_LINK + 2)
    assert not buffer.asked
