"""Whatever members and commands are called with: a PxrsError is answered, nothing is applied."""

from __future__ import annotations

import asyncio
import copy
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pxrs_ray.actors.consumer.handler import handler_ref
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.group_controller import COMMANDS, STAFF_COMMANDS, GroupController
from pxrs_ray.actors.coordinator.group_runtime import GroupRuntime
from pxrs_ray.actors.coordinator.member_api import CALLS, MemberApi
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.config import GroupConfig
from pxrs_ray.errors import PxrsError, UsageError
from pxrs_ray.store.memory import MemoryStore
from tests.actors.test_group_faults import PARTITIONS, Shell
from tests.settings import group_settings

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
# Nearly right calls get furthest.
ARGUMENTS = st.lists(NASTY | LISTS, max_size=5) | st.tuples(
    st.sampled_from("ab"), st.integers(0, 2), LISTS
).map(list)


class Door:
    """One group, with the real desk and the real commands, and nothing behind that has actors."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.thread = StoreThread(lambda: self.store)
        self.controller = Shell(self.store, self.thread)
        self.host = GroupRuntime("g", self.store, self.thread, SystemClock(), self.controller, 100)
        config = GroupConfig(queue="q")
        spec: Any = SimpleNamespace(topology="t", group="g", queue="q", config=config, partitions=4)

        async def keep(text: str) -> None: ...

        self.replica_set = ConsumerReplicas(spec, self.host, keep)
        logs: Any = SimpleNamespace(refused=lambda ours: asyncio.sleep(0))
        self.desk = MemberApi(self.host, self.replica_set, logs)
        self.group: Any = object.__new__(GroupController)
        self.group.host, self.group.replica_set = self.host, self.replica_set
        self.group._pool = SimpleNamespace(ends=self._ends, offset_at=self._ends)
        self.group.autoscale = SimpleNamespace(pin=self._pin)
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

    async def call(self, kind: str, name: str, arguments: list[Any]) -> BaseException | None:
        target = self.desk.call if kind == "member" else self.group.command
        try:
            await asyncio.wait_for(target(name, *arguments), 0.02)
        except TimeoutError:
            return None  # a heartbeat that waits for news, a pause that waits for members
        except PxrsError as error:
            return error
        return None


CALLED = [("member", name) for name in sorted(CALLS)]
CALLED += [("command", name) for name in sorted(COMMANDS | STAFF_COMMANDS | {"__init__", "spec"})]


@pytest.mark.parametrize(("kind", "name"), CALLED)
def test_any_call_is_answered_by_a_pxrs_error_or_carried_out(kind: str, name: str) -> None:
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
                await door.desk.call("join", "a", "token")
                before = door.everything()
                error = await door.call(kind, name, arguments)
                if error is not None:
                    assert door.everything() == before
                # The group is well all the same, and was never loaded again.
                await door.desk.call("heartbeat", "a", 1, (0, 0), 0)
                assert door.host.problem == "" and not door.controller.ended
            finally:
                await door.host.close()
                await door.thread.close()

        asyncio.run(scene())

    calls()


def test_a_member_without_a_name_is_refused() -> None:
    async def main() -> None:
        door = Door()
        await door.thread.open()
        door.store.create()
        await door.host.start(door.store.lead("g", PARTITIONS, "x"), group_settings())
        assert isinstance(await door.call("member", "join", ["", "token"]), UsageError)
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
            error = await door.call("command", "start", [handler_ref("m:f"), 1, options])
            assert error is not None and "Ray options" in str(error)
        assert not door.replica_set.replicas
        await door.host.close()
        await door.thread.close()

    asyncio.run(scene())
