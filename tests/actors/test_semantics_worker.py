"""The worker of a partition, with real threads and handlers and no Ray: speed, order, crashes."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from pxrs_ray.config import ByKey, Packs
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.model import Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.quarantine_state import QuarantineRecord
from pxrs_ray.processing.retry_rules import FailurePolicy
from tests.actors.recording import eventually
from tests.actors.worker_bench import (
    LogInMemory,
    WorkerCallbacks,
    batch_of,
    in_order,
    keys_of,
    sleeps,
)

WAIT_S = 30.0


def test_many_keys_run_beside_each_other_and_each_stays_in_order(bench: Any) -> None:
    took = sleeps(2_000)
    done: list[tuple[bytes | None, int]] = []
    lock = threading.Lock()
    running = most = 0

    def handle(message: Delivery) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(took[message.offset])
        with lock:
            running -= 1
            done.append((message.key, message.offset))

    table = bench(handle, processing=ByKey(parallelism=32), commit_records=500)
    worker = table.start()
    worker.put(batch_of(keys_of(2_000, 200)), 100_000)
    table.reaches(worker, 2_000)
    # How much faster that is, the benchmarks tell: machines that run tests are busy.
    assert 8 <= most <= 32
    assert len(done) == 2_000 and in_order(done)
    assert table.callbacks.commits == 4


def test_async_handlers_run_beside_each_other_without_threads(bench: Any) -> None:
    done: list[tuple[bytes | None, int]] = []

    async def handle(message: Delivery) -> None:
        await asyncio.sleep(0.02)
        done.append((message.key, message.offset))

    table = bench(handle, processing=ByKey(parallelism=50))
    worker = table.start()
    began_s = time.perf_counter()
    worker.put(batch_of(keys_of(500, 100)), 1)
    table.reaches(worker, 500)
    assert time.perf_counter() - began_s < 500 * 0.02 / 2
    assert in_order(done)
    assert not [t for t in threading.enumerate() if t.name.startswith("pxrs-call-3")]


def test_a_crash_repeats_only_what_was_not_finished(bench: Any) -> None:
    begun: list[int] = []
    finished: list[int] = []
    gate = threading.Event()

    def handle(message: Delivery) -> None:
        begun.append(message.offset)
        if message.offset % 10 == 0:
            assert gate.wait(WAIT_S)
        finished.append(message.offset)

    table = bench(handle, processing=ByKey(parallelism=16))
    first = table.start()
    keys: list[bytes | None] = [b"%d" % (n % 40) for n in range(100)]
    first.put(batch_of(keys), 1)
    # Keys 0, 10, 20 and 30 are held up by their first messages; all others are through.
    eventually(lambda: len(finished) == 90, WAIT_S)
    expected = [n for n in range(100) if n % 10 == 0]

    def undone(progress: Progress) -> list[int]:
        gaps, _ = DoneRanges.decode(progress.checkpoint, progress.detail)
        return [o for o in range(100) if o not in gaps]

    # What the handler has finished the worker hears a moment later.
    kept = eventually(lambda: (s := first.progress()) and undone(s) == expected and s, WAIT_S)
    begun.clear()
    gate.set()
    second = table.start(kept)
    second.put(batch_of(keys), 1)
    table.reaches(second, 100)
    assert {o for o in begun if o % 10} == set()


def test_what_fails_is_tried_again_counted_and_given_up_with_its_error(bench: Any) -> None:
    attempts: list[tuple[int, int]] = []

    def handle(message: Delivery) -> None:
        attempts.append((message.offset, message.context.attempt))
        if message.offset == 1:
            raise ValueError("no such account")

    table = bench(
        handle, processing=ByKey(parallelism=4), attempts_max=3, failure_policy="dead_letter"
    )
    table.callbacks = WorkerCallbacks(refuse=2)
    worker = table.start()
    worker.put(batch_of([b"a", b"b", b"b"]), 1)
    table.reaches(worker, 3)
    assert [n for o, n in attempts if o == 1] == [1, 2, 3]
    [(failure, offsets)] = table.callbacks.given_up
    assert offsets == [1] and failure.policy is FailurePolicy.DEAD_LETTER
    assert failure.context.attempt == 3 and "no such account" in failure.error


def test_stop_stands_still_with_an_alarm_and_ends_when_told(bench: Any) -> None:
    def handle(message: Delivery) -> None:
        raise ValueError("never")

    table = bench(handle, processing=ByKey(parallelism=2), attempts_max=2)
    worker = table.start()
    worker.put(batch_of([b"a"]), 1)
    failure = eventually(lambda: worker.failed, WAIT_S)
    assert failure.context.attempt == 2 and failure.context.offset == 0
    assert worker.progress() == Progress(0, 2, "1:;02")
    worker.stop()
    assert worker.join(WAIT_S) and table.callbacks.over.is_set()


def test_a_time_limit_names_message_step_attempt_and_partition(bench: Any, caplog: Any) -> None:
    gate = threading.Event()

    def handle(message: Delivery) -> None:
        if message.context.attempt == 1:
            gate.wait(WAIT_S)

    table = bench(handle, processing=ByKey(parallelism=4, handler_timeout_ms=30))
    worker = table.start()
    worker.put(batch_of([b"a"]), 1)
    table.reaches(worker, 1)
    gate.set()
    told = next(r.getMessage() for r in caplog.records if "takes too long" in r.getMessage())
    for part in ("offset 0", "partition 3", "of q", "group g", "attempt 1", "handle", "30 ms"):
        assert part in told


def test_async_calls_that_take_too_long_are_cancelled(bench: Any) -> None:
    cancelled: list[int] = []

    async def handle(message: Delivery) -> None:
        if message.context.attempt == 1:
            try:
                await asyncio.sleep(WAIT_S)
            except asyncio.CancelledError:
                cancelled.append(message.offset)
                raise

    table = bench(handle, processing=ByKey(parallelism=4, handler_timeout_ms=30))
    worker = table.start()
    worker.put(batch_of([b"a", b"b"]), 1)
    table.reaches(worker, 2)
    assert sorted(cancelled) == [0, 1]


def test_calls_that_never_return_end_in_an_alarm_and_not_in_endless_threads(bench: Any) -> None:
    gate = threading.Event()

    def handle(message: Delivery) -> None:
        gate.wait(WAIT_S)

    table = bench(handle, processing=ByKey(parallelism=2, handler_timeout_ms=20), attempts_max=0)
    worker = table.start()
    worker.put(batch_of([b"a", b"b", b"c"]), 1)
    failure = eventually(lambda: worker.failed, WAIT_S)
    assert "never returned" in failure.error
    time.sleep(0.1)
    assert len([t for t in threading.enumerate() if t.name.startswith("pxrs-call-3")]) <= 4
    gate.set()


def test_draining_ends_after_what_is_in_hand(bench: Any) -> None:
    gate, begun = threading.Event(), []

    def handle(message: Delivery) -> None:
        begun.append(message.offset)
        assert gate.wait(WAIT_S)

    table = bench(handle, processing=ByKey(parallelism=3))
    worker = table.start()
    worker.put(batch_of([b"%d" % n for n in range(10)]), 1)
    eventually(lambda: len(begun) == 3, WAIT_S)
    worker.stop()
    assert not worker.join(0.05)
    gate.set()
    assert worker.join(WAIT_S)
    assert worker.progress() == Progress(3) and len(begun) == 3


def test_packs_go_through_rounds(bench: Any) -> None:
    calls: list[tuple[int, int]] = []

    def handle(message: Delivery) -> None:
        calls.append((message.context.attempt, message.offset))
        if message.context.attempt == 1 and message.offset % 2:
            raise ValueError("at first")

    table = bench(
        handle,
        processing=Packs(
            submit_strategy="sequential",
            processing_strategy="retry_failed",
            pause_ms=1,
            pack_records=6,
        ),
        failure_policy="skip",
    )
    worker = table.start()
    worker.put(batch_of([None] * 6), 1)
    table.reaches(worker, 6)
    assert calls == [(1, n) for n in range(6)] + [(2, 1), (2, 3), (2, 5)]


def test_a_gap_of_the_log_is_passed_in_its_place(bench: Any) -> None:
    seen: list[int] = []
    table = bench(lambda message: seen.append(message.offset), processing=ByKey(parallelism=4))
    worker = table.start()
    worker.put(batch_of([b"a"]), 1)
    worker.skip(5)
    worker.put(batch_of([b"a"], base=5), 1)
    table.reaches(worker, 6)
    assert seen == [0, 5]


@pytest.mark.parametrize("seed", range(4))
def test_a_key_is_redriven_in_order_while_more_of_it_comes(bench: Any, seed: int) -> None:
    draw = random.Random(seed)
    mended = threading.Event()
    done: list[tuple[bytes | None, int]] = []

    def handle(message: Delivery) -> None:
        if message.key == b"bad" and message.offset >= 20 and not mended.is_set():
            raise ValueError("poison")
        done.append((message.key, message.offset))

    table = bench(
        handle, processing=ByKey(parallelism=4), attempts_max=2, failure_policy="quarantine"
    )
    log = LogInMemory()
    worker = table.start(quarantine=log)
    keys: list[bytes | None] = [draw.choice([b"bad", b"a", b"b", None]) for _ in range(600)]
    for base in range(0, 600, 20):
        worker.put(batch_of(keys[base : base + 20], base), 1)
        time.sleep(draw.choice([0, 0.002, 0.01]))
        if base == 200:
            eventually(lambda: b"bad" in log.state.keys, WAIT_S)
            mended.set()
            log.note(QuarantineRecord.RETRY, b"bad")
            worker.redrive()
    table.reaches(worker, 600)
    eventually(lambda: not log.refresh().keys, WAIT_S)
    assert sorted(offset for _, offset in done) == list(range(600))
    assert in_order([entry for entry in done if entry[0] is not None])
    assert {dict(r.headers)["pxrs-kind"] for r in log.kept} >= {b"parked", b"released"}


def test_a_new_owner_goes_on_with_the_redriving(bench: Any) -> None:
    mended = threading.Event()
    done: list[tuple[bytes | None, int]] = []

    def handle(message: Delivery) -> None:
        if message.offset == 1 and not mended.is_set():
            raise ValueError("poison")
        done.append((message.key, message.offset))

    table = bench(
        handle, processing=ByKey(parallelism=2), attempts_max=1, failure_policy="quarantine"
    )
    log = LogInMemory()
    first = table.start(quarantine=log)
    first.put(batch_of([b"k"] * 5), 1)
    table.reaches(first, 5)
    first.stop()
    assert first.join(WAIT_S) and done == [(b"k", 0)]
    log.note(QuarantineRecord.RETRY, b"k")
    mended.set()
    second = table.start(Progress(5), quarantine=log)
    second.put(batch_of([b"k"] * 2, base=5), 1)
    table.reaches(second, 7)
    eventually(lambda: len(done) == 7 and not log.refresh().keys, WAIT_S)
    assert in_order(done)
