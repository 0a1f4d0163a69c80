"""`GroupHost` without Ray: durable before told, a store that is down, lost or led by another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.errors import CoordinatorDeposed, Fenced, StoreCorrupted, StoreUnavailable
from pxrs_ray.group.events import (
    Commit,
    Configure,
    Dismiss,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Release,
)
from pxrs_ray.model import Member, Outcome, Progress, Record, Snapshot
from pxrs_ray.store.memory import MemoryStore
from tests.settings import group_settings

PARTITIONS = 4


class Moody(MemoryStore):
    """A store that can be made to fail."""

    down = False
    tries = 0

    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        self.tries += 1
        if self.down:
            raise StoreUnavailable("gone fishing")
        return super().write(group, generation, records)


class Told:
    """A shell that notes what it is told."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.fenced: list[dict[int, int]] = []
        self.dismissals: list[Dismiss] = []
        self.faults: list[BaseException] = []
        self.versions: list[int] = []

    def fence(self, group: str, epochs: dict[int, int]) -> None:
        self.fenced.append(epochs)

    def dismissed(self, group: str, dismiss: Dismiss) -> None:
        self.dismissals.append(dismiss)

    def deposed(self, group: str, error: BaseException) -> None:
        self.faults.append(error)

    async def lead_again(self, group: str) -> Snapshot:
        return self.store.lead(group, PARTITIONS, "test")

    def led(self, group: str, generation: int, version: int) -> None:
        self.versions.append(version)


class World:
    def __init__(self, history_keep: int = 1_000, lease_ms: int = 10_000) -> None:
        self.store = Moody()
        self.store.create()
        self.thread = StoreThread(lambda: self.store)
        self.told = Told(self.store)
        self.settings = group_settings(lease_ms=lease_ms)
        self.host = GroupHost("g", self.store, self.thread, SystemClock(), self.told, history_keep)

    async def start(self) -> None:
        await self.thread.open()
        await self.host.start(self.store.lead("g", PARTITIONS, "test"), self.settings)

    async def close(self) -> None:
        await self.host.close()
        await self.thread.close()


def play(world: World, scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await world.start()
        try:
            await asyncio.wait_for(scene(world), 30)
        finally:
            await world.close()

    asyncio.run(run())


async def until(check: Callable[[], Any]) -> None:
    for _ in range(2_000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within ten seconds")


def stored_checkpoints(world: World) -> list[int]:
    snapshot = world.store.load("g")
    assert snapshot is not None
    return [row.checkpoint for row in snapshot.partitions]


def all_at(offset: int, epoch: int = 1) -> tuple[PartitionProgress, ...]:
    return tuple(PartitionProgress(p, epoch, Progress(offset)) for p in range(PARTITIONS))


def test_what_is_answered_is_in_the_store() -> None:
    async def scene(world: World) -> None:
        await world.host.submit(Join((Member("a", 1),)))
        snapshot = world.store.load("g")
        assert snapshot is not None and {row.owner for row in snapshot.partitions} == {"a"}
        reply = await world.host.submit(Commit("a", 1, all_at(7)))
        assert set(reply.outcomes) == {Outcome.APPLIED} and stored_checkpoints(world) == [7] * 4
        assert world.told.fenced == [{0: 1, 1: 1, 2: 1, 3: 1}] and world.told.versions

    play(World(), scene)


def test_commits_wait_for_a_store_that_is_down_and_are_written_once() -> None:
    async def scene(world: World) -> None:
        host, store = world.host, world.store
        await host.submit(Join((Member("a", 1),)))
        store.down = True
        waiting = [asyncio.ensure_future(host.submit(Commit("a", 1, all_at(n)))) for n in (1, 2, 3)]
        await until(lambda: world.thread.health.down_since_ms)
        assert world.thread.health.problem == "gone fishing" and not any(w.done() for w in waiting)
        # Nobody is pushed out while the store is away: signs of life are answered.
        assert (await host.submit(Heartbeat("a", 1, (1, 99)))).assignment is None
        store.down, writes = False, world.thread.writes
        replies = await asyncio.gather(*waiting)
        assert all(set(reply.outcomes) == {Outcome.APPLIED} for reply in replies)
        assert stored_checkpoints(world) == [3] * 4 and world.thread.health.down_since_ms is None
        assert world.thread.writes - writes <= 3

    play(World(), scene)


def test_an_idle_group_writes_nothing_but_keep_alives() -> None:
    async def scene(world: World) -> None:
        await world.host.submit(Join((Member("a", 1),)))
        await world.host.submit(Commit("a", 1, all_at(1)))
        before, calls = world.thread.writes, world.thread.calls
        for _ in range(5):
            await asyncio.sleep(0.1)
            await world.host.submit(Heartbeat("a", 1))
            await world.host.submit(Commit("a", 1, all_at(1)))
        assert world.thread.writes == before and world.thread.calls > calls

    play(World(lease_ms=300), scene)


def newest(host: GroupHost, member: str) -> Heartbeat:
    """A heartbeat of a member that has seen all there is."""
    told = host.core.assignment(member)
    return Heartbeat(member, told.incarnation, (told.generation, told.sequence))


def test_a_heartbeat_hears_of_a_change_and_nothing_else() -> None:
    async def scene(world: World) -> None:
        host = world.host
        first = (await host.submit(Join((Member("a", 1),)))).assignment
        assert first is not None
        assert (await host.heartbeat(newest(host, "a"), 0.05)).assignment is None
        waiting = asyncio.ensure_future(host.heartbeat(newest(host, "a"), 10.0))
        await asyncio.sleep(0)
        await host.submit(Join((Member("b", 1),)))
        newer = (await waiting).assignment
        assert newer is not None and newer.sequence > first.sequence and len(newer.revoking) == 2
        assert not await host.told(0.02)
        a = asyncio.ensure_future(host.heartbeat(newest(host, "a"), 10.0))
        b = asyncio.ensure_future(host.heartbeat(newest(host, "b"), 10.0))
        assert await host.told(5)
        await host.submit(Configure(paused=True))
        told = [(await one).assignment for one in (a, b)]
        assert all(one is not None and one.paused for one in told)

    play(World(), scene)


def test_a_heartbeat_that_waits_renews_no_lease_meanwhile() -> None:
    """Its member may have died since it came: what it is given counts from then."""

    async def scene(world: World) -> None:
        host = world.host
        await host.submit(Join((Member("a", 1),)))
        waiting = asyncio.ensure_future(host.heartbeat(newest(host, "a"), 10.0))
        await asyncio.sleep(0.01)
        until_ms = host.core.state.members["a"].until_ms
        await asyncio.sleep(0.1)
        await host.submit(Configure(paused=True, lease_ms=60_000))
        told = await waiting
        assert told.assignment is not None and told.assignment.paused
        # Not the longer lease that was not yet when it came.
        assert told.lease_ms == 10_000 and host.core.state.members["a"].until_ms == until_ms

    play(World(), scene)


def test_two_heartbeats_of_one_member_that_wait_are_both_answered() -> None:
    """The first was given up by its caller, and another sent: neither may wait for the other."""

    async def scene(world: World) -> None:
        host = world.host
        await host.submit(Join((Member("a", 1),)))
        both = [asyncio.ensure_future(host.heartbeat(newest(host, "a"), 10.0)) for _ in range(2)]
        await asyncio.sleep(0.01)
        await host.submit(Configure(paused=True))
        told = [(await one).assignment for one in both]
        assert all(one is not None and one.paused for one in told)

    play(World(), scene)


def test_one_that_leaves_is_let_go_and_its_heartbeat_is_answered() -> None:
    async def scene(world: World) -> None:
        host = world.host
        await host.submit(Join((Member("a", 1),)))
        leaving = asyncio.ensure_future(host.heartbeat(newest(host, "a"), 10.0))
        await asyncio.sleep(0)
        await host.submit(Leave("a", 1))
        told = (await leaving).assignment
        assert told is not None and told.leaving
        last = asyncio.ensure_future(host.heartbeat(newest(host, "a"), 10.0))
        await asyncio.sleep(0)
        await host.submit(Release("a", 1, all_at(5)))
        await until(lambda: world.told.dismissals)
        assert world.told.dismissals[0].clean and stored_checkpoints(world) == [5] * 4
        for refused in (last, host.heartbeat(Heartbeat("a", 1, (1, 1)), 0.01)):
            with pytest.raises(Fenced):
                await refused

    play(World(), scene)


def test_a_newer_coordinator_ends_this_one() -> None:
    async def scene(world: World) -> None:
        world.store.lead("g", PARTITIONS, "another")
        joining = asyncio.ensure_future(world.host.submit(Join((Member("a", 1),))))
        with pytest.raises(CoordinatorDeposed):  # which says to look the coordinator up anew
            await joining
        assert isinstance(world.told.faults[0], CoordinatorDeposed)

    play(World(), scene)


def test_an_idle_coordinator_notices_that_a_newer_one_leads() -> None:
    async def scene(world: World) -> None:
        await world.host.submit(Join((Member("a", 1),)))
        world.store.lead("g", PARTITIONS, "another")
        await until(lambda: world.told.faults)
        assert isinstance(world.told.faults[0], CoordinatorDeposed)

    play(World(lease_ms=300), scene)


def test_an_idle_coordinator_halts_when_its_registry_is_gone() -> None:
    async def scene(world: World) -> None:
        await world.host.submit(Join((Member("a", 1),)))
        world.store.remove_group("g")
        await until(lambda: world.host.halted)
        assert isinstance(world.host.halted, StoreCorrupted) and world.told.faults == []

    play(World(lease_ms=300), scene)


def test_a_lease_that_ended_in_the_store_alone_deposes_nobody() -> None:
    async def scene(world: World) -> None:
        await world.host.submit(Join((Member("a", 1),)))
        renewals: list[list[Outcome]] = []

        def refused(*arguments: Any) -> list[Outcome]:
            renewals.append([Outcome.FENCED])
            return renewals[-1]

        world.store.renew = refused  # type: ignore[method-assign]
        while len(renewals) < 3:
            await world.host.submit(Heartbeat("a", 1))
            await asyncio.sleep(0.005)
        assert world.told.faults == [] and world.host.halted is None

    play(World(lease_ms=150), scene)


def test_a_store_that_lost_what_it_accepted_halts_the_group() -> None:
    async def scene(world: World) -> None:
        await world.host.submit(Join((Member("a", 1),)))
        world.store.remove_group("g")
        with pytest.raises(StoreCorrupted, match="lost"):
            await world.host.submit(Commit("a", 1, all_at(3)))
        assert isinstance(world.host.halted, StoreCorrupted)
        with pytest.raises(StoreCorrupted):
            await world.host.submit(Heartbeat("a", 1))
        assert world.told.faults == []

    play(World(), scene)


def test_the_history_is_trimmed_as_it_grows() -> None:
    async def scene(world: World) -> None:
        for incarnation in range(1, 40):
            await world.host.submit(Join((Member("a", incarnation),)))
        await until(lambda: len(world.store.changes("g", 0)) <= 40)
        assert world.store.changes("g", 0)[-1].version == world.host.core.state.version

    play(World(history_keep=20), scene)


def test_a_frozen_store_does_not_stop_the_ticks() -> None:
    async def scene(world: World) -> None:
        host = world.host
        await host.submit(Join((Member("a", 1),)))
        renew = world.store.renew

        def slow(*arguments: Any) -> Any:
            time.sleep(0.4)
            return renew(*arguments)

        world.store.renew = slow  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        await until(lambda: "a" not in host.core.state.members)
        # Were silence forgiven for as long as a keep-alive takes, it would last for ever.
        assert asyncio.get_running_loop().time() - began < 3.0

    play(World(lease_ms=300), scene)
