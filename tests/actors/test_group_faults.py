"""Whatever is raised wherever in a group: it fails alone, says so, and goes on by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.errors import (
    CoordinatorDeposed,
    DeadlineExceeded,
    StoreCorrupted,
    UnknownMember,
    UsageError,
)
from pxrs_ray.group import group_health, group_runtime, ticks
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
from pxrs_ray.model import Generation, Member, Outcome, Progress, Snapshot
from pxrs_ray.store import open_store
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.supervision.restart_rules import RestartRules
from tests.settings import group_settings

PARTITIONS = 4
ROUNDS = 12
KINDS: tuple[Callable[[], BaseException], ...] = (
    lambda: RuntimeError("a fault"),
    lambda: OSError(28, "No space left on device"),
    lambda: UsageError("a fault of the store's check"),
    lambda: AssertionError("an invariant"),
    lambda: KeyError("gone"),
    lambda: MemoryError(),
    lambda: RecursionError("too deep"),
    lambda: SystemExit(1),
    lambda: KeyboardInterrupt(),
    lambda: asyncio.CancelledError(),
    lambda: BaseException("anything"),
)
# (object, method): everything that a group calls while it lives.
PLACES = (
    ("store", "write"),
    ("store", "renew"),
    ("store", "trim_changes"),
    ("shell", "led"),
    ("shell", "fence"),
    ("shell", "dismissed"),
    ("shell", "lead_again"),
    ("core", "handle"),
    ("runtime", "_take"),
    ("runtime", "begin"),
    ("runtime", "_interrupt"),
    ("ticks", "begin"),
    ("writer", "next"),
    ("writer", "answered"),
    ("renewals", "renew"),
    ("waiting", "park"),
    ("waiting", "defer"),
    ("waiting", "end"),
)

# Called after a fault: that is made first.
AFTER_A_FAULT = (
    ("shell", "lead_again"),
    ("runtime", "begin"),
    ("runtime", "_interrupt"),
    ("waiting", "park"),
)


class FakeController:
    """Notes what would end the coordinator."""

    def __init__(self, store: RegistryStore, thread: StoreThread) -> None:
        self.store, self.thread = store, thread
        self.ended: list[BaseException] = []
        self.over = asyncio.Event()
        self.fenced: dict[int, int] = {}

    def fence(self, group: str, epochs: dict[int, int]) -> None:
        self.fenced.update(epochs)

    def dismissed(self, group: str, dismiss: Dismiss) -> None: ...

    def deposed(self, group: str, error: BaseException) -> None:
        self.ended.append(error)
        self.over.set()

    async def lead_again(self, group: str) -> Snapshot:
        return await self.thread.call(self.store.lead, group, PARTITIONS, "again")

    def led(self, group: str, generation: Generation, version: int) -> None: ...


class World:
    """A coordinator's groups: one store, one thread, a shell each."""

    def __init__(self, url: str, names: tuple[str, ...] = ("sick", "well")) -> None:
        self.store = open_store(url)
        self.thread = StoreThread(lambda: self.store)
        self.controllers = {name: FakeController(self.store, self.thread) for name in names}
        self.hosts = {
            name: GroupHost(name, self.store, self.thread, SystemClock(), controller, 20)
            for name, controller in self.controllers.items()
        }

    async def start(self) -> None:
        await self.thread.open()
        await self.thread.call(self.store.create)
        for name, host in self.hosts.items():
            snapshot = await self.thread.call(self.store.lead, name, PARTITIONS, "first")
            await host.start(snapshot, group_settings(lease_ms=1_000))

    async def close(self) -> None:
        for host in self.hosts.values():
            await host.close()
        await self.thread.close()

    async def checkpoints(self, name: str) -> list[int]:
        snapshot = await self.thread.call(self.store.load, name)
        assert snapshot is not None
        return [row.checkpoint for row in snapshot.partitions]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_health, "RELOADS", RestartRules(0.001, 10.0))
    monkeypatch.setattr(ticks, "SWEEP_MS_MAX", 5)
    monkeypatch.setattr(ticks, "TICK_MS_MIN", 1)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'registry.db'}"


def play(world: World, scene: Callable[[World], Any], timeout_s: float = 20) -> None:
    async def run() -> None:
        await world.start()
        try:
            await asyncio.wait_for(scene(world), timeout_s)
        finally:
            await world.close()

    asyncio.run(run())


INCARNATIONS = itertools.count(1)


async def work(host: GroupHost, rounds: int) -> None:
    """Members that come, commit to `rounds` more, and go, asking again as real ones do."""
    done = min(row.checkpoint for row in host.core.state.rows)
    goal = done + rounds
    while done < goal:
        incarnation = next(INCARNATIONS)
        with suppress(UsageError, UnknownMember, DeadlineExceeded):
            await host.submit(Join((Member("a", incarnation),)))
            while done < goal:
                await host.submit(Heartbeat("a", incarnation))
                rows = tuple(
                    PartitionProgress(grant.partition, grant.epoch, Progress(done + 1))
                    for grant in host.core.assignment("a").grants
                )
                reply = await host.submit(Commit("a", incarnation, rows))
                if len(rows) == PARTITIONS and set(reply.outcomes) == {Outcome.APPLIED}:
                    done += 1
                    if done % 4 == 0:
                        await host.submit(Configure(paused=done % 8 == 0))
                        await host.submit(Leave("a", incarnation))
                        await host.submit(Release("a", incarnation, rows))
                await asyncio.sleep(0.001)


class Broken:
    """Lets a method raise at its `at`-th call, and for `times` calls."""

    def __init__(self, owner: Any, name: str, make: Callable[[], BaseException], at: int) -> None:
        self.calls, self.raised = 0, 0
        original = getattr(owner, name)

        def broken(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == at:
                self.raised += 1
                raise make()
            return original(*arguments)

        setattr(owner, name, broken)


def owner_of(world: World, place: str) -> Any:
    host = world.hosts["sick"]
    return {
        "store": world.store,
        "shell": world.controllers["sick"],
        "core": host.core,
        "runtime": host.runtime,
        "ticks": host.runtime.ticks,
        "writer": host.runtime.writer,
        "renewals": host.runtime._renewals,
        "waiting": host.runtime._waiting,
    }[place]


@pytest.mark.parametrize("kind", KINDS, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_one_fault_fails_one_group_which_heals(
    place: tuple[str, str], kind: Callable[[], BaseException]
) -> None:
    async def scene(world: World) -> None:
        sick, well = world.hosts["sick"], world.hosts["well"]
        await work(sick, 2)
        if place in AFTER_A_FAULT:
            Broken(world.store, "write", lambda: RuntimeError("first"), 2)
        broken = Broken(
            owner_of(world, place[0]), place[1], kind, at=3 if place[0] == "core" else 1
        )
        rounds = 2
        while not broken.raised:
            await work(sick, 4)
            await asyncio.sleep(0.005)
            rounds += 4
        await work(sick, ROUNDS)
        await work(well, ROUNDS)
        assert [controller.ended for controller in world.controllers.values()] == [[], []]
        assert sick.halted is None and well.halted is None
        assert await world.checkpoints("sick") == [rounds + ROUNDS] * PARTITIONS
        assert await world.checkpoints("well") == [ROUNDS] * PARTITIONS

    play(World("memory:"), scene)


def test_a_group_that_failed_says_so_and_the_others_do_not(url: str) -> None:
    async def scene(world: World) -> None:
        sick, well = world.hosts["sick"], world.hosts["well"]
        await work(sick, 2)
        Broken(world.store, "write", lambda: RuntimeError("the pipe is clogged"), 1)
        before = sick.core.state.generation
        await work(sick, 4)
        assert "the pipe is clogged" in sick.problem and "loaded again" in sick.problem
        assert sick.core.state.generation == before + 1 and well.problem == ""
        assert world.controllers["sick"].fenced == {
            row.partition: row.epoch for row in sick.core.state.rows
        }

    play(World(url), scene)


def test_a_fault_that_stays_is_tried_again_with_longer_pauses_and_told_to_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_runtime, "WELL_WAIT_MS", 200)

    async def scene(world: World) -> None:
        sick, well = world.hosts["sick"], world.hosts["well"]
        await work(sick, 2)
        write, broken, tries = world.store.write, [True], [0]

        def refuses(group: str, *arguments: Any) -> Any:
            if group == "sick" and broken[0]:
                tries[0] += 1
                raise OSError(28, "No space left on device")
            return write(group, *arguments)

        world.store.write = refuses  # type: ignore[method-assign]
        with pytest.raises(DeadlineExceeded, match="No space left"):
            while True:
                await sick.submit(Join((Member("late", 1),)))
        await work(well, ROUNDS)
        tried = tries[0]
        assert 2 <= tried < 60
        broken[0] = False
        await work(sick, ROUNDS)
        assert "times in a row" in sick.problem

    play(World("memory:"), scene)


def test_a_heartbeat_that_waits_hears_of_the_group_that_was_loaded_again() -> None:
    async def scene(world: World) -> None:
        host = world.hosts["sick"]
        first = (await host.submit(Join((Member("a", 1),)))).assignment
        assert first is not None
        beat = Heartbeat("a", 1, (first.generation, first.sequence))
        waiting = asyncio.ensure_future(host.heartbeat(beat, 10.0))
        await asyncio.sleep(0.01)
        Broken(host.runtime.ticks, "begin", lambda: RuntimeError("a fault"), 1)
        newer = (await waiting).assignment
        assert newer is not None and newer.generation == first.generation + 1
        assert newer.grants == first.grants

    play(World("memory:"), scene)


def test_a_newer_coordinator_and_a_lost_registry_are_no_passing_faults() -> None:
    async def scene(world: World) -> None:
        sick, well = world.hosts["sick"], world.hosts["well"]

        def deposed(group: str) -> Any:
            raise CoordinatorDeposed("another leads")

        world.controllers["sick"].lead_again = deposed  # type: ignore[method-assign,assignment]
        Broken(sick.runtime.ticks, "begin", lambda: RuntimeError("a fault"), 1)
        await world.controllers["sick"].over.wait()
        assert isinstance(world.controllers["sick"].ended[0], CoordinatorDeposed)

        def lost(group: str) -> Any:
            raise StoreCorrupted("it went back")

        world.controllers["well"].lead_again = lost  # type: ignore[method-assign,assignment]
        Broken(well.runtime.ticks, "begin", lambda: RuntimeError("a fault"), 1)
        with pytest.raises(StoreCorrupted):
            while True:
                await well.submit(Configure(paused=True))
                await asyncio.sleep(0.001)
        assert well.problem == "it went back" and not world.controllers["well"].ended

    play(World("memory:"), scene)


INPUTS = (
    Join((Member("x" * 201, 1),)),
    Join((Member("a\0b", 1),)),
    Join((Member("\udcff", 1),)),
    Commit("a", 1, (PartitionProgress(0, 1, Progress(1, detail="x" * 3_228)),)),
    Commit("a", 1, (PartitionProgress(0, 1, Progress(2**63)),)),
)


@pytest.mark.parametrize("event", INPUTS, ids=lambda event: repr(event)[:50])
def test_what_no_store_keeps_is_an_answered_error_and_nothing_fails(url: str, event: Any) -> None:
    async def scene(world: World) -> None:
        host = world.hosts["sick"]
        await host.submit(Join((Member("a", 1),)))
        generation = host.core.state.generation
        for _ in range(3):  # Ray makes a call again
            with pytest.raises(UsageError):
                await host.submit(event)
        rows = tuple(
            PartitionProgress(p, host.core.state.rows[p].epoch, Progress(5))
            for p in range(PARTITIONS)
        )
        await host.submit(Commit("a", 1, rows))
        assert await world.checkpoints("sick") == [5] * PARTITIONS
        assert host.problem == "" and host.core.state.generation == generation

    play(World(url), scene)
