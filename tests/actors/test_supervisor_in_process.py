"""A supervisor whose consumers are stand-ins: whatever is raised, who is wanted comes to work."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.actors.consumer.specs import ConsumerSpec, GroupSpec
from pxrs_ray.actors.coordinator import consumer_replica as hand_module
from pxrs_ray.actors.coordinator import consumer_supervisor as supervisor_module
from pxrs_ray.actors.coordinator.consumer_autopsy import PROCESS_DIED
from pxrs_ray.actors.coordinator.consumer_supervisor import ConsumerSupervisor
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.config import GroupConfig
from pxrs_ray.errors import DeadlineExceeded, PxrsError
from pxrs_ray.group import replica_lives as lives_module
from pxrs_ray.group.events import Dismiss, Join
from pxrs_ray.processing.suspects import Death
from pxrs_ray.steps import Steps
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.supervision.supervisor import problems_here
from tests.actors.ends import KINDS
from tests.actors.in_process import until
from tests.actors.test_group_faults import FakeController
from tests.settings import group_settings

PARTITIONS = 4
EVERY: dict[str, Callable[[], BaseException]] = {
    **KINDS,
    "DeadlineExceeded": lambda: DeadlineExceeded("the group is not well"),
}


class Actor:
    """A consumer's actor as far as a supervisor sees it."""

    def __init__(self, world: World, spec: ConsumerSpec) -> None:
        self.world, self.spec = world, spec
        self.pid = next(world.pids)
        self.died = world.loop.create_future()  # made on a thread, as the real ones are
        self.begun = 0

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self, f"_{name}"))

    def _ready(self) -> Any:
        # Ray's references have a future of the other sort, which `wrap_future` takes as it is.
        return SimpleNamespace(future=lambda: self._answered("ready"))

    def _begin(self, *arguments: Any) -> Awaitable[tuple[int, str]]:
        self.begun += 1
        return self._answered("begin")

    def _answered(self, place: str) -> asyncio.Future[tuple[int, str]]:
        answer = asyncio.get_running_loop().create_future()
        try:
            self.world.at(place)
        except StopIteration as error:
            answer.set_exception(RuntimeError(repr(error)))
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result((self.pid, "elsewhere"))
        return answer

    def _finish(self) -> Awaitable[None]:
        return asyncio.sleep(0)


class World:
    """A group with a supervisor; `faults` says what raises where, and how often."""

    def __init__(self) -> None:
        self.pids = itertools.count(1_000)
        self.loop = asyncio.get_running_loop()
        self.actors: list[Actor] = []
        self.faults: dict[str, list[BaseException]] = {}
        self.places: list[str] = []
        self.store = MemoryStore()
        self.thread = StoreThread(lambda: self.store)
        controller = self.controller = FakeController(self.store, self.thread)
        self.host = GroupHost("t/g", self.store, self.thread, SystemClock(), controller, 100)
        config = GroupConfig(queue="q")
        spec = GroupSpec("t", "t-1", "g", "q", PARTITIONS, 1, config)
        self.supervisor = ConsumerSupervisor(
            spec, self.host, HandlerRef("m:f", None, "auto", "f"), {}, lambda: None
        )

    def at(self, place: str) -> None:
        self.places.append(place)
        if self.faults.get(place):
            raise self.faults[place].pop()

    async def up(self) -> None:
        await self.thread.open()
        self.store.create()
        snapshot = self.store.lead("t/g", PARTITIONS, "x")
        await self.host.start(snapshot, group_settings(lease_ms=60_000))
        submit = self.host.submit

        async def submitted(event: Any) -> Any:
            self.at("join" if isinstance(event, Join) else "bury")
            return await submit(event)

        self.host.submit = submitted  # type: ignore[method-assign]

    async def down(self) -> None:
        await self.supervisor.abandon()
        await self.supervisor._supervisor.close()
        await self.host.close()
        await self.thread.close()

    def working(self) -> bool:
        """Whether every wanted consumer is a member, has begun, and is watched by one alone."""
        members = self.host.core.state.members
        return all(
            replica.state == "running"
            and replica.member in members
            and members[replica.member].member.incarnation == replica.incarnation
            and replica.handle.begun
            and len(replica.tasks) == 1
            for replica in self.supervisor.replicas.values()
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    made: list[World] = []

    def make_consumer(spec: ConsumerSpec) -> Any:
        made[-1].at("make")
        made[-1].actors.append(Actor(made[-1], spec))
        return made[-1].actors[-1]

    async def end_of(handle: Actor) -> str:
        await asyncio.shield(handle.died)
        made[-1].at("end")
        return PROCESS_DIED

    @asynccontextmanager
    async def process_end(pid: int) -> AsyncIterator[Any]:
        made[-1].at("watch")
        yield asyncio.get_running_loop().create_future()

    async def autopsy(*arguments: Any) -> Any:
        made[-1].at("autopsy")
        return Death()

    def die(handle: Actor) -> None:
        if not handle.died.done():
            handle.died.set_result(None)

    def kill(handle: Actor) -> None:
        handle.world.loop.call_soon_threadsafe(die, handle)

    context = SimpleNamespace(get_node_id=lambda: "here")
    fakes = {"make_consumer": make_consumer, "end_of": end_of, "autopsy": autopsy}
    for name, fake in {**fakes, "process_end": process_end}.items():
        monkeypatch.setattr(supervisor_module, name, fake)
    ray = SimpleNamespace(get_runtime_context=lambda: context)
    monkeypatch.setattr(hand_module, "ray", ray)
    monkeypatch.setattr(gcs, "ray", SimpleNamespace(kill=kill))
    monkeypatch.setattr(asyncio, "wrap_future", lambda future: future)
    monkeypatch.setattr(lives_module, "RESPAWN_PAUSE_S", 0.001)

    def make() -> World:
        made.append(World())
        return made[-1]

    return make


def run(work: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("place", ["ready", "join", "begin", "watch"])
def test_who_is_wanted_comes_to_work_whatever_its_start_meets(
    world: Callable[[], World], place: str, kind: str
) -> None:
    async def main() -> None:
        here = world()
        await here.up()
        here.faults[place] = [EVERY[kind]() for _ in range(2)]
        try:
            await here.supervisor.add(["g-0", "g-1", "g-2"])
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit):
            assert place == "join", "who asked for consumers is told what was refused"
        except BaseException:
            assert place == "join"
        assert len(here.supervisor.replicas) == 3
        await until(
            lambda: not here.faults[place] and here.working(), 10, lambda: here.supervisor.replicas
        )
        if place != "join":
            assert any("g-" in line for line in problems_here())
        await here.down()

    run(main)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("place", ["end", "autopsy", "bury", "make", "join"])
def test_who_died_is_replaced_whatever_that_meets(
    world: Callable[[], World], place: str, kind: str
) -> None:
    async def main() -> None:
        here = world()
        await here.up()
        await here.supervisor.add(["g-0", "g-1"])
        await until(here.working)
        dead = here.supervisor.replicas["g-0"].handle
        # What tells of a death fails but once: then there is another way on.
        here.faults[place] = [EVERY[kind]() for _ in range(2 if place in ("make", "join") else 1)]
        dead.died.set_result(None)
        await until(
            lambda: here.supervisor.replicas["g-0"].handle is not dead and here.working(), 10
        )
        assert not here.faults[place]
        assert here.supervisor.replicas["g-1"].handle.begun == 1
        alive = [actor for actor in here.actors if not actor.died.done()]
        assert len(alive) == 2
        if not (place == "bury" and issubclass(type(EVERY[kind]()), PxrsError)):
            assert any("g-0" in line for line in problems_here())
        await here.down()

    run(main)


def test_its_end_is_looked_for_before_it_may_begin(world: Callable[[], World]) -> None:
    async def main() -> None:
        here = world()
        await here.up()
        await here.supervisor.add(["g-0"])
        await until(here.working)
        assert [place for place in here.places if place in ("watch", "begin")] == ["watch", "begin"]
        await here.down()

    run(main)


def test_a_death_that_was_reported_starts_no_timer_that_kills(world: Callable[[], World]) -> None:
    """The core answers it by a dismissal, as it does of one that is silent and may live."""

    async def scene() -> None:
        here = world()
        await here.up()
        timers: list[str] = []

        def timer(life: Any, incarnation: int) -> Steps[None]:
            timers.append(life.member)
            yield from ()

        here.supervisor.lives.end_if_still_silent = timer  # type: ignore[method-assign]
        controller: Any = here.controller
        controller.dismissed = lambda group, dismiss: here.supervisor.dismissed(dismiss)
        await here.supervisor.add(["c1", "c2"])
        await until(here.working)
        here.actors[0].died.set_result(None)
        await until(lambda: len(here.actors) == 3 and here.working())
        assert timers == []
        # One that is only silent is not spared.
        dismissed = Dismiss("c2", here.supervisor.replicas["c2"].incarnation, "lease over", False)
        here.supervisor.dismissed(dismissed)
        await until(lambda: timers == ["c2"])
        await here.down()

    run(scene)


def test_who_failed_and_is_restarted_by_hand_is_replaced_by_one_alone(
    world: Callable[[], World],
) -> None:
    """Two replacements would end each other's process, and see their own ended, for ever."""

    async def main() -> None:
        here = world()
        await here.up()
        await here.supervisor.add(["g-0"])
        replica = here.supervisor.replicas["g-0"]
        # As one is whose handler could not be loaded again, between two tries.
        here.supervisor.beside(replica, here.supervisor.lives._respawn(replica, "it died"))
        replica.state = "failed"
        await here.supervisor.restart("g-0")
        await until(lambda: len(here.actors) > 1 and here.working(), 10)
        await asyncio.sleep(0.2)
        assert len(here.actors) <= 3
        assert here.working()
        await here.down()

    run(main)
