"""The net over control calls: each step of making, moving, removing and ending is failed in turn.

Rules of this file. A scenario is a call that somebody makes of the coordinator. It is made once in
peace, which tells its steps (store writes, calls of buffers); then, per step and kind of fault, in
a world of its own, made again as callers do, and judged from outside: by what the registry holds,
what the logs know, and what a member is granted.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pxrs_ray.actors.consumer.member_requests import (
    CommitProgress,
    JoinGroup,
    LeaveGroup,
    ReleasePartitions,
)
from pxrs_ray.actors.coordinator.group_requests import SeekGroup
from pxrs_ray.actors.names import feeds_of
from pxrs_ray.config import GroupConfig, QueueConfig
from pxrs_ray.errors import DeadlineExceeded, NotFound
from pxrs_ray.group.events import Assignment, PartitionProgress
from pxrs_ray.model import Progress
from pxrs_ray.store.memory import MemoryStore
from tests.faults import FaultReport
from tests.faults.control_world import BUFFERS, ControlWorld, Fault, control_world, every_fault

RUN_WAIT_S = 60.0
QUEUES = {"q": QueueConfig(partitions=2), "r": QueueConfig(partitions=2)}
GROUPS = {"kept": GroupConfig(queue="r")}
CAME = {0: 5, 1: 3}
Step = Callable[[ControlWorld], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Scenario:
    """`act` is under fault; `judge` raises AssertionError for a promise that is broken."""

    name: str
    prepare: Step
    act: Step
    judge: Step


def check(wanted: object, found: object, what: str) -> None:
    """Fail, saying both."""
    assert wanted == found, f"{what}: {found!r}, and should be {wanted!r}"


async def join(world: ControlWorld, group: str, member: str) -> Assignment:
    """Join as a member, and answer what it is granted."""
    _, found = await world.call(JoinGroup(group, member, f"token of {member}"))
    assert isinstance(found, Assignment)
    return found


async def worked(world: ControlWorld) -> None:
    """A group that has passed everything of its queue, and nobody in it."""
    await world.call("group", "g", "q", {})
    mine = await join(world, "g", "m")
    rows = tuple(
        PartitionProgress(g.partition, g.epoch, Progress(CAME[g.partition])) for g in mine.grants
    )
    await world.call(CommitProgress("g", "m", mine.incarnation, rows))
    await world.call(LeaveGroup("g", "m", mine.incarnation, "done"))
    await world.call(ReleasePartitions("g", "m", mine.incarnation, rows))


async def nothing(_: ControlWorld) -> None:
    """Nothing to prepare."""


async def logs_know(world: ControlWorld, queue: str, group: str) -> dict[int, int]:
    """How far the logs think that a group is: retention waits for it there."""
    found = {}
    for buffer in world.buffers.values():
        for partition, end in (await buffer.ends(queue)).items():
            if group in end.groups:
                found[partition] = end.groups[group]
    return dict(sorted(found.items()))


async def messages(world: ControlWorld, queue: str) -> int:
    """How many ever came to a queue."""
    ends = [await buffer.ends(queue) for buffer in world.buffers.values()]
    return sum(end.end_offset for found in ends for end in found.values())


async def fences(world: ControlWorld, queue: str, group: str) -> dict[int, int]:
    """The epochs that the logs have seen."""
    found = {}
    for buffer in world.buffers.values():
        found.update(await buffer.fences(queue, group))
    return found


def registry(world: ControlWorld) -> list[str]:
    """The groups that the registry holds."""
    return sorted(MemoryStore(world.registry).groups())


async def begin_at_end(world: ControlWorld) -> None:
    await world.again("group", "g", "q", {"start": "end"})


async def begun_at_end(world: ControlWorld) -> None:
    check(CAME, world.checkpoints("g"), "start='end'")
    if await logs_know(world, "q", "g") != CAME:
        await world.settled()  # a buffer that was away for a moment is told in the next round
    check(CAME, await logs_know(world, "q", "g"), "what the logs keep for the group")
    await world.produce("q", 0, 2)
    mine = await join(world, "g", "m")
    check(CAME, {g.partition: g.checkpoint for g in mine.grants}, "what a member is granted")
    check(["t", "t/g", "t/kept"], registry(world), "the registry's groups")


async def seek(world: ControlWorld) -> None:
    await world.again(SeekGroup("g", "offset", 2))


async def sought(world: ControlWorld) -> None:
    check({0: 2, 1: 2}, world.checkpoints("g"), "seek to 2")
    mine = await join(world, "g", "n")
    check({0: 2, 1: 2}, {g.partition: g.checkpoint for g in mine.grants}, "what is granted then")
    seen = await fences(world, "q", "g")
    low = [g.partition for g in mine.grants if g.epoch < seen.get(g.partition, 0)]
    check([], low, "partitions granted below what their logs have seen")


async def delete_group(world: ControlWorld) -> None:
    world.old_fences = await fences(world, "q", "g")  # type: ignore[attr-defined]
    await world.again("delete_group", "g")


async def group_gone(world: ControlWorld) -> None:
    await world.call("delete_group", "g")
    check(["t", "t/kept"], registry(world), "the registry's groups")
    check({}, await logs_know(world, "q", "g"), "what the logs keep for the group")
    check({}, await fences(world, "q", "g"), "fences of the group")
    check(["kept"], sorted((await world.call("config")).groups), "the configuration's groups")
    await world.call("group", "g", "q", {})
    check({0: 0, 1: 0}, world.checkpoints("g"), "where it begins anew")
    mine = await join(world, "g", "n")
    old: dict[int, int] = world.old_fences  # type: ignore[attr-defined]
    low = [g.partition for g in mine.grants if g.epoch <= old.get(g.partition, 0)]
    check([], low, "partitions granted under an epoch that was given out before")


async def fed(world: ControlWorld) -> None:
    """A group that has passed everything of a queue that a feed knows."""
    await worked(world)
    spec, _, _ = await world.call("queue", "q")
    for make in (True, False):
        of_feeds = replace(spec, queue=feeds_of("q"), partitions=1)
        await world.buffers[0].open(of_feeds, {}, make=make)
    await world.produce(feeds_of("q"), 0, 1)
    world.old_identity = (await world.call("group_spec", "g")).topology_id  # type: ignore[attr-defined]


async def delete_queue(world: ControlWorld) -> None:
    await world.again("delete_queue", "q", True)


async def queue_gone(world: ControlWorld) -> None:
    await world.call("delete_queue", "q", True)
    check(["t", "t/kept"], registry(world), "the registry's groups")
    check(False, (world.folder / "q").exists(), "whether the queue's folder is there")
    check(["r"], sorted((await world.call("config")).queues), "the configuration's queues")
    check(
        4,
        await messages(world, "r"),
        "messages of the other queue",
    )
    check({0: 0, 1: 0}, world.checkpoints("kept"), "the other group")
    await world.call("apply", world.config)
    check(
        0,
        await messages(world, "q"),
        "messages of the queue made anew",
    )
    known = [queue for buffer in world.buffers.values() for queue in (await buffer.ping()).queues]
    check([], [queue for queue in known if queue not in ("q", "r")], "what is known of its feeds")
    await world.call("group", "g", "q", {})
    old: str = world.old_identity  # type: ignore[attr-defined]
    found = (await world.call("group_spec", "g")).topology_id
    check(False, found == old, "whether its messages are known outside as those before")


async def apply(world: ControlWorld) -> None:
    options = {"kept": {"commit_interval_ms": 40}}
    wanted = world.config.changed(queues={"s": {"partitions": 3}}, groups=options, history_keep=77)
    await world.again("apply", wanted)


async def applied(world: ControlWorld) -> None:
    config = await world.call("config")
    check((["q", "r", "s"], 77), (sorted(config.queues), config.history_keep), "what is in force")
    spec = await world.call("group_spec", "kept")
    check(40, spec.config.commit_interval_ms, "what is in force in a group")
    await world.produce("s", 2, 1)
    world.life.alive = False
    world.start()
    config = await world.call("config")
    check((["q", "r", "s"], 77), (sorted(config.queues), config.history_keep), "what comes back")


async def shut_down(world: ControlWorld) -> None:
    # As `Topology.shutdown`, which kills what is left where the answer was lost.
    with contextlib.suppress(NotFound, DeadlineExceeded):
        await world.again("shutdown")


async def goes_on(world: ControlWorld) -> None:
    world.life.alive = False
    await world.restart_buffers()
    world.start()
    await world.call("ping")
    check(CAME, world.checkpoints("g"), "checkpoints after the shutdown")
    mine = await join(world, "g", "n")
    check(CAME, {g.partition: g.checkpoint for g in mine.grants}, "what is granted then")
    await world.produce("q", 0, 1)


async def delete_topology(world: ControlWorld) -> None:
    await world.again("delete_topology")


async def topology_gone(world: ControlWorld) -> None:
    check([], registry(world), "the registry's groups")
    check(False, world.folder.exists(), "whether the topology's folder is there")


SCENARIOS = (
    Scenario("a group begins at the end", nothing, begin_at_end, begun_at_end),
    Scenario("a group is sought back", worked, seek, sought),
    Scenario("a group is deleted", worked, delete_group, group_gone),
    Scenario("a queue is deleted", fed, delete_queue, queue_gone),
    Scenario("a configuration is applied", nothing, apply, applied),
    Scenario("a topology shuts down", worked, shut_down, goes_on),
    Scenario("a topology is deleted", worked, delete_topology, topology_gone),
)


async def _play(scenario: Scenario, fault: Fault, folder: Path) -> int:
    """Run a scenario under a fault; answers how many steps its act had. Raises what is broken."""
    async with control_world(folder, fault, queues=QUEUES, groups=GROUPS) as world:
        await world.call("group", "kept", None, {})
        for partition, count in CAME.items():
            await world.produce("q", partition, count)
            await world.produce("r", partition, 2)
        await scenario.prepare(world)
        world.life.armed = True
        await scenario.act(world)
        steps = world.life.steps
        for life in world.lives:
            life.armed = False
        await scenario.judge(world)
        return steps


def play(scenario: Scenario, fault: Fault) -> int:
    """The same in a folder and an event loop of its own."""
    folder = Path(tempfile.mkdtemp(prefix="control-"))
    try:
        return asyncio.run(asyncio.wait_for(_play(scenario, fault, folder), RUN_WAIT_S))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(scenarios: Iterable[Scenario] = SCENARIOS, every: int = 1) -> FaultReport:
    """Every fault at every step of each scenario; of a quick look only each `every`-th."""
    reached, failures = 0, []
    for scenario in scenarios:
        for number, fault in enumerate(every_fault(play(scenario, Fault()))):
            if number % every:
                continue
            try:
                play(scenario, fault)
            except (Exception, asyncio.CancelledError) as error:
                failures.append(
                    f"{scenario.name}, step {fault.at} ({fault.reached}) {fault.kind}: "
                    f"{type(error).__name__}: {error}"
                )
            reached += bool(fault.reached)
    return FaultReport(reached, failures)


assert BUFFERS == 2, "each partition of these queues is on a buffer of its own"
