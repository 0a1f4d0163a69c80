"""Hosted replicas, without Ray: what becomes of damaged logs, and of processes and disks that come
back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pxrs_ray.actors.coordinator import replica_controller
from pxrs_ray.data.protocol import Appended
from pxrs_ray.log import scrub
from pxrs_ray.log.inspect import verify
from pxrs_ray.supervision.supervisor import problems_here
from tests.replica_processes import QUEUE, Group, played
from tests.settings import log_limits


def test_who_starts_again_leaves_the_processors_to_who_was_elected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_controller, "ROOM_S", 60.0)
    monkeypatch.setattr(replica_controller, "SHORT_LIFE_MS", 0)

    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        led, starts = group.leading, group.start

        def start(disk: str) -> None:
            placement = group.placement
            served = group.controller._settled.get(0) == placement.epoch
            began.append((disk, placement.leader, served))
            starts(disk)

        began: list[tuple[str, str, bool]] = []
        group.start = start  # type: ignore[method-assign]
        await group.kill(led)
        group.ended.remove(led)
        await group.until(lambda: group.leading != led, "another one leads")
        await asyncio.sleep(0.2)
        assert began == [], "it waits for that"
        await group.open()
        await group.until(lambda: began, "it starts again")
        assert began[0] == (led, group.leading, True)
        await group.until(lambda: len(group.isr()) == 2, "both are in sync")
        follower = group.following
        began.clear()
        await group.kill(follower)
        group.ended.remove(follower)
        await group.until(lambda: began, "who follows starts again at once")

    played(scene, tmp_path)


def test_a_disk_that_comes_back_when_it_was_replaced_has_its_old_logs_dropped(
    tmp_path: Path,
) -> None:
    async def scene(group: Group) -> None:
        assert isinstance(await group.append(0), Appended)
        lost = group.following_in_sync()
        await group.kill(lost)
        group.homing.nodes = [node for node in group.nodes() if node.disk != lost]
        await group.until(
            lambda: lost not in group.isr() and len(group.isr()) == 2, "another has caught up"
        )
        assert group.lies_on(lost)
        group.ended.remove(lost)
        slots = {lost: {0: (1, 1)}}
        group.homing.nodes = [
            replace(node, slots=slots.get(node.disk, {})) for node in group.nodes()
        ]
        await group.until(lambda: lost in group.gone, "a process began there, and went")
        assert not group.lies_on(lost) and lost not in group.placement.replicas
        assert await group.read() == [0]

    played(scene, tmp_path, disks=3)


@pytest.mark.parametrize("who", ["leading", "following"])
def test_a_damaged_log_is_dropped_and_taken_from_the_others_while_appends_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(scrub, "STEP_REST_S", 0.01)
    monkeypatch.setattr(scrub, "ROUND_REST_S", 0.05)

    async def scene(group: Group) -> None:
        for number in range(60):
            assert isinstance(await group.append(number), Appended)
        disk = getattr(group, who)
        damaged = group.handles[disk].buffer
        assert damaged is not None and damaged._host is not None
        [log] = damaged._manager.all_logs()
        path = log.sealed()[0].path
        data = bytearray(path.read_bytes())
        data[300] ^= 1
        path.write_bytes(data)
        await group.until(lambda: group.leading != disk, "another one leads")
        await group.open()
        assert isinstance(await group.append(60), Appended)
        await group.until(lambda: "is damaged here" in damaged._host.over, "its life is over")
        await group.kill(disk)  # the timer of the process is not this loop's
        await group.again(disk)
        await group.until(lambda: len(group.isr()) == 2, "it has all again")
        again = group.handles[disk].buffer
        assert again is not None and again._manager.folder.is_dir()
        [log] = again._manager.all_logs()
        assert log.end_offset == 61 and verify(log.folder)[1:] == (61, [])
        assert not list(log.folder.parent.glob("*.aside"))
        assert await group.read() == list(range(61))

    played(scene, tmp_path, limits=log_limits(segment_bytes_max=1_200, index_interval_bytes=300))


def test_the_last_one_in_sync_keeps_a_damaged_log_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "STEP_REST_S", 0.01)
    monkeypatch.setattr(scrub, "ROUND_REST_S", 0.05)

    async def scene(group: Group) -> None:
        for number in range(60):
            assert isinstance(await group.append(number), Appended)
        await group.kill(group.following)
        await group.until(lambda: len(group.isr()) == 1, "it leads alone")
        leader = group.handles[group.leading].buffer
        assert leader is not None and leader._host is not None
        [log] = leader._manager.all_logs()
        data = bytearray(log.sealed()[0].path.read_bytes())
        data[300] ^= 1
        log.sealed()[0].path.write_bytes(data)
        logs = leader._host._logs
        await group.until(lambda: logs.damaged == {(QUEUE, 0)}, "it is found")
        await asyncio.sleep(1.0)
        assert not leader._host.over and log.folder.is_dir(), "nobody else has it"
        assert any("damaged at position" in told for told in problems_here())
        assert isinstance(await group.append(60), Appended)

    played(scene, tmp_path, limits=log_limits(segment_bytes_max=1_200, index_interval_bytes=300))
