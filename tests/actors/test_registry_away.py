"""The registry is away for longer than leases: who lives goes on, and nobody moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.consumer.group_member import GroupMember
from pxrs_ray.actors.consumer.member_requests import MemberRequest
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.member_api import MemberApi
from pxrs_ray.actors.coordinator.request_handlers import RequestHandlers
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.config import GroupConfig
from pxrs_ray.errors import StoreUnavailable, UnknownMember
from pxrs_ray.group.events import Configure, Died, Dismiss, Heartbeat, Join
from pxrs_ray.group.write_queue import stored_owners
from pxrs_ray.model import Epoch, Grant, Member, Outcome, PartitionId, Progress, Record, WriteKind
from pxrs_ray.store.memory import MemoryStore
from tests.settings import group_settings

PARTITIONS = 4
LEASE_MS = 400
OUTAGE_S = 5 * LEASE_MS / 1_000


class AwayStore(MemoryStore):
    """A store that refuses, or hangs as one behind a dead wire does, until it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.away = ""

    def _answer(self) -> None:
        end_s = time.monotonic() + 1.0
        while self.away == "hangs":
            if time.monotonic() > end_s:
                raise StoreUnavailable("no answer in 1 s")
            time.sleep(0.005)
        if self.away:
            raise StoreUnavailable("connection refused")

    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        self._answer()
        return super().write(group, generation, records)

    def renew(self, *arguments: Any) -> list[Outcome]:
        self._answer()
        return super().renew(*arguments)


class MemberCallbacks:
    """A consumer's work: every partition it holds comes on by an offset at each look."""

    def __init__(self) -> None:
        self.at: dict[PartitionId, int] = {}
        self.dropped_: list[PartitionId] = []
        self.rejoins = 0
        self.runtime: GroupMember

    async def work(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            for partition, held in self.runtime.session.holdings.items():
                at = self.at[partition]
                self.at[partition] += self.runtime.session.fetched(partition, held.epoch, at, 1)

    def started(self, grant: Grant) -> None:
        self.at[grant.partition] = grant.checkpoint

    def draining(self, partition: PartitionId) -> None:
        held = self.runtime.session.holdings[partition]
        self.runtime.stopped(partition, held.epoch)

    def dropped(self, partition: PartitionId) -> None:
        self.dropped_.append(partition)

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        return Progress(self.at[partition], 0, "")

    def rejoined(self, incarnation: int) -> None:
        self.rejoins += 1

    def preparing(self, grant: Grant) -> None: ...

    def unprepared(self, partition: PartitionId) -> None: ...


class Scene:
    """A group's host and member_api with a store that can go away; consumers with direct calls."""

    def __init__(self) -> None:
        self.store = AwayStore()
        self.store.create()
        self.thread = StoreThread(lambda: self.store)
        self.host = GroupHost("g", self.store, self.thread, SystemClock(), self, 1_000)
        config = GroupConfig(queue="q", commit_interval_ms=20)
        self.spec = GroupSpec("t", "t-1", "g", "q", PARTITIONS, 0, config, None)
        replica_set = SimpleNamespace(replicas={}, incarnations={}, spec=self.spec, supervisor=None)
        self.member_api = MemberApi(self.host, replica_set, SimpleNamespace())  # type: ignore[arg-type]
        self.runtimes: list[GroupMember] = []
        self.work: list[asyncio.Future[None]] = []
        self.dismissals: list[Dismiss] = []

    async def consumer(self, member: str) -> MemberCallbacks:
        member_api, hooks = self.member_api, MemberCallbacks()

        class Direct(GroupMember):
            async def _call(self, request: MemberRequest[Any], wait_s: float | None = None) -> Any:
                call = RequestHandlers(member_api).answer(request)
                return await asyncio.wait_for(call, wait_s or request.wait_s)

        incarnation, assignment = await member_api.join(member, f"token of {member}")
        runtime = hooks.runtime = Direct(
            self.spec, member, incarnation, f"token of {member}", hooks
        )
        runtime.machine.lease.length_s = LEASE_MS / 1_000
        runtime.start(assignment)
        self.runtimes.append(runtime)
        self.work.append(asyncio.ensure_future(hooks.work()))
        return hooks

    def stored_owners(self) -> list[tuple[str | None, int, int]]:
        found = self.store.load("g")
        assert found is not None
        return [(row.owner, row.incarnation, row.epoch) for row in found.partitions]

    def moves(self) -> list[str]:
        kinds = (WriteKind.CLAIM, WriteKind.RELEASE)
        return [f"{c.kind} {c.cause}" for c in self.store.changes("g", 0) if c.kind in kinds]

    def fence(self, group: str, epochs: dict[int, int]) -> None: ...

    def led(self, group: str, generation: int, version: int) -> None: ...

    def dismissed(self, group: str, dismiss: Dismiss) -> None:
        self.dismissals.append(dismiss)

    def deposed(self, group: str, error: BaseException) -> None:
        raise AssertionError("nobody else leads") from error


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        world = Scene()
        await world.thread.open()
        settings = group_settings(lease_ms=LEASE_MS, revoke_deadline_ms=LEASE_MS)
        await world.host.start(world.store.lead("g", PARTITIONS, "test"), settings)
        try:
            await asyncio.wait_for(scene(world), 30)
        finally:
            world.store.away = ""
            for work in world.work:
                work.cancel()
            for runtime in world.runtimes:
                await runtime.close()
            await world.host.close()
            await world.thread.close()

    asyncio.run(run())


async def until(check: Callable[[], Any]) -> None:
    for _ in range(2_000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within ten seconds")


@pytest.mark.parametrize("away", ["refuses", "hangs"])
def test_consumers_that_live_keep_all_they_have_through_an_outage_with_a_change_in_it(
    away: str,
) -> None:
    async def scene(world: Scene) -> None:
        old = await world.consumer("a")
        await until(lambda: len(old.at) == PARTITIONS)
        before, began = world.stored_owners(), dict(old.at)
        world.store.away = away
        await asyncio.sleep(0.1)
        # What `pxrs scale` does: a new member's join is decided, and waits.
        joining = asyncio.ensure_future(world.consumer("b"))
        await asyncio.sleep(OUTAGE_S)
        assert world.stored_owners() == before and not joining.done()
        assert old.dropped_ == [] and old.rejoins == 0
        done = dict(old.at)
        assert all(done[partition] > began[partition] for partition in done), "it works on"
        world.store.away = ""
        new = await joining
        await until(lambda: len(new.at) == 2)
        await until(lambda: [owner for owner, *_ in world.stored_owners()].count("b") == 2)
        assert {incarnation for _, incarnation, _ in world.stored_owners()} == {1}
        assert not [move for move in world.moves() if "lease over" in move or "deadline" in move]
        # Two partitions moved, each by a hand-over; nobody was told anything twice.
        assert sum(move.startswith("release") for move in world.moves()) == 2
        # What was done in the outage is where the new owner goes on.
        assert all(checkpoint >= done[partition] for partition, checkpoint in new.at.items())
        assert old.dropped_ == [] and world.dismissals == []

    play(scene)


def test_a_heartbeat_is_answered_from_memory_while_writes_wait() -> None:
    async def scene(world: Scene) -> None:
        _, told = await world.member_api.join("a", "t")
        assert told is not None
        world.store.away = "refuses"
        changing = asyncio.ensure_future(world.host.submit(Configure(paused=True)))
        joining = asyncio.ensure_future(world.member_api.join("b", "u"))
        await asyncio.sleep(0.1)
        slot = world.host.core.state.members["a"]
        until_ms, began_s = slot.until_ms, time.monotonic()
        seen = (told.generation, told.sequence)
        # It is heard, and what is new for it waits; it is answered when its wait is over.
        heard = await world.member_api.heartbeat("a", 1, seen, 10 * LEASE_MS)
        assert heard.assignment is None and heard.lease_ms == LEASE_MS
        assert time.monotonic() - began_s < LEASE_MS / 1_000 / 2
        assert slot.until_ms > until_ms
        began_s = time.monotonic()
        assert (await world.member_api.heartbeat("a", 1, seen, 0)).assignment is None
        assert time.monotonic() - began_s < LEASE_MS / 1_000 / 4
        world.store.away = ""
        await asyncio.gather(changing, joining)

    play(scene)


def test_a_death_is_noted_in_an_outage_and_told_when_the_registry_is_back() -> None:
    async def scene(world: Scene) -> None:
        await world.member_api.join("a", "t")
        world.store.away = "refuses"
        dying = asyncio.ensure_future(world.host.submit(Died("a", 1, "its process died")))
        asking = asyncio.ensure_future(world.host.submit(Heartbeat("a", 1)))
        await asyncio.sleep(0.2)
        # What a status shows is what the store has, whatever is decided.
        shown = stored_owners(world.host.queue.pending())
        assert [shown[p] for p in range(PARTITIONS)] == world.stored_owners()
        # That it is no member is not true in the store: a coordinator that ends now recovers it.
        assert not dying.done() and not asking.done() and world.dismissals == []
        world.store.away = ""
        await dying
        with pytest.raises(UnknownMember):
            await asking
        await until(lambda: [d.member for d in world.dismissals] == ["a"])

    play(scene)


def test_a_silent_member_is_buried_a_lease_after_the_outage_and_not_in_it() -> None:
    async def scene(world: Scene) -> None:
        await world.member_api.join("a", "t")
        world.store.away = "refuses"
        with pytest.raises(StoreUnavailable):
            await world.thread.call(world.store.renew, "g", 1, [("a", 1)], LEASE_MS)
        await asyncio.sleep(OUTAGE_S)
        assert world.host.core.state.rows[0].owner == "a"
        world.store.away = ""
        await until(lambda: [d.cause for d in world.dismissals] == ["lease over, no heartbeat"])

    play(scene)


def test_the_supervisor_is_not_left_with_a_consumer_that_never_began() -> None:
    """A join that waits for longer than a lease: its member is one when it is told."""

    async def scene(world: Scene) -> None:
        world.store.away = "refuses"
        joining = asyncio.ensure_future(world.host.submit(Join((Member("a", 1),))))
        await asyncio.sleep(OUTAGE_S)
        world.store.away = ""
        await joining
        assert len(world.host.core.assignment("a").grants) == PARTITIONS

    play(scene)
