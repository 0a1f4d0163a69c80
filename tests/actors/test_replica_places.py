"""Hosted replicas, without Ray: they leave disks that are drained or lost, while appends go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pxrs_ray.actors.buffer import replica_host
from pxrs_ray.actors.coordinator import replica_controller
from pxrs_ray.actors.coordinator.replica_followers import ReplicasWanted
from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import BufferAway, UsageError
from pxrs_ray.replication.slot_leader import SlotLeader
from tests.replica_processes import SLOT, Group, played


class Load:
    """Appends one message after the other, whoever serves; each until it is acknowledged."""

    def __init__(self, group: Group) -> None:
        self._group, self.done, self._over = group, 0, False
        self._task = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        while not self._over:
            try:
                answer = await self._group.append(self.done, wait_ms=300)
            except (BufferAway, AssertionError):
                await self._again()
                continue
            if isinstance(answer, Appended):
                self.done += 1
                await asyncio.sleep(0.002)
            else:
                await self._again()

    async def _again(self) -> None:
        """As a coordinator that has found a new leader."""
        await asyncio.sleep(0.02)
        try:
            async with asyncio.timeout(0.5):  # another one may lead by then
                await self._group.open()
        except (BufferAway, AssertionError, TimeoutError):
            await asyncio.sleep(0.05)

    async def goes_on(self, more: int = 5) -> None:
        wanted = self.done + more
        await self._group.until(lambda: self.done >= wanted or self._task.done(), "appends go on")
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        self._over = True
        async with asyncio.timeout(10):
            await self._task


@asynccontextmanager
async def load(group: Group) -> AsyncIterator[Load]:
    """Appends all the while; in the end nothing of them is missing."""
    running = Load(group)
    try:
        await running.goes_on()
        yield running
        await running.goes_on()
    finally:
        await running.end()
    await group.until(lambda: group.serves is not None, "it serves")
    assert set(range(running.done)) <= set(await group.read())


def drain(group: Group, disk: str) -> None:
    group.draining.add(disk)
    group.homing.nodes = group.nodes()


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_drained_host_is_left_by_its_leader_first_then_by_its_copy(
    tmp_path: Path, replicas: int
) -> None:
    async def scene(group: Group) -> None:
        async with load(group) as running:
            led, fewest = group.leading, replicas
            process = group.handles[led].buffer
            drain(group, led)
            while led in group.placement.replicas:
                fewest = min(fewest, len(group.isr()))
                await asyncio.sleep(0.005)
            assert group.leading != led and led not in group.isr()
            assert fewest == replicas, "there were never fewer copies"
            assert process is not None and process._host is not None
            await running.goes_on()
            await group.until(lambda: led in group.gone, "its process has ended")
            assert not group.lies_on(led) and "no replica of the slot" in process._host.over

    played(scene, tmp_path, disks=replicas + 1, replicas=replicas)


def test_a_drained_host_that_nothing_can_take_the_place_of_is_led_elsewhere_and_told(
    tmp_path: Path,
) -> None:
    async def scene(group: Group) -> None:
        async with load(group):
            led = group.leading
            drain(group, led)
            await group.until(lambda: group.leading != led, "another leads")
            await group.until(lambda: group.controller.reports(), "it is told")
            [told] = [r.text for r in group.controller.reports() if "add a host" in r.text]
            assert "has 1 of 2 replicas on hosts that stay" in told
            assert len(group.placement.replicas) == 2

    played(scene, tmp_path)


def test_a_disk_that_is_lost_is_replaced_where_three_are_wanted(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        async with load(group):
            for _ in range(2):
                lost = group.leading
                await group.kill(lost)
                group.homing.nodes = [n for n in group.nodes() if n.disk not in group.ended]
                await group.until(
                    lambda: len(group.isr()) == 3 and lost not in group.placement.replicas,  # noqa: B023
                    "another has taken its place",
                )

    played(scene, tmp_path, disks=5, replicas=3)


def test_time_that_a_disk_was_away_is_counted_on_by_the_next_coordinator(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        lost = group.following_in_sync()
        await group.kill(lost)
        group.homing.nodes = [node for node in group.nodes() if node.disk != lost]
        await group.until(lambda: '"away_ms":{"' in group.document.replace(" ", ""), "noted")
        await group.controller.close()
        group.lead()
        assert group.controller._away.overdue(900) == {lost}

    played(scene, tmp_path)


def test_leadership_is_handed_over_and_the_one_that_led_follows_as_it_is(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        async with load(group) as running:
            for _ in range(3):
                led = group.leading
                process = group.handles[led].buffer
                assert await group.controller.hand_over(SLOT) == led
                await group.until(lambda: group.leading != led, "another serves")  # noqa: B023
                await running.goes_on()
                await group.until(lambda: len(group.isr()) == 2, "it is in sync")
                assert group.handles[led].buffer is process, "it was not started anew"
                assert process is not None and process._host is not None and not process._host.over
            await group.kill(group.following)
            await group.until(lambda: len(group.isr()) == 1, "one is left")
            with pytest.raises(UsageError, match="it leads alone"):
                await group.controller.hand_over(SLOT)

    played(scene, tmp_path)


def test_a_replica_is_moved_to_another_host(tmp_path: Path) -> None:
    async def scene(group: Group) -> None:
        async with load(group):
            for which in (group.leading, group.following_in_sync()):
                spare = ({*group.disks} - {*group.placement.replicas}).pop()
                moved = await group.controller.move(SLOT, f"h{spare}", f"h{which}")
                assert (moved.source, moved.target) == (f"h{which}", f"h{spare}")
                await group.until(lambda: group.isr() == {*group.placement.replicas}, "in sync")
                assert spare in group.isr() and which not in group.isr()
                await group.until(lambda: which in group.gone, "it is gone")  # noqa: B023
                group.gone.clear()
            with pytest.raises(UsageError, match="has a replica on host"):
                await group.controller.move(SLOT, f"h{group.leading}", None)

    played(scene, tmp_path, disks=3)


def test_a_process_that_was_looked_at_since_keeps_its_logs_whoever_dismisses_it(
    tmp_path: Path,
) -> None:
    async def scene(group: Group) -> None:
        follower = group.handles[group.following].buffer
        assert follower is not None and isinstance(await group.append(0), Appended)
        assert not await follower.dismiss(1, 0, ["q"])
        assert not await follower.dismiss(0, 1 << 60, ["q"])
        assert group.lies_on(group.following)
        assert await follower.dismiss(2, 0, ["q"])
        assert not group.lies_on(group.following)

    played(scene, tmp_path)


def test_the_number_of_replicas_and_the_least_in_sync_change_while_appends_go_on(
    tmp_path: Path,
) -> None:
    async def scene(group: Group) -> None:
        async with load(group) as running:
            for replicas, least in ((3, 2), (2, 1), (3, 3), (2, 2), (2, 1)):
                group.controller.follow(ReplicasWanted(replicas, least, 1_000, ""))
                await group.until(
                    lambda: len(group.isr()) == len(group.placement.replicas) == replicas,  # noqa: B023
                    "as many are in sync",
                )
                await running.goes_on()
            group.controller.follow(ReplicasWanted(2, 2, 1_000, ""))
            await group.until(lambda: leader_of(group)._settings.min_isr == 2, "it is heard")
            lost = group.following_in_sync()
            await group.kill(lost)
            await group.until(lambda: not leader_of(group).takes, "it leaves the set")
            group.controller.follow(ReplicasWanted(2, 1, 1_000, ""))
            await running.goes_on()

    played(scene, tmp_path, disks=3)


def leader_of(group: Group) -> SlotLeader:
    buffer = group.serves.buffer if group.serves is not None else None
    assert buffer is not None and buffer._host is not None
    leader = buffer._host.replica.leader
    assert leader is not None
    return leader


def test_a_process_that_ends_again_and_again_is_started_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk for one: each start takes a second of a CPU."""
    monkeypatch.setattr(replica_controller, "AGAIN_S", 0.05)

    async def scene(group: Group) -> None:
        made, make = [0], group.controller._make

        def counted(*where: object) -> object:
            made[0] += 1
            return make(*where)

        group.controller._make = counted
        await group.kill(group.following)
        await asyncio.sleep(2)
        assert 2 <= made[0] <= 7

    played(scene, tmp_path)


def test_a_copy_takes_no_more_than_there_is_room_for_and_a_live_change_lets_it_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_host, "FRAMES_BYTES", 1)  # one frame is a message

    async def scene(group: Group) -> None:
        for number in range(40):
            assert isinstance(await group.append(number), Appended)
        slow = ReplicasWanted(3, 1, 1_000, catch_up_bytes_per_s=1)
        group.controller.follow(slow)
        await group.until(lambda: len(group.placement.replicas) == 3, "one more is placed")
        await asyncio.sleep(1.0)
        assert isinstance(await group.append(40), Appended), "nobody waits for it"
        assert len(group.isr()) == 2
        group.controller.follow(ReplicasWanted(3, 1, 1_000))
        await group.until(lambda: len(group.isr()) == 3, "it has caught up")
        assert await group.read() == list(range(41))

    played(scene, tmp_path, disks=3)
