"""Ends: a group, a queue and a topology can be removed, and nothing of them holds anything up."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pxrs_ray.actors import names
from pxrs_ray.actors.consumer.member_requests import JoinGroup, SendHeartbeat
from pxrs_ray.actors.coordinator import deletion
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.errors import BufferAway, LogAway, NotFound, SlotWaits, UsageError
from pxrs_ray.files import Files
from pxrs_ray.group.events import Assignment
from pxrs_ray.store.memory import MemoryStore
from tests.faults.control_world import BUFFERS, ControlWorld, control_world

TWO = {"q": QueueConfig(partitions=2), "r": QueueConfig(partitions=2)}


def play(
    folder: Path, scene: Callable[[ControlWorld], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def run() -> None:
        async with control_world(folder, **{"queues": TWO, **options}) as world:
            await world.call("ping")
            await asyncio.wait_for(scene(world), 30)

    asyncio.run(run())


async def join(world: ControlWorld, group: str, member: str) -> Assignment:
    _, found = await world.call(JoinGroup(group, member, f"token-{member}"))
    assert isinstance(found, Assignment)
    return found


async def known_to_logs(world: ControlWorld, queue: str) -> set[str]:
    found: set[str] = set()
    for buffer in world.buffers.values():
        for end in (await buffer.ends(queue)).values():
            found |= set(end.groups)
    return found


async def fences(world: ControlWorld, queue: str, group: str) -> dict[int, int]:
    found = {}
    for buffer in world.buffers.values():
        found.update(await buffer.fences(queue, group))
    return found


def in_registry(world: ControlWorld) -> set[str]:
    return set(MemoryStore(world.registry).groups())


def test_a_removed_group_leaves_nothing_and_its_epochs_never_come_back(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("q", 0, 5)
        await world.call("group", "g", "q", {})
        old = await join(world, "g", "a")
        plan = await world.call("plan_group_removal", "g")
        assert plan.numbers["lag"] == 5 and any("members read for it: a" in u for u in plan.uses)
        with pytest.raises(UsageError, match="members read for it: a"):
            await world.call("delete_group", "g")
        await world.call("delete_group", "g", True)
        assert in_registry(world) == {"t"}
        assert await known_to_logs(world, "q") == set()
        assert await fences(world, "q", "g") == {}
        with pytest.raises(NotFound, match="no group 'g'"):
            await world.call(SendHeartbeat("g", "a", old.incarnation, (0, 0), 0))
        await world.call("delete_group", "g", True)  # once more is no harm

        await world.call("group", "g", "q", {"start": "end"})
        assert world.checkpoints("g") == {0: 5, 1: 0}
        new = await join(world, "g", "a")
        assert min(g.epoch for g in new.grants) > max(g.epoch for g in old.grants)
        assert new.generation > old.generation
        # A reader of the old life is refused, whatever it still holds.
        for grant in old.grants:
            at = {grant.partition: (grant.epoch, grant.checkpoint)}
            buffer = world.buffers[grant.partition % BUFFERS]
            [refused] = await buffer.fetch("q", "g", at, wait_ms=0)
            assert "drop the partition" in str(refused.error)

    play(tmp_path, scene)


def test_a_removed_queue_takes_the_groups_that_read_it_along_when_it_is_told_to(
    tmp_path: Path,
) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("q", 0, 5)
        await world.call("group", "g", "q", {})
        await world.call("group", "other", "r", {})
        with pytest.raises(UsageError, match="group g reads it"):
            await world.call("delete_queue", "q")
        await world.call("delete_queue", "q", True)
        assert in_registry(world) == {"t", "t/other"}
        assert not (tmp_path / "t" / "q").exists()
        with pytest.raises(NotFound):
            await world.call("queue", "q")
        # The name is free, for a queue of another shape too.
        wanted = PxrsConfig(
            name="t",
            store=world.config.store,
            data_dir=tmp_path,
            queues={"q": QueueConfig(partitions=3), "r": QueueConfig(partitions=2)},
        )
        await world.call("apply", wanted)
        assert (await world.call("status")).queues[0].messages == 0

    play(tmp_path, scene)


def test_a_queue_made_anew_under_an_old_name_is_another(tmp_path: Path) -> None:
    """Its offsets begin anew: what is kept outside must not take its messages for the old ones."""

    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", "q", {})
        await world.call("group", "h", "r", {})
        old, other = [(await world.call("group_spec", name)).topology_id for name in "gh"]
        for _ in range(2):
            await world.call("delete_queue", "q", True)
            await world.call("apply", world.config)
            await world.call("group", "g", "q", {})
            new = (await world.call("group_spec", "g")).topology_id
            assert new != old and new.startswith(other)
            world.life.alive = False
            world.start()
            assert (await world.call("group_spec", "g")).topology_id == new
            assert (await world.call("group_spec", "h")).topology_id == other
            old = new

    play(tmp_path, scene)


def test_a_removed_queue_takes_along_what_is_known_of_its_feeds(tmp_path: Path) -> None:
    """Else a feed that runs again finds itself done, and the queue stays empty."""

    async def scene(world: ControlWorld) -> None:
        spec, _, _ = await world.call("queue", "q")
        for ledger in (names.feeds_of(spec.queue), names.streams_of(spec.queue)):
            of_feeds = replace(spec, queue=ledger, partitions=1, queue_id="")
            await world.buffers[0].open(of_feeds, {}, make=True)
            await world.produce(ledger, 0, 2)
        await world.call("delete_queue", "q", True)
        assert (await world.buffers[0].ping()).queues == ("r",)
        assert {path.name for path in (tmp_path / "t").iterdir() if path.is_dir()} >= {"r"}
        assert not [path for path in (tmp_path / "t").iterdir() if path.name.endswith(".q")]

    play(tmp_path, scene)


def test_a_queue_that_takes_a_groups_dead_letters_is_never_pulled_from_under_it(
    tmp_path: Path,
) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", None, {})
        with pytest.raises(UsageError, match="group g has it as its dead_letter_queue"):
            await world.call("delete_queue", "q.dead", True)
        await world.call("delete_group", "g", True)
        await world.call("delete_queue", "q.dead")
        assert "q.dead" not in (await world.call("config")).queues

    groups = {"g": GroupConfig(queue="q", failure_policy="dead_letter")}
    play(tmp_path, scene, groups=groups)


def test_what_a_file_no_longer_names_stays(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("r", 0, 3)
        await world.call("group", "g", None, {})
        bare = world.config.model_copy(update={"queues": {"q": TWO["q"]}, "groups": {}})
        await world.call("apply", bare)
        assert set((await world.call("config")).queues) == {"q", "r"}
        assert set((await world.call("config")).groups) == {"g"}

    play(tmp_path, scene, groups={"g": GroupConfig(queue="r")})


def test_a_buffer_that_is_away_gets_its_part_when_it_is_back(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", "q", {})
        names = world.life.names
        world.life.armed = True
        await world.call("delete_group", "g")
        at = names.index("buffer.drop_group")
        await world.call("group", "h", "q", {})
        world.life.steps, world.fault.at, world.fault.kind = 0, at, "failed before"
        with pytest.raises(BufferAway):
            await world.call("delete_group", "h")
        assert "t/h" not in in_registry(world)
        await world.coordinator._reopen(0)
        assert await known_to_logs(world, "q") == set()

    play(tmp_path, scene)


def test_what_a_disk_refuses_to_forget_is_forgotten_when_it_goes_again(tmp_path: Path) -> None:
    """By itself: the buffer lives all the time, and nobody asks again."""

    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", "q", {})
        await world.call("group", "h", "r", {})
        for delete, step in (("delete_group", "drop_group"), ("delete_queue", "drop_queue")):
            queue = "r" if delete == "delete_queue" else "q"
            asked = getattr(world.coordinator, delete)
            failing = mock.AsyncMock(side_effect=LogAway("no space"))
            with mock.patch.object(world.buffers[1], step, failing), pytest.raises(LogAway):
                await asked("g" if queue == "q" else queue, True)
            assert failing.await_count
            async with asyncio.timeout(20):
                ends = lambda: world.coordinator._ends  # noqa: E731
                while ends().groups or ends().queues:  # noqa: ASYNC110 - judged from outside
                    await asyncio.sleep(0.05)
            if queue == "q":
                assert await known_to_logs(world, "q") == set()
        assert not (tmp_path / "t" / "r").exists()

    play(tmp_path, scene)


def test_what_cannot_go_yet_is_in_the_way_of_its_own_name_alone(tmp_path: Path) -> None:
    """As while one of the hosts is away: whatever else is wanted goes on."""

    async def scene(world: ControlWorld) -> None:
        bare = world.config.model_copy(update={"queues": {"q": TWO["q"]}, "groups": {}})
        await world.call("apply", bare)
        waits = mock.AsyncMock(side_effect=SlotWaits("buffer 1 waits for its host"))
        with mock.patch.object(world.buffers[1], "drop_queue", waits):
            with pytest.raises(SlotWaits):
                await world.coordinator.delete_queue("r", True)
            await world.call("group", "g", "q", {})
            quicker = {"g": {"queue": "q", "commit_interval_ms": 40}}
            await world.call("apply", bare.changed(groups=quicker))
            with pytest.raises(SlotWaits):
                await world.coordinator.apply(world.config)
        await world.call("apply", world.config)
        assert (await world.buffers[1].ends("r"))[1].end_offset == 0

    play(tmp_path, scene)


def test_a_removed_topology_leaves_neither_rows_nor_files(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("q", 0, 5)
        await world.call("group", "g", "q", {})
        plan = await world.call("plan_topology_removal")
        assert plan.numbers["messages"] == 5
        await world.call("delete_topology")
        assert in_registry(world) == set()
        assert not (tmp_path / "t").exists()

    play(tmp_path, scene)


def test_a_folder_that_cannot_be_removed_is_told_and_goes_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notes would refuse the next topology of that name as one whose registry was emptied."""
    remove = Files.remove_folder

    def cannot(files: Files, folder: Path) -> None:
        if folder == tmp_path / "t":
            raise OSError(errno.EBUSY, "busy")
        remove(files, folder)

    async def scene(world: ControlWorld) -> None:
        monkeypatch.setattr(deletion, "FOLDER_PAUSES_S", (0.01,))
        monkeypatch.setattr(Files, "remove_folder", cannot)
        with pytest.raises(LogAway, match="busy"):
            await world.call("delete_topology")
        monkeypatch.setattr(Files, "remove_folder", remove)
        await world.call("delete_topology")
        assert in_registry(world) == set() and not (tmp_path / "t").exists()

    play(tmp_path, scene)


def test_a_configuration_that_was_cut_off_is_applied_again(tmp_path: Path) -> None:
    """It is in force already, so nothing differs; what did not follow it then follows now."""

    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", None, {})
        wanted = world.config.changed(
            groups={"g": {"commit_interval_ms": 40}}, retention_bytes=1 << 30
        )
        refuses = mock.AsyncMock(side_effect=UsageError("not now"))
        with mock.patch.object(world.buffers[1], "open", refuses), pytest.raises(UsageError):
            await world.coordinator.apply(wanted)
        await world.call("apply", wanted)
        assert (await world.call("group_spec", "g")).config.commit_interval_ms == 40

    play(tmp_path, scene, groups={"g": GroupConfig(queue="q")})


DELAYS = {"q": QueueConfig(partitions=2, delays=True, replies=True)}


def test_what_is_beside_a_queue_goes_with_it_and_is_told(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("q.delayed", 0, 5)
        await world.produce("q.replies", 0, 3)
        await world.call("group", "g", "q", {"processing": {"mode": "by_key"}})
        assert set(world.coordinator._config.queues) >= {"q.delayed", "q.replies", "q.gaps.g"}
        plan = await world.call("plan_queue_removal", "q")
        told = "\n".join(plan.goes)
        for line in ("5 messages of queue q.delayed", "3 messages of queue q.replies", "q.gaps.g"):
            assert line in told
        assert "group q.delayed" in told, "the group that moves them goes, and is told"
        assert plan.uses == ("group g reads it, and is removed too",)
        await world.call("delete_queue", "q", True)
        config = world.coordinator._config
        assert not config.queues and not config.groups
        assert in_registry(world) == {world.config.name}

    play(tmp_path, scene, queues=DELAYS)


def test_what_is_beside_a_queue_does_not_go_alone(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", "q", {"processing": {"mode": "by_key"}})
        for name, remedy in (
            ("q.delayed", "`delays = false` below [queues.q]"),
            ("q.replies", "`pxrs queue delete q` removes both"),
            ("q.gaps.g", "`pxrs group delete g`"),
        ):
            with pytest.raises(UsageError, match=re.escape(remedy)):
                await world.call("delete_queue", name, True)
        assert set(world.coordinator._config.queues) == {"q", "q.delayed", "q.replies", "q.gaps.g"}

    play(tmp_path, scene, queues=DELAYS)


def test_who_else_uses_what_goes_is_told_and_what_cannot_go_keeps_all(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.call("group", "reader", "q.replies", {})
        plan = await world.call("plan_queue_removal", "q")
        assert plan.uses == ("group reader reads q.replies, and is removed too",)
        options = {"failure_policy": "dead_letter", "dead_letter_queue": "q.replies"}
        await world.call("group", "other", "r", options)
        with pytest.raises(
            UsageError, match=r"group other has q\.replies as its dead_letter_queue"
        ):
            await world.call("delete_queue", "q", True)
        assert "q.delayed" in world.coordinator._config.queues

    play(tmp_path, scene, queues={**DELAYS, "r": QueueConfig(partitions=2)})


def test_a_group_takes_its_queue_of_gaps_with_it(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", "q", {"processing": {"mode": "by_key"}})
        plan = await world.call("plan_group_removal", "g")
        assert "q.gaps.g" in plan.goes[0]
        await world.call("delete_group", "g")
        assert set(world.coordinator._config.queues) == {"q", "r"}

    play(tmp_path, scene)


def test_delays_that_are_switched_off_are_moved_on_and_then_can_go(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("q.delayed", 0, 5)
        wanted = world.config.changed(queues={"q": {"delays": False, "replies": False}})
        await world.call("apply", wanted)
        config = world.coordinator._config
        assert not config.queues["q"].delays
        assert "q.delayed" in config.queues and "q.delayed" in config.groups, "they are moved on"
        plan = await world.call("plan_queue_removal", "q.delayed")
        assert "5 messages of queue q.delayed" in plan.goes[0]
        await world.call("delete_queue", "q.delayed", True)
        assert set(world.coordinator._config.queues) == {"q", "q.replies"}

    play(tmp_path, scene, queues=DELAYS)
