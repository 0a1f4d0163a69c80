"""What was given up is kept before anything goes on, however long that takes; a letter is one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.actors.consumer import redrive
from pxrs_ray.actors.consumer.handler import Handler, handler_ref
from pxrs_ray.actors.consumer.sequential_worker import SequentialWorker
from pxrs_ray.actors.consumer.worker import Failure, Worker
from pxrs_ray.config import ByKey, GroupConfig, Packs
from pxrs_ray.config.scheduling import retry_rules
from pxrs_ray.consumer.dead_letter import letter_identity, letter_of, letter_partition
from pxrs_ray.consumer.delivery import Context, Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import SequenceConflict
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import Grant, Message, Progress
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.processing.quarantine_state import QuarantineRecord
from tests.actors.recording import eventually
from tests.actors.worker_bench import Bench, LogInMemory, WorkerCallbacks, batch_of
from tests.actors.worker_bench import bench as bench
from tests.settings import log_limits

WAIT_S = 20.0


class AwayOffice(WorkerCallbacks):
    """Keeps nothing until somebody heals it."""

    def __init__(self) -> None:
        super().__init__()
        self.healed = threading.Event()
        self.asked = 0

    def give_up(self, worker: Worker, failure: Failure, messages: Iterable[Message]) -> None:
        self.asked += 1
        if not self.healed.is_set():
            raise TimeoutError("the dead-letter queue takes nothing")
        super().give_up(worker, failure, messages)

    def checkpoint_now(self, worker: Worker) -> None: ...


def fails_on_1(calls: list[int]) -> Any:
    def handle(message: Delivery) -> None:
        calls.append(message.offset)
        if message.offset == 1:
            raise ValueError("no such account")

    return handle


def test_in_order_waits_for_the_letter_visibly_and_goes_on_when_it_is_sent() -> None:
    calls: list[int] = []
    config = GroupConfig(queue="q", failure_policy="dead_letter", attempts_max=2, backoff_ms=1)
    handler = Handler(handler_ref(_stand_in))
    handler.call = fails_on_1(calls)
    callbacks, shared = AwayOffice(), DeliveryContext("q", "g", "m", 1, 3, 7, topology_id="t1")
    worker = SequentialWorker(
        Grant(3, 7, 0), shared, handler, retry_rules(config), callbacks, config, None
    )
    worker.start()
    worker.put(batch_of([b"a", b"b", b"c"]), 1)
    waiting = eventually(lambda: worker.waiting, WAIT_S)
    assert "no such account" in waiting.error and "takes nothing" in waiting.error
    eventually(lambda: callbacks.asked > 3, WAIT_S)
    assert calls == [0, 1, 1] and worker.progress().checkpoint == 1, "nothing goes on meanwhile"
    callbacks.healed.set()
    eventually(lambda: worker.progress().checkpoint == 3, WAIT_S)
    assert worker.waiting is None and calls == [0, 1, 1, 2]
    assert [offsets for _, offsets in callbacks.given_up] == [[1]]
    worker.stop()
    assert worker.join(WAIT_S)


def test_a_worker_that_waits_for_its_letter_ends_when_it_is_told_to() -> None:
    config = GroupConfig(queue="q", failure_policy="dead_letter", attempts_max=1, backoff_ms=1)
    handler = Handler(handler_ref(_stand_in))
    handler.call = fails_on_1([])
    shared = DeliveryContext("q", "g", "m", 1, 3, 7, topology_id="t1")
    callbacks = AwayOffice()
    worker = SequentialWorker(
        Grant(3, 7, 0), shared, handler, retry_rules(config), callbacks, config, None
    )
    worker.start()
    worker.put(batch_of([b"a", b"b"]), 1)
    eventually(lambda: worker.waiting, WAIT_S)
    worker.stop()
    assert worker.join(WAIT_S) and worker.progress().checkpoint == 1


@pytest.mark.parametrize(
    "options",
    [
        {"processing": ByKey(parallelism=2), "failure_policy": "dead_letter"},
        {"processing": ByKey(parallelism=2), "failure_policy": "quarantine"},
        {
            "processing": Packs(submit_strategy="sequential", pause_ms=1),
            "failure_policy": "dead_letter",
        },
    ],
    ids=["lanes", "quarantine", "packs"],
)
def test_courses_wait_visibly_too(bench: Any, options: dict[str, Any]) -> None:
    table: Bench = bench(fails_on_1([]), attempts_max=1, **options)
    callbacks = table.callbacks = AwayOffice()
    quarantine = LogInMemory() if options["failure_policy"] == "quarantine" else None
    worker = table.start(quarantine=quarantine)
    worker.put(batch_of([b"a", b"b", b"b"]), 1)
    waiting = eventually(lambda: worker.waiting, WAIT_S)
    assert "takes nothing" in waiting.error and waiting.context.offset == 1
    callbacks.healed.set()
    table.reaches(worker, 3)
    eventually(lambda: worker.waiting is None, WAIT_S)


def letter(offset: int, error: str = "bad", topology_id: str = "t1") -> tuple[bytes, Any]:
    message = Message(3, offset, b"k", b"payload", 5, (("a", b"1"),), "id")
    context = Context(topology_id, "q", "g", "m", 1, 3, offset, 7, 2)
    return letter_identity(message, context), letter_of(message, context, error, 9)


def test_a_letter_is_taken_once_whoever_sends_it_and_says_where_it_is_from(tmp_path: Any) -> None:
    log = PartitionLog.open(tmp_path / "log", "q.dead", 0, log_limits(), now_ms=0)
    log.confirm(0, 0)
    for offset, error, topology in (
        (7, "bad", "t1"),
        (5, "bad", "t1"),
        (7, "bad", "t1"),
        (7, "worse", "t1"),
        (7, "bad", "t2"),
    ):
        identity, batch = letter(offset, error, topology)
        try:
            log.append(*batch.to_wire(identity, 0, 0), 0)
        except SequenceConflict:
            assert error == "worse", "the same letter is no conflict"
    assert log.end_offset == 3, "7 and 5 of one topology, 7 of another"
    log.close()
    _, batch = letter(7)
    [kept] = batch
    told = dict(kept.headers)
    assert (kept.key, kept.payload, kept.id, told["a"]) == (b"k", b"payload", "id", b"1")
    assert told["pxrs-offset"] == b"7" and told["pxrs-error"] == b"bad"


texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    st.one_of(st.none(), st.binary(max_size=20)),
    st.binary(max_size=50),
    st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple),
    st.one_of(st.none(), texts),
    st.text(max_size=50),
)
def test_a_letter_holds_the_message_as_it_was(
    key: Any, payload: bytes, headers: Any, message_id: Any, error: str
) -> None:
    message = Message(3, 7, key, payload, 5, headers, message_id)
    context = Context("t1", "q", "g", "m", 1, 3, 7, 7, 2)
    sent = letter_of(message, context, error, 9)
    [kept] = Batch.from_wire(0, *sent.to_wire(letter_identity(message, context), 0, 0))
    assert (kept.key, kept.payload, kept.id) == (key, payload, message_id)
    assert kept.headers[: len(headers)] == headers
    told = dict(kept.headers[len(headers) :])
    assert told["pxrs-error"] == error.encode(errors="backslashreplace")
    assert {name: told[f"pxrs-{name}"] for name in ("queue", "group", "partition", "offset")} == {
        "queue": b"q",
        "group": b"g",
        "partition": b"3",
        "offset": b"7",
    }


@pytest.mark.parametrize("strategy", ["modulo", "round_robin", "tenant", "label", "broadcast"])
def test_a_letter_always_goes_to_the_same_partition(strategy: str) -> None:
    labels = (("gpu", 2), ("cpu", 2)) if strategy == "label" else ()
    spread = PartitioningSpec(4, strategy, labels=labels)
    for key in (b"k", None):
        message = Message(3, 7, key, b"x", 5)
        assert letter_partition(spread, message) == letter_partition(spread, message)
    spots = {letter_partition(spread, Message(3, n, b"%d" % n, b"x", 5)) for n in range(50)}
    assert spots == {0, 1, 2, 3}


class FlakyLog(LogInMemory):
    """A quarantine whose buffer is away now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0

    def records(self, position: int, count: int) -> list[Message]:
        if self.away:
            self.away -= 1
            raise TimeoutError("the buffer is away")
        return super().records(position, count)


def bad_while(broken: threading.Event, done: list[int]) -> Any:
    def handle(message: Delivery) -> None:
        if message.key == b"bad" and broken.is_set():
            raise ValueError("no such account")
        done.append(message.offset)

    return handle


@pytest.fixture
def parked(bench: Any) -> tuple[Bench, FlakyLog, threading.Event, list[int]]:
    """Offsets 1 and 2 of four are parked under epoch 7, and the handler is mended."""
    broken, done, log = threading.Event(), list[int](), FlakyLog()
    broken.set()
    table: Bench = bench(
        bad_while(broken, done),
        attempts_max=1,
        processing=ByKey(parallelism=2),
        failure_policy="quarantine",
    )
    worker = table.start(quarantine=log)
    worker.put(batch_of([b"good", b"bad", b"bad", b"good"]), 1)
    table.reaches(worker, 4)
    worker.stop()
    assert worker.join(WAIT_S)
    broken.clear()
    assert sorted(done) == [0, 3] and len(log.state) == 2
    return table, log, broken, done


def test_redriving_goes_on_by_itself_when_its_log_is_back(
    parked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "AGAIN_S", 0.01)
    table, log, _, done = parked
    log.away = 3
    log.note(QuarantineRecord.RETRY, b"bad")
    worker = table.start(Progress(4), quarantine=log)
    eventually(lambda: not log.refresh().keys, WAIT_S)
    assert done[-2:] == [1, 2]
    worker.stop()


def test_a_seek_back_over_a_parked_key_brings_all_of_it_again_in_order(parked: Any) -> None:
    table, log, _, done = parked
    log.epoch = 9
    worker = table.start(Progress(0), quarantine=log, sought=(0, 8))
    worker.put(batch_of([b"good", b"bad", b"bad", b"good"]), 1)
    table.reaches(worker, 4)
    assert [o for o in done[2:] if o in (1, 2)] == [1, 2] and not log.state.keys
    worker.stop()


def test_what_a_crash_brings_again_is_not_parked_twice(parked: Any) -> None:
    table, log, broken, done = parked
    broken.set()
    worker = table.start(Progress(0), quarantine=log)
    worker.put(batch_of([b"good", b"bad", b"bad", b"good"]), 1)
    table.reaches(worker, 4)
    assert len(log.state) == 2 and not {1, 2} & set(done)
    worker.stop()


def _stand_in(message: Delivery) -> None: ...
