"""A producer whose buffer has replicas: what one does not answer goes to whoever leads, and nobody
else's messages wait meanwhile. Without Ray."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer import buffer_clients
from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.data.frame import unpack_header
from pxrs_ray.data.protocol import Appended, OutFrame
from pxrs_ray.errors import BufferAway
from pxrs_ray.partitioning import Partitioner
from tests.settings import producer_limits

WAIT_S = 10
# Long after a silent buffer is doubted, and long before an append is given up.
SOON_S = 3.0

Answer = Callable[[], "Future[Any]"]


class Replica:
    """As Ray's handle of a replica: it has no links, and answers appends unless it is silent."""

    def __init__(self, *, answers: bool = True) -> None:
        self.leads = None
        self.answers = answers
        self.asked: list[Future[Any]] = []
        self.messages = 0
        none: Future[Any] = Future()
        none.set_result(None)
        self.line = SimpleNamespace(remote=lambda *_: SimpleNamespace(future=lambda: none))
        self.append = SimpleNamespace(remote=self._append)

    def _append(self, queue: str, frames: list[OutFrame], wait_ms: int) -> Any:
        coming: Future[Any] = Future()
        self.asked.append(coming)
        if self.answers:
            found = []
            for partition, header, _ in frames:
                found.append(Appended(partition, self.messages, unpack_header(header).messages))
                self.messages += unpack_header(header).messages
            coming.set_result(found)
        return SimpleNamespace(future=lambda: coming)


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Callable[[], Any]]]:
    """Who is found, by the buffer's number."""
    found: dict[int, Callable[[], Any]] = {}
    monkeypatch.setattr(buffer_clients, "find_buffer", lambda _, index, *__: found[index]())
    yield found


def producer_of(*handles: Any) -> Producer:
    count = len(handles)
    known = {at: each for at, each in enumerate(handles) if each is not None}
    return Producer("t", "q", count, Partitioner(count), producer_limits(), handles=known)


def test_what_a_silent_replica_does_not_answer_goes_to_whoever_leads(
    find: dict[int, Callable[[], Any]],
) -> None:
    cut_off, leads = Replica(answers=False), Replica()
    find[0] = lambda: leads
    with producer_of(cut_off) as producer:
        assert producer.send(b"k", b"x").result(SOON_S).offset == 0
        assert leads.messages == 1
        # It comes back, and what it says of a call that is over says nothing.
        cut_off.asked[0].set_exception(BufferAway("it was cut off"))
        assert producer.send(b"k", b"x").result(WAIT_S).offset == 1
        assert producer._buffers.of(0).handle is leads


def test_a_leader_that_is_slow_is_waited_for(find: dict[int, Callable[[], Any]]) -> None:
    slow = Replica(answers=False)
    looked = threading.Event()

    def still_leads() -> Any:
        looked.set()
        return slow

    find[0] = still_leads
    with producer_of(slow) as producer:
        sent = producer.send(b"k", b"x")
        assert looked.wait(WAIT_S), "nobody looked who leads"
        time.sleep(0.1)
        assert not sent.done() and len(slow.asked) == 1
        slow.asked[0].set_result([Appended(0, 7, 1)])
        assert sent.result(WAIT_S).offset == 7


def test_nobody_waits_for_a_buffer_that_is_looked_for_but_who_sends_there(
    find: dict[int, Callable[[], Any]],
) -> None:
    there, other = Replica(), Replica()
    is_there = threading.Event()

    def late() -> Any:
        assert is_there.wait(WAIT_S)
        return there

    find[0] = late
    with producer_of(None, other) as producer:
        both = producer.send_batch([b"a", b"b", b"c", b"d"], [b"x"] * 4)
        end_s = time.monotonic() + WAIT_S
        while not other.messages:
            assert time.monotonic() < end_s, "what is sent elsewhere waits"
            time.sleep(0.001)
        assert not there.messages
        is_there.set()
        both.result(WAIT_S)
        assert there.messages and there.messages + other.messages == 4


def test_a_line_to_a_replica_that_broke_has_it_looked_for_who_leads(
    find: dict[int, Callable[[], Any]],
) -> None:
    ended, leads = Replica(answers=False), Replica()
    find[0] = lambda: leads
    with producer_of(ended) as producer:
        sent = producer.send(b"k", b"x")
        ended.asked[0].set_exception(BufferAway("the line to the buffer broke"))
        assert sent.result(SOON_S).offset == 0
        assert len(ended.asked) == 1, "who has ended is asked again"
