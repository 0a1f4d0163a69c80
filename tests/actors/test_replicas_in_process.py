"""Hosted replicas, without Ray: what is acknowledged is on all in sync, and whoever leads next goes
on with it."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from pxrs_ray.actors.buffer import replica_lead
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import Appended, Refused
from pxrs_ray.errors import LeaseOver, NotLeading, UsageError
from pxrs_ray.topology.homes import Home
from tests.replica_processes import QUEUE, Group, played
from tests.settings import log_limits

ALWAYS = log_limits(durability=Durability.ALWAYS)


@pytest.mark.parametrize("limits", [None, ALWAYS], ids=["interval", "always"])
def test_what_is_acknowledged_is_on_every_replica_in_sync(tmp_path: Path, limits: object) -> None:
    async def scene(group: Group) -> None:
        for number in range(20):
            assert isinstance(await group.append(number), Appended)
        follower = group.handles[group.following].buffer
        assert follower is not None
        [log] = follower._manager.all_logs()
        assert log.end_offset == 20
        assert await group.read() == list(range(20))
        for asked in (
            follower.fetch(QUEUE, "g", {0: (1, 0)}, wait_ms=0),
            follower.append(QUEUE, [], 0),
            follower.ends(QUEUE),
            follower.begin_producer(QUEUE, "shop", 1, "token"),
        ):
            with pytest.raises(NotLeading):
                await asked

    given = {} if limits is None else {"limits": limits, "synced_only": True}
    played(scene, tmp_path, **given)


def test_nothing_is_acknowledged_while_one_in_sync_lacks_it(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        group.deaf.add(group.following)
        refused = await group.append(0, wait_ms=300)
        assert isinstance(refused, Refused) and "not on every replica" in str(refused.error)
        assert await group.read() == []
        await group.until(lambda: group.isr() == {group.leading}, "it leaves the set")
        answer = await group.append(0)
        assert isinstance(answer, Appended) and answer.base_offset == 0
        group.deaf.clear()
        await group.until(lambda: len(group.isr()) == 2, "it is back in sync")

    played(scene, tmp_path)


def test_below_min_isr_appends_wait_and_reads_go_on(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        follower = group.following
        await group.kill(follower)
        await group.until(lambda: len(group.isr()) == 1, "it leaves the set")
        assert isinstance(await group.append(1, wait_ms=100), Refused)
        assert await group.read() == [0]
        await group.again(follower)
        await group.until(lambda: len(group.isr()) == 2, "it is back in sync")
        assert isinstance(await group.append(1), Appended)

    played(scene, tmp_path, min_isr=2)


def test_an_append_that_waits_for_min_isr_goes_on_as_soon_as_there_are_as_many(
    tmp_path: Path,
) -> None:
    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        follower = group.following
        await group.kill(follower)
        await group.until(lambda: len(group.isr()) == 1, "it leaves the set")
        waits = asyncio.ensure_future(group.append(1, wait_ms=600_000))
        await asyncio.sleep(0.3)
        assert not waits.done()
        await group.again(follower)
        await group.until(lambda: len(group.isr()) == 2, "it is back in sync")
        await group.until(waits.done, "the append goes on")
        assert isinstance(await waits, Appended)

    played(scene, tmp_path, min_isr=2)


def test_another_one_leads_and_goes_on_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        for round_of in range(3):
            for number in range(10 * round_of, 10 * round_of + 10):
                assert isinstance(await group.append(number), Appended)
            led = group.leading
            await group.kill(led)
            await group.until(lambda: group.leading != led, "another one leads")  # noqa: B023
            await group.open()
            again = await group.append(10 * round_of + 9)
            assert isinstance(again, Appended) and again.repeated, "the same frame, sent again"
            assert await group.read() == list(range(10 * round_of + 10))
            await group.again(led)
            await group.until(lambda: len(group.isr()) == 2, "who led is in sync again")

    played(scene, tmp_path)


def test_a_silent_leader_is_ended_when_another_one_is_elected(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        led = group.leading
        group.mute.add(led)
        await group.until(lambda: group.leading != led, "another one leads")
        assert led in group.ended
        await group.open()
        assert await group.read() == [0]

    played(scene, tmp_path)


def test_a_leader_is_prepared_while_it_learns_and_serves_nobody_before_it_knows_what_is_safe(
    tmp_path: Path,
) -> None:
    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        led, put, goes_on = group.leading, group._put, asyncio.Event()
        written = 0

        async def slow_put(name: str, text: str) -> None:
            nonlocal written
            written += 1
            if written > 1:  # who leads is written; that the dead one is not in sync is not yet
                await goes_on.wait()
            await put(name, text)

        group.controller._put = slow_put  # type: ignore[method-assign]
        table = group.controller._table
        table._rules = replace(table._rules, answer_ms=0)  # nobody waits for who may lead alone
        await group.kill(led)
        await group.until(lambda: group.leading != led, "another one is prepared")
        assert len(group.isr()) == 2 and group.serves is not None
        leader = group.serves.buffer
        assert leader is not None and await leader.leads(5_000) == 2
        group.controller.settle(0, await group.grant())
        await asyncio.sleep(0.2)
        assert not leader._gate.is_open(), "it does not know yet what is safe"
        goes_on.set()
        await group.open()
        assert await group.read() == [0]

    played(scene, tmp_path)


def test_one_write_says_who_leads_and_that_the_dead_one_is_not_in_sync(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        led, put, written = group.leading, group._put, []

        async def counted(name: str, text: str) -> None:
            written.append(text)
            await put(name, text)

        group.controller._put = counted  # type: ignore[method-assign]
        await group.kill(led)
        await group.until(lambda: group.leading != led, "another one leads")
        assert group.isr() == {group.leading} and len(written) == 1
        await group.open()
        assert await group.read() == [0]
        assert len(written) == 1

    played(scene, tmp_path)


def test_who_waits_for_a_leader_hears_of_it_as_soon_as_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_lead, "LEADS_WAIT_MS_MAX", 60_000)

    async def scene(group: Group) -> None:
        leader, follower = (group.handles[d].buffer for d in (group.leading, group.following))
        assert leader is not None and follower is not None
        assert await leader.leads(5_000) == 1 and await follower.leads() == 0
        waits = asyncio.ensure_future(follower.leads(60_000))
        await asyncio.sleep(0.05)
        assert not waits.done()
        await group.kill(group.leading)
        assert await waits == 2

    played(scene, tmp_path)


def test_a_life_of_a_producer_is_known_to_whoever_leads_next(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        assert group.serves is not None and group.serves.buffer is not None
        begun = await group.serves.buffer.begin_producer(QUEUE, "shop", 5, "token")
        assert begun is not None and begun.number == 5
        group.mute.add(group.following)
        with pytest.raises(LeaseOver):
            await group.serves.buffer.begin_producer(QUEUE, "shop", 6, "another")
        group.mute.clear()
        assert await group.serves.buffer.begin_producer(QUEUE, "shop", 6, "another") is not None
        led = group.leading
        await group.kill(led)
        await group.until(lambda: group.leading != led, "another one leads")
        await group.open()
        known = await group.serves.buffer.begin_producer(QUEUE, "shop", 0, "")
        assert known is not None and (known.number, known.token) == (6, "another")

    played(scene, tmp_path)


def test_a_log_that_was_lost_here_is_taken_from_the_others(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        for number in range(10):
            assert isinstance(await group.append(number), Appended)
        lost = group.following
        await group.kill(lost)
        for path in (group.folders[lost] / QUEUE / "p00000").iterdir():
            path.unlink()
        await group.again(lost)
        await group.until(lambda: len(group.isr()) == 1, "it is in sync no longer")
        await group.until(lambda: len(group.isr()) == 2, "it has followed anew")
        led = group.leading
        await group.kill(led)
        await group.until(lambda: group.leading == lost, "it leads")
        await group.open()
        assert await group.read() == list(range(10))

    played(scene, tmp_path)


def test_a_coordinator_that_begins_goes_on_with_the_leader_that_there_is(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        before, led = group.document, group.leading
        await group.controller.close()
        group.serves = None
        group.lead()
        await group.controller.begin()
        assert (group.document, group.leading) == (before, led)
        assert isinstance(await group.append(1), Appended), "it was served all the time"

    played(scene, tmp_path)


def test_a_disk_that_does_not_come_back_is_replaced(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        for number in range(5):
            assert isinstance(await group.append(number), Appended)
        lost = group.following_in_sync()
        await group.kill(lost)
        group.homing.nodes = [node for node in group.nodes() if node.disk != lost]
        spare = ({*group.disks} - {group.leading, lost}).pop()
        await group.until(lambda: group.isr() == {group.leading, spare}, "another has caught up")

    played(scene, tmp_path, disks=3)


def test_logs_beside_the_queues_are_refused(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        assert group.serves is not None and group.serves.buffer is not None
        ledger = dataclasses.replace(group.spec, queue="_feeds.q", queue_id="")
        with pytest.raises(UsageError, match="replicas = 1"):
            await group.serves.buffer.open(ledger, {}, make=True)

    played(scene, tmp_path)


def test_a_queue_is_dropped_in_the_middle_of_appends_and_the_replicas_go_on(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        assert group.serves is not None and group.serves.buffer is not None
        leader = group.serves.buffer
        for round_of in range(3):
            group.deaf.add(group.following)
            late = [asyncio.ensure_future(group.append(n, wait_ms=200)) for n in range(5)]
            await asyncio.sleep(0.02)
            group.is_removed = True
            await leader.drop_queue(QUEUE)
            await group.controller.drop_queue(QUEUE)
            group.deaf.clear()
            await asyncio.gather(*late)
            await asyncio.sleep(0.2)
            assert leader._host is not None and not leader._host.over
            # Another queue of that name.
            group.spec = dataclasses.replace(group.spec, queue_id=f"another {round_of}")
            homes = group.homing.homes.without_queue(QUEUE)
            group.homing.homes = homes.with_queue(QUEUE, group.spec.queue_id)
            group.is_removed = False
            await group.open()
            assert isinstance(await group.append(0), Appended)
            assert await group.read() == [0]
        assert group.serves.buffer is leader, "nobody was replaced for it"

    played(scene, tmp_path)


def test_a_new_leader_serves_nobody_before_it_knows_all_that_it_has_to(tmp_path: Path) -> None:
    """A lease alone is not enough: it may not know yet which readers are fenced."""

    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        led = group.leading
        await group.kill(led)
        await group.until(lambda: group.leading != led, "another one leads")
        assert group.serves is not None and group.serves.buffer is not None
        await group.serves.buffer.open(group.spec, {}, make=False)
        await group.grant()
        [part] = await group.serves.buffer.fetch(QUEUE, "g", {0: (1, 0)}, wait_ms=0)
        assert isinstance(part, Refused) and isinstance(part.error, LeaseOver)
        assert isinstance(await group.append(1, wait_ms=200), Refused)
        await group.open()
        assert await group.read() == [0]

    played(scene, tmp_path)


def test_a_leader_waits_for_no_follower_that_is_being_started_again(tmp_path: Path) -> None:
    """Ray holds a call to such a process for as long as that takes."""

    async def scene(group: Group) -> None:
        group.mute.add(group.following)
        async with asyncio.timeout(5):
            await group.controller.open_on(0, group.spec, make=False)

    played(scene, tmp_path)


def test_nobody_waits_for_the_answer_of_a_process_that_another_has_replaced() -> None:
    async def scene() -> None:
        asked: asyncio.Queue[str] = asyncio.Queue()

        def process(name: str) -> SimpleNamespace:
            def ping(*_: object) -> asyncio.Future[None]:
                asked.put_nowait(name)
                return asyncio.get_running_loop().create_future()

            return SimpleNamespace(ping=SimpleNamespace(remote=ping))

        pool, home = BufferPool("t", 1, ""), Home("d1", "n1", "h1")
        returned = AsyncMock()
        pool.begins_at(0, home)
        pool.placed(0, home, process("former"))
        pool.watch(returned)
        pool.look_soon(0)
        async with asyncio.timeout(1.5):  # the former would be waited for longer
            assert await asked.get() == "former"
            pool.begins_at(0, replace(home, disk="d2", term=2))
            pool.placed(0, replace(home, disk="d2", term=2), process("newer"))
            pool.look_soon(0)
            assert await asked.get() == "newer"
        assert not pool._away, "what the former did not answer is no fault of the newer one"
        pool.stop_watching()

    asyncio.run(scene())
