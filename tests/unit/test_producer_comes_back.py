"""A producer that comes back under its name: what its former life still sends is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.data.log_limits import Durability
from pxrs_ray.errors import LogCorrupted, ProducerFenced, UsageError
from pxrs_ray.files import Files
from pxrs_ray.log.producer_fence import GENERATION_MAX, ProducerFence, named_producer_id
from pxrs_ray.testing.wrong_clock import HOUR_S, wrong_wall_clock
from tests.in_process import QUEUE, Buffers, in_process, until
from tests.logs import wire
from tests.settings import log_limits


def header(producer: str, generation: int) -> bytes:
    return wire([b"x"], 0, producer=named_producer_id(producer, generation))[0]


def test_the_fence_keeps_the_newest_life_across_restarts(tmp_path: Path) -> None:
    fence = ProducerFence(tmp_path, Files())
    fence.check(QUEUE, header("p", 1))
    assert fence.begin(QUEUE, "p", 0, "t") is None, "asking begins nothing"
    assert fence.begin(QUEUE, "p", 5, "mine") == fence.begin(QUEUE, "p", 5, "mine")
    taken = fence.begin(QUEUE, "p", 5, "another")
    assert taken is not None and taken.token == "mine"
    older = fence.begin(QUEUE, "p", 4, "another")
    assert older is not None and older.number == 5
    for found in (fence, ProducerFence(tmp_path, Files())):
        with pytest.raises(ProducerFenced, match="'p' of 'q' was started anew"):
            found.check(QUEUE, header("p", 4))
        found.check(QUEUE, header("p", 5))
        found.check(QUEUE, header("other", 1))
        found.check("another queue", header("p", 1))
        found.check(QUEUE, wire([b"x"], 0)[0])
    fence.drop_queue(QUEUE)
    ProducerFence(tmp_path, Files()).check(QUEUE, header("p", 1))
    with pytest.raises(UsageError, match="is above"):
        fence.begin(QUEUE, "p", GENERATION_MAX + 1, "t")
    (tmp_path / "producers.json").write_text("rubbish")
    with pytest.raises(LogCorrupted, match="not a list of producers"):
        ProducerFence(tmp_path, Files())


class Holding:
    """Holds appends back, and lets them go later; `begin_producer` passes."""

    def __init__(self) -> None:
        self.held: list[Callable[[], Future[Any]]] = []
        self.hold = False

    def __call__(
        self, buffers: Buffers, index: int, make: Callable[[], Future[Any]]
    ) -> Future[Any]:
        if not self.hold:
            return make()
        answer: Future[Any] = Future()

        def go() -> Future[Any]:
            done = make()
            done.add_done_callback(lambda done: answer.set_result(done.result()))
            return done

        self.held.append(go)
        return answer


@pytest.mark.parametrize("restart", ["none", "clean", "kill"])
def test_late_messages_of_a_former_life_never_land(tmp_path: Path, restart: str) -> None:
    with in_process(tmp_path) as buffers:
        net = buffers.fate = Holding()
        former = buffers.producer("orders", linger_ms=0)
        for i in range(40):
            former.send(b"%d" % (i % 8), b"%d" % i).result(10)
        net.hold = True
        late = [former.send(b"%d" % (i % 8), b"%d" % i) for i in range(40, 60)]
        until(lambda: len(net.held) >= 2)
        net.hold = False
        with buffers.producer("orders", linger_ms=0) as successor:
            for i in range(40, 80):
                successor.send(b"%d" % (i % 8), b"%d" % i).result(10)
            for index in range(2) if restart != "none" else ():
                (buffers.stop if restart == "clean" else buffers.kill)(index)
                buffers.start(index)
            for go in net.held:
                go()
            for receipt in late:
                with pytest.raises(ProducerFenced, match="was started anew"):
                    receipt.result(10)
            with pytest.raises(ProducerFenced):
                former.send(b"k", b"x")
            with pytest.raises(ProducerFenced):
                former.send_batch([b"k"], [b"x"])
            with pytest.raises(ProducerFenced):
                former.broadcast(b"x")
            assert former.pending_bytes == 0
            former.close()
            for i in range(80, 90):
                successor.send(b"%d" % (i % 8), b"%d" % i).result(10)
        assert inversions(buffers) == 0
        assert sum(len(buffers.messages(p)) for p in range(4)) == 90


def inversions(buffers: Buffers) -> int:
    """How often a message of a key stands behind a newer one."""
    found = 0
    for partition in range(buffers.partitions):
        newest: dict[bytes | None, int] = {}
        for message in buffers.messages(partition):
            number = int(message.payload)
            found += number < newest.get(message.key, -1)
            newest[message.key] = max(number, newest.get(message.key, -1))
    return found


@pytest.mark.parametrize("begun", range(3))
def test_whenever_the_former_life_is_fenced_nothing_overtakes(tmp_path: Path, begun: int) -> None:
    """The successor begins while the former life's frames are everywhere on their way."""
    with in_process(tmp_path, limits=log_limits(durability=Durability.MEMORY)) as buffers:
        former = buffers.producer("orders", linger_ms=begun)
        told = threading.Event()
        given: list[int] = []

        def produce() -> None:
            try:
                for i in range(1_000_000):
                    former.send(b"%d" % (i % 8), b"%d" % i)
                    given.append(i)
                    if i == 200 * (begun + 1):
                        told.set()
            except ProducerFenced:
                pass

        thread = threading.Thread(target=produce)
        thread.start()
        told.wait(10)
        with buffers.producer("orders") as successor:
            receipts = [successor.send(b"%d" % (i % 8), b"%d" % (10**6 + i)) for i in range(200)]
            for receipt in receipts:
                receipt.result(10)
        thread.join(30)
        assert not thread.is_alive()
        former.close()
        assert inversions(buffers) == 0


def test_clocks_that_are_wrong_change_nothing(tmp_path: Path) -> None:
    with in_process(tmp_path) as buffers, wrong_wall_clock(HOUR_S) as clock:
        lives = []
        for wrong_s in (HOUR_S, -HOUR_S, 0.0, HOUR_S, -HOUR_S):
            clock.wrong_s = wrong_s
            lives.append(buffers.producer("orders", linger_ms=0))
            lives[-1].send(b"k", b"x").result(10)
            for former in lives[:-1]:
                with pytest.raises(ProducerFenced):
                    former.send(b"k", b"x").result(10)
        for life in lives:
            life.close()
        assert sum(len(buffers.messages(p)) for p in range(4)) == 5


def test_of_two_that_begin_at_once_one_is_left(tmp_path: Path) -> None:
    with in_process(tmp_path) as buffers:
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(buffers.producer("orders", linger_ms=0)))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        living = 0
        for producer in found:
            try:
                for i in range(16):
                    producer.send(b"%d" % i, b"x").result(10)
                living += 1
            except ProducerFenced:
                pass
            producer.close()
        assert len(found) == 6 and living == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "\ud800"])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    with in_process(tmp_path) as buffers, pytest.raises(UsageError):
        buffers.producer(name)
