"""Whatever a handler or a loop raises fails the smallest unit that it concerns, and is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pxrs_ray.actors.consumer.consumer_actor import Consumer
from pxrs_ray.config import ByKey, Ordered, Packs
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery
from tests.actors.ends import KINDS
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world

WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "in order, async": {},
    "batches": {},
    "lanes": {"processing": ByKey(parallelism=4)},
    "lanes, async": {"processing": ByKey(parallelism=4)},
    "one thread": {"processing": Ordered(consumer_per_partition=False)},
    "packs": {
        "processing": Packs(
            processing_strategy="retry_failed", retries=1, pause_ms=1, pause_ms_max=5
        ),
    },
}
KEYS: list[bytes | None] = [b"a", b"b", b"bad", b"c", b"bad", b"d"]


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and t.name.startswith("pxrs-")]
    for thread in left:
        thread.join(5)
    assert [t.name for t in left if t.is_alive()] == []


def run(work: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


def handler_of(way: str, call: Callable[[Delivery], None]) -> object:
    async def handle(message: Delivery) -> None:
        await asyncio.sleep(0)
        call(message)

    def handle_batch(batch: DeliveredBatch) -> None:
        for message in batch:
            call(message)

    return handle if "async" in way else handle_batch if way == "batches" else call


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_a_handler_raises_is_a_failed_attempt_of_its_message(
    world: Any, way: str, kind: str
) -> None:
    attempts: list[int] = []
    done: list[bytes | None] = []

    def call(message: Delivery) -> None:
        if message.key == b"bad":
            attempts.append(message.offset)
            raise KINDS[kind]()
        done.append(message.key)

    async def main() -> None:
        here: World = world(1, attempts_max=2, failure_policy="skip", **WAYS[way])
        await here.up()
        await here.produce(KEYS)
        consumer = await here.consumer("c1", handler_of(way, call))
        await here.reaches(len(KEYS), wait_s=8)
        told = (await info(consumer)).given_up
        assert {failure.offset for failure in told} >= {2}
        assert all(kind in failure.error for failure in told)
        # And everything still runs: what comes later is handled, too.
        await here.produce([b"e", b"f"])
        await here.reaches(len(KEYS) + 2)
        await here.down()

    run(main)
    assert attempts.count(2) >= 2
    if way != "batches":
        assert sorted(map(str, done)) == [str(k) for k in (b"a", b"b", b"c", b"d", b"e", b"f")]


async def info(consumer: Consumer) -> Any:
    from types import SimpleNamespace

    workers = consumer._workers
    return SimpleNamespace(
        given_up=consumer._giving_up.newest,
        failures=workers.failures(),
        problems=consumer._problems(),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["in order", "lanes", "packs"])
def test_an_on_assigned_that_raises_holds_up_its_partition_until_it_does_not(
    world: Any, way: str, kind: str
) -> None:
    heard: list[int] = []
    working = threading.Event()

    class Handler:
        def on_assigned(self, partition: int, checkpoint: int) -> None:
            heard.append(partition)
            if partition == 0 and not working.is_set():
                raise KINDS[kind]()

        def handle(self, message: Delivery) -> None: ...

    async def main() -> None:
        here: World = world(2, **WAYS[way])
        await here.up()
        for partition in (0, 1):
            await here.produce([b"k"] * 5, partition)
        consumer = await here.consumer("c1", Handler())
        # The other partition works, this one says what is the matter with it.
        await here.reaches(0, 5)
        await until(lambda: heard.count(0) >= 2)
        seen = await info(consumer)
        assert [failure.context.partition for failure in seen.failures] == [0]
        assert kind in seen.failures[0].error
        assert any(told.startswith("partition 0") for told in seen.problems)
        working.set()
        await here.reaches(5, 5)
        await until(lambda: not consumer._workers.failures())
        await here.down()

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_at_rest_is_handed_over_at_once(world: Any, kind: str) -> None:
    class Handler:
        def on_assigned(self, partition: int, checkpoint: int) -> None:
            raise KINDS[kind]()

        def handle(self, message: Delivery) -> None: ...

    async def main() -> None:
        here: World = world(1)
        await here.up()
        await here.produce([b"k"] * 5)
        consumer = await here.consumer("c1", Handler())
        await until(lambda: consumer._workers.failures())
        assert await consumer._live().leave("the test", 5.0)
        await here.consumer("c2", lambda message: None)
        await here.reaches(5)
        await here.down()

    run(main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hook", ["on_revoked", "on_prepare", "close"])
def test_what_the_other_methods_raise_ends_nothing(world: Any, hook: str, kind: str) -> None:
    def fail(*arguments: object) -> None:
        raise KINDS[kind]()

    class Handler:
        def handle(self, message: Delivery) -> None: ...

    setattr(Handler, hook, fail)

    async def main() -> None:
        here: World = world(1)
        await here.up()
        await here.produce([b"k"] * 5)
        consumer = await here.consumer("c1", Handler())
        await here.reaches(5)
        [held] = consumer._live().session.holdings.values()
        consumer._live().session.preparing.add(7)
        from pxrs_ray.model import Grant

        consumer.preparing(Grant(7, 1, 0))
        if hook == "on_prepare":
            await until(lambda: any(kind in told for told in consumer._problems()))
        consumer.unprepared(7)
        assert held.partition == 0
        assert await consumer._live().leave("the test", 5.0)
        await here.down()
        if hook != "on_prepare":
            assert any(kind in told for told in consumer._problems())

    run(main)
