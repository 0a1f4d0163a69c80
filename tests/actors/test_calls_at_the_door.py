"""Whatever members and commands are called with: a PxrsError is answered, nothing is applied."""

from __future__ import annotations

import asyncio
import copy
import math
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pxrs_ray.actors.cluster.coordinator_request import GroupRequest, Request
from pxrs_ray.actors.consumer import member_requests
from pxrs_ray.actors.consumer.handler import handler_ref
from pxrs_ray.actors.consumer.member_requests import JoinGroup, SendHeartbeat
from pxrs_ray.actors.coordinator import consumer_replicas, group_requests
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.group_controller import GroupController
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.group_requests import ScaleGroup, StartGroup
from pxrs_ray.actors.coordinator.member_api import MemberApi
from pxrs_ray.actors.coordinator.request_handlers import RequestHandlers
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.config import GroupConfig
from pxrs_ray.errors import PxrsError, UsageError
from pxrs_ray.group.events import PartitionProgress
from pxrs_ray.model import Progress
from pxrs_ray.store.memory import MemoryStore
from tests.actors.test_group_faults import PARTITIONS, FakeController
from tests.settings import group_settings

HERE = SimpleNamespace(get_node_id=lambda: "here")
NASTY: st.SearchStrategy[Any] = st.sampled_from(
    (
        None,
        True,
        -1,
        0,
        1,
        2,
        2**31,
        2**63,
        -(2**64),
        1.0,
        math.inf,
        math.nan,
        "",
        "a",
        "b",
        "x" * 201,
        "a\x00b",
        "\udcff",
        "\x1b[2J",
        b"a",
        [],
        {},
        (),
        [1],
        (0, 1),
        "start",
        "offset",
    )
)
ROWS = st.lists(st.lists(NASTY, max_size=6).map(tuple) | NASTY, max_size=3)
LISTS = ROWS | st.lists(NASTY, max_size=3) | st.dictionaries(st.text(max_size=3), NASTY, max_size=2)
DONE = st.builds(Progress, NASTY, NASTY, NASTY) | NASTY
PROGRESS = st.lists(st.builds(PartitionProgress, NASTY, NASTY, DONE), max_size=3).map(tuple)
# Nearly right calls get furthest.
ARGUMENTS = st.lists(NASTY | LISTS, max_size=5) | st.tuples(
    st.sampled_from("ab"), st.integers(0, 2), LISTS | PROGRESS
).map(list)


class Door:
    """One group, with the real `MemberApi` and commands, and nothing behind that has actors."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.thread = StoreThread(lambda: self.store)
        self.controller = FakeController(self.store, self.thread)
        self.host = GroupHost("g", self.store, self.thread, SystemClock(), self.controller, 100)
        config = GroupConfig(queue="q")
        spec: Any = SimpleNamespace(topology="t", group="g", queue="q", config=config, partitions=4)

        async def keep(text: str) -> None: ...

        self.replica_set = ConsumerReplicas(spec, self.host, keep)
        logs: Any = SimpleNamespace(refused=lambda ours: asyncio.sleep(0))
        self.member_api = MemberApi(self.host, self.replica_set, logs)
        self.group: Any = object.__new__(GroupController)
        self.group.host, self.group.replica_set = self.host, self.replica_set
        self.group._pool = SimpleNamespace(ends=self._ends, offset_at=self._ends)
        self.group.autoscale = SimpleNamespace(pin=self._pin)
        self.handlers = RequestHandlers(self.group, self.replica_set, self.member_api)
        self.pinned: list[Any] = []

    def _pin(self, consumers: int | None) -> None:
        self.pinned.append(consumers)

    async def _ends(self, *_: Any) -> dict[int, Any]:
        return {}

    def everything(self) -> Any:
        state = self.host.core.state
        members = {name: slot.member for name, slot in state.members.items()}
        rows = list(state.rows), members, dict(state.seeks), self.host.core.settings
        return copy.deepcopy((rows, dict(self.replica_set.replicas), self.pinned))

    async def ask(self, request: Request[Any]) -> BaseException | None:
        try:
            await asyncio.wait_for(self.handlers.answer(request), 0.02)
        except TimeoutError:
            return None  # a heartbeat that waits for news, a pause that waits for members
        except PxrsError as error:
            return error
        return None


def requests() -> dict[str, type[GroupRequest[Any]]]:
    modules = (group_requests, member_requests)
    found = {name: getattr(module, name) for module in modules for name in dir(module)}
    kinds = {n: k for n, k in found.items() if isinstance(k, type) and issubclass(k, GroupRequest)}
    return {name: kind for name, kind in kinds.items() if not kind.__subclasses__()}


def request_of(name: str, arguments: list[Any]) -> Request[Any]:
    """The request of that name with these values, whatever they are."""
    kind = requests()[name]
    made = object.__new__(kind)
    given = ["g", *arguments, *[None] * len(fields(kind))]
    made.__dict__.update({each.name: given[n] for n, each in enumerate(fields(kind))})
    return made


@pytest.mark.parametrize("name", sorted(requests()))
def test_any_call_is_answered_by_a_pxrs_error_or_carried_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_node = SimpleNamespace(get_runtime_context=lambda: HERE)
    monkeypatch.setattr(consumer_replicas, "ray", on_a_node)

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(ARGUMENTS)
    def calls(arguments: list[Any]) -> None:
        async def scene() -> None:
            door = Door()
            await door.thread.open()
            door.store.create()
            await door.host.start(
                door.store.lead("g", PARTITIONS, "x"), group_settings(lease_ms=60_000)
            )
            try:
                await door.handlers.answer(JoinGroup("g", "a", "token"))
                before = door.everything()
                error = await door.ask(request_of(name, arguments))
                if error is not None:
                    assert door.everything() == before
                # The group is well all the same, and was never loaded again.
                await door.handlers.answer(SendHeartbeat("g", "a", 1, (0, 0), 0))
                assert door.host.problem == "" and not door.controller.ended
            finally:
                await door.host.close()
                await door.thread.close()

        asyncio.run(scene())

    calls()


def test_a_scale_that_is_refused_pins_nothing() -> None:
    """Else the load would be kept from scaling the group as soon as it is started."""

    async def scene() -> None:
        door = Door()
        for consumers in (0, 3, -1):
            assert isinstance(await door.ask(ScaleGroup("g", consumers)), UsageError)
        assert door.pinned == []

    asyncio.run(scene())


def test_a_scale_whose_group_stops_before_its_turn_pins_nothing() -> None:
    async def scene() -> None:
        door, stopping = Door(), asyncio.Event()
        await door.thread.open()
        door.store.create()
        await door.host.start(door.store.lead("g", PARTITIONS, "x"), group_settings())

        async def stop(_: str) -> None:
            await stopping.wait()

        door.replica_set.supervisor = SimpleNamespace(stop=stop, replicas={})  # type: ignore[assignment]
        stop_first = asyncio.ensure_future(door.replica_set.stop())
        await asyncio.sleep(0)
        scale = asyncio.ensure_future(door.handlers.answer(ScaleGroup("g", 3)))
        await asyncio.sleep(0)
        stopping.set()
        with pytest.raises(UsageError):
            await scale
        await stop_first
        assert door.pinned == []
        await door.host.close()
        await door.thread.close()

    asyncio.run(scene())


def test_a_scale_is_pinned_when_its_turn_has_come() -> None:
    async def scene() -> None:
        door = Door()
        await door.thread.open()
        door.store.create()
        await door.host.start(door.store.lead("g", PARTITIONS, "x"), group_settings())
        door.replica_set.supervisor = SimpleNamespace(  # type: ignore[assignment]
            replicas={}, handler=None
        )
        await door.handlers.answer(ScaleGroup("g", 0))
        assert door.pinned == [0]
        await door.host.close()
        await door.thread.close()

    asyncio.run(scene())


def test_a_member_without_a_name_is_refused() -> None:
    async def main() -> None:
        door = Door()
        await door.thread.open()
        door.store.create()
        await door.host.start(door.store.lead("g", PARTITIONS, "x"), group_settings())
        assert isinstance(await door.ask(JoinGroup("g", "", "token")), UsageError)
        await door.host.close()
        await door.thread.close()

    asyncio.run(main())


def test_options_that_cannot_be_kept_are_refused_before_anything_starts() -> None:
    async def scene() -> None:
        door = Door()
        await door.thread.open()
        door.store.create()
        await door.host.start(door.store.lead("g", PARTITIONS, "x"), group_settings())
        for options in ({"scheduling_strategy": object()}, {"num_cpus": math.nan}):
            error = await door.ask(StartGroup("g", handler_ref("m:f"), 1, options))
            assert error is not None and "Ray options" in str(error)
        assert not door.replica_set.replicas
        await door.host.close()
        await door.thread.close()

    asyncio.run(scene())
