"""What a handler gets, message by message: all that the log has, and nothing that may not begin.

With real threads and handlers, and no Ray.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.sequential_worker import LOOP_TURN_S, SequentialWorker
from pxrs_ray.config import GroupConfig, Ordered
from pxrs_ray.config.scheduling import retry_rules
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext, deliveries
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Grant, Message
from tests.actors.lease_gate import LeaseGate
from tests.actors.recording import eventually
from tests.actors.worker_bench import WAIT_S, Bench, WorkerCallbacks

MESSAGES = 50
LONG_S = 3_600.0
QUIET_S = 0.05

FIELDS = ("partition", "offset", "key", "payload", "timestamp_ms", "headers", "id")


def shared() -> DeliveryContext:
    return DeliveryContext("q", "g", "c-0", 1, 3, 7, topology_id="t1")


# --- what it gets ---------------------------------------------------------------------------------

NAMES = st.text(max_size=5)
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=5)), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A batch as it may come off a log: with or without keys, times, headers and ids."""
    count = draw(st.integers(1, 30))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    made = Batch.of(
        column(st.none() | st.binary(max_size=5)),
        column(st.binary(max_size=5)),
        timestamp_ms=draw(st.integers(0, 1 << 50)),
        timestamps_ms=draw(st.sampled_from([None, column(st.none() | st.integers(0, 1 << 50))])),
        headers=draw(st.sampled_from([None, column(HEADERS)])),
        ids=draw(st.sampled_from([None, column(st.none() | NAMES)])),
    )
    whole = Batch(3, draw(st.integers(0, 1 << 40)), made.flags, made.columns, 5)
    start = draw(st.integers(0, count - 1))
    if draw(st.booleans()):
        return whole.slice(start)
    return whole.pick([(whole.base_offset, whole.base_offset + start), (whole.end_offset - 1,) * 2])


def of_log(batch: Batch) -> list[Message]:
    """The messages as the columns have them, each looked up by itself."""
    columns, found = batch.to_arrow().to_pylist(), []
    for row in columns:
        headers = tuple((name, value) for name, value in row["headers"] or ())
        found.append(
            Message(
                row["partition"],
                row["offset"],
                row["key"],
                row["payload"],
                row["timestamp_ms"],
                headers,
                row["id"],
            )
        )
    return found


def told(message: Delivery | Message) -> tuple[Any, ...]:
    return tuple(getattr(message, name) for name in FIELDS)


@settings(max_examples=200, deadline=None)
@given(batches(), st.data())
def test_a_delivery_is_the_message_in_the_log_whoever_keeps_it(
    batch: Batch, data: st.DataObject
) -> None:
    expected = of_log(batch)
    assert list(batch) == expected
    kept: dict[int, Delivery] = {}
    seen, context = [], shared()
    for index, message in enumerate(deliveries(batch, context)):
        seen.append(told(message))
        assert told(Delivery(expected[index], context)) == seen[-1]
        assert message.context.fencing_token == (3, 7, message.offset)
        if data.draw(st.booleans()):
            kept[index] = message
    assert seen == [told(message) for message in expected]
    # What somebody holds is never filled with another message.
    assert {index: told(message) for index, message in kept.items()} == {
        index: told(expected[index]) for index in kept
    }


def test_whoever_keeps_a_message_in_any_way_keeps_that_message() -> None:
    batch = Batch.of([b"k"] * 9, [b"%d" % n for n in range(9)], timestamp_ms=1)

    def closed_over(message: Delivery) -> Callable[[], Delivery]:
        return lambda: message

    ways: list[Callable[[Delivery], Callable[[], Delivery]]] = [
        closed_over,
        lambda message: iter([message]).__next__,
        lambda message: partial(getattr, message, "__self__", message),
        lambda message: partial(next, (held for held in [message])),
    ]
    for way in ways:
        holders = [way(message) for message in deliveries(batch, shared())]
        assert [hold().offset for hold in holders] == list(range(9))
    bound = [message.transaction for message in deliveries(batch, shared())]
    assert [method.__self__.offset for method in bound] == list(range(9))  # type: ignore[attr-defined]


# --- what may begin -------------------------------------------------------------------------------


class Scene:
    """A worker in order on partition 3, under a lease that the test gives."""

    def __init__(self, handler: Callable[[Delivery], object], **options: Any) -> None:
        bench = Bench(handler)
        self.handler = bench.handler
        self.callbacks = WorkerCallbacks()
        self.lease = LeaseGate(LONG_S)
        self.callbacks.lease = self.lease  # type: ignore[assignment]
        self.config = GroupConfig(queue="q", backoff_ms=1, **options)
        self.record: CallRecord = self.callbacks.in_hand

    def start(self, messages: int = MESSAGES, base: int = 0) -> SequentialWorker:
        self.worker = SequentialWorker(
            Grant(3, 7, base),
            shared(),
            self.handler,
            retry_rules(self.config),
            self.callbacks,
            self.config,
            None,
        )
        self.worker.start()
        made = Batch.of([None] * messages, [b"x"] * messages, timestamp_ms=1)
        self.worker.put(Batch(3, base, made.flags, made.columns, 1), 1)
        return self.worker

    def renew(self, length_s: float = LONG_S) -> None:
        self.lease.answered(time.monotonic(), length_s)

    def end_lease(self) -> None:
        """As when the process was frozen for longer than its lease."""
        self.lease.begin_until_s = time.monotonic() - 1

    def reaches(self, offset: int) -> None:
        eventually(lambda: self.worker.next_offset == offset, WAIT_S, pause_s=0.001)

    def close(self) -> None:
        self.worker.stop()
        assert self.worker.join(WAIT_S)
        self.handler.close()


@pytest.fixture(params=["plain", "async", "each commits"])
def scene(request: pytest.FixtureRequest) -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(handle: Callable[[Delivery], object]) -> Scene:
        async def handle_async(message: Delivery) -> None:
            handle(message)
            if message.offset % 7 == 0:
                await asyncio.sleep(0)

        options = {}
        if request.param == "each commits":
            options["processing"] = Ordered(commit_mode="message")
        made.append(Scene(handle_async if request.param == "async" else handle, **options))
        made[-1].callbacks.checkpoint_now = lambda worker: None  # type: ignore[method-assign]
        return made[-1]

    yield make
    for each in made:
        each.close()


AT = 20


def test_between_two_messages_of_a_batch_nothing_begins_when_the_lease_is_over(scene: Any) -> None:
    begun: list[int] = []

    def handle(message: Delivery) -> None:
        begun.append(message.offset)
        if message.offset == AT:
            world.end_lease()

    world = scene(handle)
    world.renew()
    world.start()
    eventually(lambda: len(begun) > AT, WAIT_S, pause_s=0.001)
    time.sleep(QUIET_S)
    assert begun == list(range(AT + 1)) and world.worker.next_offset == AT + 1
    world.renew()
    world.reaches(MESSAGES)
    assert begun == list(range(MESSAGES))


def test_between_two_messages_of_a_batch_the_lease_ends_by_time_alone(scene: Any) -> None:
    begun: list[tuple[int, float]] = []

    def handle(message: Delivery) -> None:
        begun.append((message.offset, time.monotonic()))
        time.sleep(0.005)

    world = scene(handle)
    world.renew(0.4)
    until_s = world.lease.begin_until_s
    world.start(messages=200)
    time.sleep(0.8)
    # One may have been looked at right before; the thread may have had to wait for a core then.
    late = [offset for offset, at_s in begun if at_s > until_s]
    assert 0 < len(begun) < 200 and len(late) <= 1
    world.renew()
    world.reaches(200)


def test_between_two_messages_of_a_batch_nothing_begins_after_a_stop(scene: Any) -> None:
    begun: list[int] = []

    def handle(message: Delivery) -> None:
        begun.append(message.offset)
        if message.offset == AT:
            world.worker.stop()

    world = scene(handle)
    world.renew()
    world.start()
    assert world.worker.join(WAIT_S)
    assert begun == list(range(AT + 1)) and world.worker.progress().checkpoint == AT + 1


def test_between_two_messages_of_a_batch_nothing_begins_beside_a_suspect(scene: Any) -> None:
    begun: list[int] = []

    def handle(message: Delivery) -> None:
        begun.append(message.offset)
        if message.offset == AT:
            # As `CallRecord.enter_alone` leaves it for one that is on another thread.
            world.record._alone.alone_until_s = float("inf")
            world.record._alone.closed = world.record.closed = True

    world = scene(handle)
    world.renew()
    world.start()
    eventually(lambda: len(begun) > AT, WAIT_S, pause_s=0.001)
    time.sleep(QUIET_S)
    assert begun == list(range(AT + 1))
    assert not world.record.look(), "who waits has nothing in hand"
    # Its lease ended while it waited: the gate alone does not let it go on.
    world.end_lease()
    world.record._alone.alone_until_s = 0.0
    time.sleep(QUIET_S)
    assert begun == list(range(AT + 1))
    world.renew()
    world.reaches(MESSAGES)
    assert begun == list(range(MESSAGES))


def test_what_fails_is_tried_again_before_any_other_and_the_rest_goes_on(scene: Any) -> None:
    begun: list[tuple[int, int]] = []

    def handle(message: Delivery) -> None:
        begun.append((message.offset, message.context.attempt))
        if message.offset in (0, AT, MESSAGES - 1) and message.context.attempt < 3:
            raise ValueError("not yet")

    world = scene(handle)
    world.renew()
    world.start()
    world.reaches(MESSAGES)
    expected = [
        (offset, attempt)
        for offset in range(MESSAGES)
        for attempt in range(1, 4 if offset in (0, AT, MESSAGES - 1) else 2)
    ]
    assert begun == expected


def test_an_async_handler_that_never_waits_lets_other_partitions_have_their_turn() -> None:
    turns: list[str] = []

    async def handle(message: Delivery) -> None:
        if message.offset == 0:
            asyncio.get_running_loop().call_soon(turns.append, "other")
        end_s = time.monotonic() + LOOP_TURN_S
        while time.monotonic() < end_s:
            pass
        turns.append("mine")

    world = Scene(handle)
    world.renew()
    world.start(messages=5)
    world.reaches(5)
    world.close()
    assert turns.index("other") <= 2


def test_an_async_handler_is_called_on_one_thread_for_a_whole_batch() -> None:
    threads: set[int] = set()

    async def handle(message: Delivery) -> None:
        threads.add(threading.get_ident())

    world = Scene(handle)
    world.renew()
    calls: list[object] = []
    real = world.handler.on_loop

    def counted(work: Any) -> Any:
        calls.append(work)
        return real(work)

    world.handler.on_loop = counted  # type: ignore[method-assign]
    world.start(messages=1_000)
    world.reaches(1_000)
    world.close()
    assert len(threads) == 1 and len(calls) == 1


# --- how far it is --------------------------------------------------------------------------------


def test_progress_is_what_is_in_hand_while_a_batch_is_worked(scene: Any) -> None:
    told_of: list[int] = []
    world = scene(lambda message: told_of.append(world.worker.progress().checkpoint))
    world.renew()
    world.start()
    eventually(lambda: world.worker.progress().checkpoint == MESSAGES, WAIT_S, pause_s=0.001)
    assert told_of == list(range(MESSAGES))


def test_progress_never_comes_from_a_slot_that_is_another_partitions_by_now(scene: Any) -> None:
    world = scene(lambda message: None)
    world.renew()
    world.start()
    eventually(lambda: world.worker.progress().checkpoint == MESSAGES, WAIT_S, pause_s=0.001)
    world.worker.stop()
    assert world.worker.join(WAIT_S)
    entry = world.record.entry(4, 1)
    assert entry.begin(1_000_000, 1_000_001, threading.Event())
    assert world.worker.progress().checkpoint == MESSAGES
