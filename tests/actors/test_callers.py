"""Who calls the handler where many messages of a partition are in work: short calls and long ones.

With real threads and no Ray. A worker is brought to short calls first, so that it has one caller,
and more messages taken than there are slots: that is where these rules are needed. Machines that
run tests are busy, so `short` calls here are those that take less than a tenth of a second.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from pxrs_ray.actors.consumer import callers, loop_callers
from pxrs_ray.config import ByKey, Packs
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.model import Progress
from pxrs_ray.processing.call_turns import AHEAD_MAX, CallTurns
from tests.actors.recording import eventually
from tests.actors.worker_bench import batch_of, in_order, keys_of
from tests.actors.worker_bench import bench as bench

WAIT_S = 30.0
# So many short calls come first.
SHORT = 1_000
PARTS = 4


class EndingLease:
    """A lease that ends when a test says so, and is renewed when it says so."""

    def __init__(self) -> None:
        self.begin_until_s = float("inf")
        self.asked = threading.Event()

    def end(self) -> None:
        self.begin_until_s = float("-inf")

    def renew(self) -> None:
        self.begin_until_s = float("inf")

    def may_begin(self, stopping: threading.Event) -> bool:
        """As `MemberLeaseView`."""
        while time.monotonic() > self.begin_until_s:
            self.asked.set()
            if stopping.wait(0.001):
                return False
        return not stopping.is_set()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls up to a tenth of a second are short."""
    monkeypatch.setattr(callers, "QUICK_S", 0.1)
    monkeypatch.setattr(loop_callers, "QUICK_S", 0.1)


def put_all(worker: Any, keys: list[bytes | None]) -> None:
    """In parts, as they come from a log."""
    step = len(keys) // PARTS
    for base in range(0, len(keys), step):
        worker.put(batch_of(keys[base : base + step], base), 1)


@pytest.mark.usefixtures("short")
def test_short_calls_are_made_by_few_and_each_key_stays_in_order(bench: Any) -> None:
    done: list[tuple[bytes | None, int]] = []
    by: dict[int, int] = {}

    def handle(message: Delivery) -> None:
        by[threading.get_ident()] = by.get(threading.get_ident(), 0) + 1
        done.append((message.key, message.offset))

    table = bench(handle, processing=ByKey(parallelism=16))
    worker = table.start()
    put_all(worker, keys_of(20_000, 300))
    table.reaches(worker, 20_000)
    assert in_order(done) and sorted(offset for _, offset in done) == list(range(20_000))
    # Whoever has made many short calls makes more of them: nothing is handed from thread to thread.
    assert max(by.values()) > SHORT


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("stuck", [1, 3])
def test_a_long_call_among_short_ones_holds_up_its_key_only(bench: Any, stuck: int) -> None:
    gate = threading.Event()
    done: list[int] = []

    def handle(message: Delivery) -> None:
        if SHORT <= message.offset < SHORT + stuck:
            assert gate.wait(WAIT_S)
        done.append(message.offset)

    table = bench(handle, processing=ByKey(parallelism=4))
    worker = table.start()
    put_all(worker, [b"%d" % n for n in range(2 * SHORT)])
    eventually(lambda: len(done) == 2 * SHORT - stuck, WAIT_S)
    assert worker.progress().checkpoint == SHORT
    gate.set()
    table.reaches(worker, 2 * SHORT)


@pytest.mark.usefixtures("short")
def test_who_gives_up_what_is_left_to_others_has_them_watched(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all slots taken a caller is one too many, and the other one is at a long call."""
    monkeypatch.setattr(CallTurns, "_is_too_many", lambda self, slot: self.active > 1)
    gate = threading.Event()
    done: list[int] = []

    def handle(message: Delivery) -> None:
        if message.offset == SHORT:
            assert gate.wait(WAIT_S)
        done.append(message.offset)

    table = bench(handle, processing=ByKey(parallelism=2))
    worker = table.start()
    put_all(worker, [b"%d" % n for n in range(2 * SHORT)])
    eventually(lambda: len(done) == 2 * SHORT - 1, WAIT_S)
    gate.set()
    table.reaches(worker, 2 * SHORT)


def test_more_calls_at_once_than_slots_there_are_never(bench: Any) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def handle(message: Delivery) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if message.offset >= SHORT:
            time.sleep(0.001)
        with lock:
            running -= 1

    table = bench(handle, processing=ByKey(parallelism=3))
    worker = table.start()
    put_all(worker, [b"%d" % n for n in range(SHORT + 200)])
    table.reaches(worker, SHORT + 200)
    assert most == 3


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_call_has_its_whole_time_however_long_it_waited_to_begin(bench: Any, way: str) -> None:
    """Much is taken while calls are short. What follows takes 1.3 s together, and 20 ms each."""
    attempts: set[int] = set()

    def handle(message: Delivery) -> None:
        attempts.add(message.context.attempt)
        if message.offset >= SHORT:
            time.sleep(0.02)

    async def handle_async(message: Delivery) -> None:
        attempts.add(message.context.attempt)
        if message.offset >= SHORT:
            await asyncio.sleep(0.02)

    table = bench(
        handle if way == "thread" else handle_async,
        processing=ByKey(parallelism=1, handler_timeout_ms=300),
    )
    worker = table.start()
    put_all(worker, [b"%d" % n for n in range(SHORT + AHEAD_MAX)])
    table.reaches(worker, SHORT + AHEAD_MAX)
    assert attempts == {1}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("way", ["thread", "loop"])
def test_what_was_taken_and_not_begun_is_not_begun_when_it_ends(bench: Any, way: str) -> None:
    gate, begun = threading.Event(), list[int]()

    def handle(message: Delivery) -> None:
        begun.append(message.offset)
        if message.offset >= SHORT:
            assert gate.wait(WAIT_S)

    async def handle_async(message: Delivery) -> None:
        begun.append(message.offset)
        if message.offset >= SHORT:
            assert await asyncio.to_thread(gate.wait, WAIT_S)

    table = bench(handle if way == "thread" else handle_async, processing=ByKey(parallelism=2))
    worker = table.start()
    put_all(worker, [b"%d" % n for n in range(SHORT + 200)])
    eventually(lambda: len(begun) == SHORT + 2, WAIT_S)
    worker.stop()
    assert not worker.join(0.05)
    gate.set()
    assert worker.join(WAIT_S)
    assert len(begun) == SHORT + 2 and worker.progress() == Progress(SHORT + 2)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("mode", [ByKey(parallelism=4), Packs(parallelism=4)], ids=["key", "pack"])
@pytest.mark.parametrize("way", ["thread", "loop"])
def test_nothing_begins_beyond_the_lease_and_all_goes_on_under_the_next(
    bench: Any, mode: Any, way: str
) -> None:
    lease = EndingLease()
    begun: list[int] = []

    def handle(message: Delivery) -> None:
        begun.append(message.offset)
        if len(begun) == SHORT:
            lease.end()

    async def handle_async(message: Delivery) -> None:
        handle(message)

    table = bench(handle if way == "thread" else handle_async, processing=mode)
    table.callbacks.lease = lease
    worker = table.start()
    put_all(worker, [b"%d" % n for n in range(2 * SHORT)])
    assert lease.asked.wait(WAIT_S)
    # Those that were in hand at its end may have begun at the same moment.
    time.sleep(0.05)
    held_up = len(begun)
    assert SHORT <= held_up < SHORT + 4
    time.sleep(0.05)
    assert len(begun) == held_up
    lease.renew()
    table.reaches(worker, 2 * SHORT)
    assert sorted(begun) == list(range(2 * SHORT))


def test_a_cancelled_call_leaves_nothing_to_the_next_one(bench: Any) -> None:
    """Its caller is not the next one's: nobody is cancelled for another."""
    cancelling: list[int] = []

    async def handle(message: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        if message.offset == 3 and message.context.attempt == 1:
            await asyncio.sleep(WAIT_S)
        await asyncio.sleep(0)

    table = bench(handle, processing=ByKey(parallelism=2, handler_timeout_ms=30))
    worker = table.start()
    put_all(worker, [b"%d" % (n % 3) for n in range(40)])
    table.reaches(worker, 40)
    assert cancelling == [0] * 41


def test_a_retry_is_made_of_the_log_and_not_of_what_a_handler_made_of_it(bench: Any) -> None:
    seen: list[bytes] = []

    def handle(message: Delivery) -> None:
        seen.append(message.payload)
        message.payload = b"spoilt"
        if len(seen) < 3:
            raise ValueError("again")

    table = bench(handle, processing=ByKey(parallelism=2))
    worker = table.start()
    worker.put(batch_of([b"a"]), 1)
    table.reaches(worker, 1)
    assert seen == [b"0"] * 3


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_fault_of_ours_in_a_turn_ends_the_worker_and_says_so(bench: Any, way: str) -> None:
    """Callers make turns too: what goes wrong there must not leave a worker that does nothing."""

    def handle(message: Delivery) -> None: ...

    async def handle_async(message: Delivery) -> None: ...

    table = bench(handle if way == "thread" else handle_async, processing=ByKey())
    worker = table.start()

    def broken(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    worker._scheduler.ended = broken
    worker.put(batch_of([b"a"]), 1)
    assert table.callbacks.over.wait(WAIT_S)
    assert worker.fault is not None and "a fault of ours" in worker.fault.error


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_where_no_caller_can_be_had_messages_fail_and_are_tried_again(bench: Any, way: str) -> None:
    def handle(message: Delivery) -> None: ...

    async def handle_async(message: Delivery) -> None: ...

    table = bench(handle if way == "thread" else handle_async, processing=ByKey(), attempts_max=0)
    worker = table.start()
    start, refused = worker._callers._start, [3]

    def refuse() -> None:
        if refused[0]:
            refused[0] -= 1
            raise RuntimeError("can't start new thread")
        start()

    worker._callers._start = refuse
    worker.put(batch_of([b"a", b"b"]), 1)
    table.reaches(worker, 2)
    assert refused == [0]
