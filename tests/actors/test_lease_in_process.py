"""A member that is cut off: in every way of processing, it begins nothing beyond its lease.

Judged from outside: what the handlers of both owners wrote down, with the time at which each call
began. The coordinator hears nothing of the one that is cut; its buffer is on its side, as in the
findings, so it could read and work on for ever.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.consumer.consumer_actor import Consumer
from pxrs_ray.config import ByKey, Ordered, Packs
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery
from pxrs_ray.errors import DeadlineExceeded, NotHeld
from pxrs_ray.group.events import Heartbeat
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world

LEASE_S = 1.0
WORK_S = 0.005
MESSAGES = 700
WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "commit each": {"processing": Ordered(commit_mode="message")},
    "batches": {"commit_records": 5},
    "lanes": {"processing": ByKey(parallelism=2)},
    "lanes, async": {"processing": ByKey(parallelism=2)},
    "packs": {"processing": Packs(submit_strategy="batch", batch_records=2, pack_records=20)},
    "one at a time": {"processing": Ordered(consumer_per_partition=False)},
}


class Owner:
    """A handler of one member, and when it was called with what."""

    def __init__(self, way: str) -> None:
        self.begun: list[tuple[float, int]] = []
        self.held: list[bool] = []
        self._way = way

    def _note(self, message: Delivery) -> None:
        self.begun.append((time.monotonic(), message.offset))
        time.sleep(WORK_S)
        self.held.append(message.context.holds())

    def handler(self) -> object:
        def handle(message: Delivery) -> None:
            self._note(message)

        async def handle_async(message: Delivery) -> None:
            self.begun.append((time.monotonic(), message.offset))
            await asyncio.sleep(WORK_S)

        def handle_batch(batch: DeliveredBatch) -> None:
            for message in batch:
                self._note(message)

        by_way = {"lanes, async": handle_async, "batches": handle_batch}
        return by_way.get(self._way, handle)


class Cut:
    """Between one member and the coordinator, from `at_s` on; the buffer answers."""

    def __init__(self, world: World, consumer: Consumer) -> None:
        self._world, self._name = world, consumer._spec.member
        self.fetched_at_s: list[float] = []
        self.is_cut = False
        self.at_s = 0.0

    def begin(self) -> None:
        self.is_cut, self.at_s = True, time.monotonic()
        self._world.faults = self._world.answers = self._fault

    def end(self) -> None:
        self.is_cut = False

    def _fault(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "fetch":
            if self._name in arguments[-1]:
                self.fetched_at_s.append(time.monotonic())
        elif self.is_cut and arguments[0] == self._name:
            raise DeadlineExceeded(f"{self._name} is cut off")


@pytest.mark.parametrize("way", WAYS)
def test_a_cut_member_begins_and_reads_nothing_beyond_its_lease(world: Any, way: str) -> None:
    first, second = Owner(way), Owner(way)

    async def main() -> None:
        here: World = world(lease_ttl_seconds=LEASE_S, **WAYS[way])
        await here.up()
        await here.produce([b"k%d" % (n % 7) for n in range(MESSAGES)])
        one = await here.consumer("c1", first.handler())
        await until(lambda: len(first.begun) > 20)
        cut = Cut(here, one)
        cut.begin()
        # It joins while the other one still works, and gets what is taken from that.
        other = await here.consumer("c2", second.handler())
        await until(lambda: second.begun)
        taken_s = second.begun[0][0]
        assert not one._live().lease.may_begin(_stopped())
        await asyncio.sleep(LEASE_S / 2)
        assert first.begun[-1][0] < taken_s, "two owners at once"
        # It went on for as long as its lease lasted: being cut alone stops nobody.
        if way != "commit each":
            assert first.begun[-1][0] > cut.at_s + LEASE_S / 3
        assert all(at_s < taken_s for at_s in cut.fetched_at_s), "it read on"
        cut.end()
        await until(lambda: one._live().session.incarnation > 1)
        await here.reaches(MESSAGES)
        assert one._live().failed is None and other._live().failed is None
        seen = Counter(offset for _, offset in first.begun + second.begun)
        assert sorted(seen) == list(range(MESSAGES))
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))


def _stopped() -> threading.Event:
    stopping = threading.Event()
    stopping.set()
    return stopping


def test_a_member_that_is_heard_again_in_time_goes_on_where_it_stopped(world: Any) -> None:
    """The coordinator is away for longer than a lease, and judges nobody: nothing is done twice."""
    owner = Owner("in order")

    async def main() -> None:
        here: World = world(lease_ttl_seconds=LEASE_S)
        await here.up()
        await here.produce([None] * MESSAGES)
        one = await here.consumer("c1", owner.handler())
        await until(lambda: len(owner.begun) > 20)
        cut = Cut(here, one)
        # Its lease is its coordinator's too: that must not judge it while it is away.
        here.host.core.state.members["c1"].until_ms += 60_000
        cut.begin()
        await asyncio.sleep(1.5 * LEASE_S)
        stopped_at = len(owner.begun)
        assert one._live().lease.is_over() and stopped_at < MESSAGES
        await asyncio.sleep(LEASE_S / 3)
        assert len(owner.begun) == stopped_at
        cut.end()
        await here.reaches(MESSAGES)
        assert one._live().session.incarnation == 1
        assert [offset for _, offset in owner.begun] == list(range(MESSAGES))
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("way", ["in order", "lanes", "lanes, async"])
def test_a_call_that_outlives_the_lease_fails_nothing_and_writes_nothing(
    world: Any, tmp_path: Path, way: str
) -> None:
    """Its block is refused; that is no failed attempt: with one attempt nothing is given up."""
    release, outcomes, attempts = threading.Event(), list[str](), list[int]()
    database = tmp_path / "sink.db"

    def call(message: Delivery) -> None:
        attempts.append(message.context.attempt)
        connection = sqlite3.connect(database, isolation_level=None)
        try:
            connection.execute("CREATE TABLE IF NOT EXISTS paid (at INTEGER)")
            with message.transaction(connection) as cursor:
                cursor.execute("INSERT INTO paid VALUES (?)", (message.offset,))
                if not outcomes:
                    release.wait(20)
            outcomes.append("written")
        except NotHeld:
            outcomes.append("refused")
            raise
        finally:
            connection.close()

    async def call_async(message: Delivery) -> None:
        await asyncio.to_thread(call, message)

    async def main() -> None:
        here: World = world(
            lease_ttl_seconds=LEASE_S, attempts_max=1, failure_policy="skip", **WAYS[way]
        )
        await here.up()
        await here.produce([b"k"] * 3)
        one = await here.consumer("c1", call_async if "async" in way else call)
        await until(lambda: attempts)
        here.host.core.state.members["c1"].until_ms += 60_000
        cut = Cut(here, one)
        cut.begin()
        await until(lambda: one._live().lease.is_over())
        release.set()
        await until(lambda: outcomes == ["refused"])
        await asyncio.sleep(LEASE_S / 4)
        assert outcomes == ["refused"], "it was called again without a lease"
        cut.end()
        await here.reaches(3)
        assert outcomes == ["refused", "written", "written", "written"]
        assert attempts == [1, 1, 1, 1] and not one._giving_up.newest
        await here.down()
        rows = sqlite3.connect(database).execute("SELECT at FROM paid ORDER BY at").fetchall()
        assert rows == [(0,), (1,), (2,)]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_answer_that_comes_late_gives_no_more_than_its_question_asked_for(world: Any) -> None:
    async def main() -> None:
        here: World = world(lease_ttl_seconds=LEASE_S)
        await here.up()
        one = await here.consumer("c1", Owner("in order").handler())
        await until(lambda: not one._live().lease.is_over())
        heard, asked_s = here.member_api.heartbeat, list[float]()

        async def late(*arguments: Any) -> Any:
            asked_s.append(time.monotonic())
            if len(asked_s) > 1:
                raise DeadlineExceeded("cut off")
            found = await heard(*arguments)
            await asyncio.sleep(0.2 * LEASE_S)
            return found

        setattr(here.member_api, "heartbeat", late)  # noqa: B010
        await until(lambda: one._live().lease.is_over())
        assert asked_s[0] + LEASE_S * 0.8 < time.monotonic() < asked_s[0] + LEASE_S
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_refusal_that_waits_for_the_registry_renews_no_lease(world: Any) -> None:
    """While the registry is away heartbeats are answered from memory; a dead member's are not."""

    async def main() -> None:
        here: World = world(lease_ttl_seconds=LEASE_S)
        await here.up()
        await here.member_api.join("c1", "token-1")
        stuck, write = threading.Event(), here.store.write
        setattr(here.store, "write", lambda *arguments: (stuck.wait(20), write(*arguments))[1])  # noqa: B010
        joining = asyncio.ensure_future(here.member_api.join("c2", "token-2"))
        await asyncio.sleep(0.02)
        heard = await here.member_api.heartbeat("c1", 1, (0, 0), 50)
        assert heard.lease_ms and heard.assignment is None, "its news is not durable"
        leaving = asyncio.ensure_future(here.member_api.leave("c1", 1, "test"))
        await asyncio.sleep(0.02)
        with pytest.raises(DeadlineExceeded):  # who is no member is not told to be heard
            await here.host.heartbeat(Heartbeat("c1", 9, (0, 0)), 0.05)
        stuck.set()
        await asyncio.gather(joining, leaving)
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))
