"""A thread that is busy between its sends takes the answers itself, and waits for no other one."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer import answer_poll
from pxrs_ray.actors.buffer.answer_poll import AnswerPoll, AnswerSource
from pxrs_ray.actors.buffer.buffer_clients import CONNECT_WAIT_S
from pxrs_ray.actors.buffer.socket_server import SocketServer
from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.data.frame import unpack_header
from pxrs_ray.data.protocol import Appended, OutFrame
from pxrs_ray.partitioning import Partitioner
from tests.settings import producer_limits

WAIT_S = 20
MESSAGES = 20


class FakeLog:
    """A buffer with one partition, on a loop and a thread of its own."""

    def __init__(self) -> None:
        self.messages = self.calls = 0
        self.loop = asyncio.new_event_loop()
        self.server = SocketServer({"append": self.append})
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    async def append(self, queue: str, frames: list[OutFrame], wait_ms: int) -> list[Appended]:
        answers = []
        for partition, header, _ in frames:
            count = unpack_header(header).messages
            answers.append(Appended(partition, self.messages, count))
            self.messages += count
        self.calls += 1
        return answers

    def on_loop(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def handle(self) -> Any:
        """As Ray's handle of the buffer: it carries the calls that come before there is a line."""
        line = SimpleNamespace(remote=lambda elsewhere, much: self._then(self.server.open()))
        append = SimpleNamespace(remote=lambda *given: self._then(self.append(*given)))
        return SimpleNamespace(line=line, append=append)

    def _then(self, work: Any) -> Any:
        coming = self.on_loop(work)
        return SimpleNamespace(future=lambda: coming)

    def close(self) -> None:
        async def end() -> None:
            self.server.close()

        self.on_loop(end()).result(WAIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


@pytest.fixture
def log() -> Iterator[FakeLog]:
    made = FakeLog()
    yield made
    made.close()


def until(true: Any) -> None:
    end_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def with_a_line(log: FakeLog) -> Producer:
    producer = Producer("t", "q", 1, Partitioner(1), producer_limits(), handles={0: log.handle()})
    end_s = time.monotonic() + WAIT_S
    while (line := producer._buffers.of(0)._here.socket) is None or not line.welcome:
        assert time.monotonic() < end_s, "it has no line"
        producer.send(None, b"warm").result(WAIT_S)
    return producer


def test_who_connects_first_sends_nothing_through_ray(log: FakeLog) -> None:
    handle = log.handle()
    del handle.append
    with Producer("t", "q", 1, Partitioner(1), producer_limits(), handles={0: handle}) as producer:
        producer.connect()
        assert producer.send(None, b"first").result(WAIT_S).offset == 0


def test_what_a_sender_waits_for_a_core_makes_no_batch_gather(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_a_line(log) as producer:
        accumulator, took_us = producer._accumulator, []
        close = accumulator.close_open

        def later(now_ms: int) -> None:
            time.sleep(0.1)
            close(now_ms)

        monkeypatch.setattr(accumulator, "close_open", later)
        monkeypatch.setattr(accumulator, "rest", lambda now_ms, us: took_us.append(us))
        producer.send(None, b"x").result(WAIT_S)
        assert took_us and max(took_us) < 50_000
        monkeypatch.undo()


@pytest.mark.parametrize("answers", [True, False])
def test_to_connect_takes_no_time_where_there_is_nothing_to_wait_for(answers: bool) -> None:
    said: Future[None] = Future()
    if answers:
        said.set_result(None)
    line = SimpleNamespace(remote=lambda *given: SimpleNamespace(future=lambda: said))
    handle = SimpleNamespace(line=line)
    with Producer("t", "q", 1, Partitioner(1), producer_limits(), handles={0: handle}) as producer:
        began_s = time.monotonic()
        producer.connect()
        passed_s = time.monotonic() - began_s
    assert passed_s < CONNECT_WAIT_S if answers else CONNECT_WAIT_S <= passed_s < WAIT_S


def test_sends_take_the_answers_when_the_producers_thread_gets_no_turn(log: FakeLog) -> None:
    with with_a_line(log) as producer:
        go_on, stands = threading.Event(), threading.Event()
        wait = producer._answers.wait

        def waits(timeout_s: float) -> Any:
            stands.set()
            go_on.wait(WAIT_S)
            return wait(0)

        producer._answers.wait = waits  # type: ignore[method-assign]
        producer._answers.wake()
        assert stands.wait(WAIT_S)
        receipts, before = [], log.messages
        for number in range(MESSAGES):
            receipts.append(producer.send(None, b"%d" % number))
            until(lambda: log.messages == before + len(receipts))
        assert all(receipt.done() for receipt in receipts[:-1])
        assert not receipts[-1].done(), "nobody took the last answer"
        go_on.set()
        assert receipts[-1].result(WAIT_S).offset == before + MESSAGES - 1


def test_what_came_while_a_call_was_under_way_goes_when_it_is_answered(log: FakeLog) -> None:
    with with_a_line(log) as producer:
        calls, before, hold = log.calls, log.messages, threading.Event()
        log.loop.call_soon_threadsafe(hold.wait, WAIT_S)
        receipts = [producer.send(None, b"%d" % number) for number in range(MESSAGES)]
        hold.set()
        assert [receipt.result(WAIT_S).offset for receipt in receipts] == [
            before + number for number in range(MESSAGES)
        ]
        assert log.calls == calls + 2, "the first at once, and the others together"


class Line:
    """What has answers to give: a byte is one."""

    awaits = True

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def answer(self) -> None:
        self._theirs.send(b"x")

    def receive(self) -> bool:
        try:
            return bool(self._ours.recv(1))
        except BlockingIOError:
            return False

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def waited_s(poll: AnswerPoll) -> tuple[float, list[AnswerSource]]:
    began_s = time.monotonic()
    found = poll.wait(WAIT_S)
    return time.monotonic() - began_s, found


def test_who_takes_the_answers_wakes_nobody_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rest_s = 0.5
    monkeypatch.setattr(answer_poll, "REST_S", rest_s)
    poll, line = AnswerPoll(), Line()
    poll.add(line)
    for _ in range(answer_poll.OTHERS_TAKE):
        line.answer()
        assert waited_s(poll)[0] < rest_s, "it leaves too much to others"
        poll.take()
    line.answer()
    passed_s, found = waited_s(poll)
    assert passed_s >= rest_s
    assert found == [line], "what nobody takes is seen then"
    poll.wake()
    assert waited_s(poll)[0] < rest_s
    poll.take(found)
    line.answer()
    assert waited_s(poll)[0] < rest_s, "who waits takes them again"
    poll.remove(line)
    poll.close()
    line.close()
