"""Faults that an earlier implementation of the same idea had. Each must stay impossible."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.own_store import JsonFileStore
from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.consumer.member_requests import CommitProgress, JoinGroup, ReleasePartitions
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.errors import UnknownMember
from pxrs_ray.group.events import Assignment, Dismiss, Heartbeat, Join, PartitionProgress
from pxrs_ray.model import Incarnation, Member, MemberId, Outcome, Progress, Snapshot
from tests.actors.conftest import Stage, send
from tests.actors.load import Load
from tests.actors.recording import Recorder, eventually
from tests.settings import group_settings

pytestmark = [pytest.mark.ray, pytest.mark.lent]


def test_messages_sent_before_the_first_consumer_registers_are_processed_once(
    stage: Stage,
) -> None:
    topology = stage.deploy(partitions=4)
    send(topology, 100)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=2)
    send(topology, 20, first=100)
    eventually(lambda: group.lag() == 0)
    assert Counter(stage.notebook.payloads()) == Counter(f"m{n}" for n in range(120))


def test_a_join_in_mid_stream_repeats_nothing_and_no_checkpoint_passes_the_log(
    stage: Stage,
) -> None:
    topology = stage.deploy(partitions=8)
    group = topology.group("g", queue="q", commit_interval_ms=20)
    group.start(Recorder(stage.notes), consumers=1)
    with Load(topology, per_second=600) as load:
        for consumers in (2, 3):
            goal = len(stage.notebook.notes()) + 200
            eventually(lambda: len(stage.notebook.notes()) > goal)  # noqa: B023
            group.scale(consumers)
            for p in group.status().partitions:
                assert p.end_offset is not None and p.checkpoint <= p.end_offset
    eventually(lambda: group.lag() == 0)
    assert Counter(stage.notebook.payloads()) == Counter(f"m{n}" for n in range(load.sent))
    assert all(p.checkpoint == p.end_offset for p in group.status().partitions)


def test_a_leftover_of_an_old_epoch_cannot_commit_though_its_id_owns_the_partition_again(
    stage: Stage,
) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q")
    send(topology, 10)
    coordinator = BlockingCoordinatorClient(topology.name)

    def join(token: str) -> tuple[Incarnation, Assignment]:
        incarnation, assignment = coordinator.call(JoinGroup("g", "me", token))
        assert assignment is not None
        return incarnation, assignment

    def commit(incarnation: Incarnation, epoch: int, checkpoint: int) -> tuple[Outcome, ...]:
        rows = (PartitionProgress(0, epoch, Progress(checkpoint)),)
        return coordinator.call(CommitProgress("g", "me", incarnation, rows))

    first, assignment = join("token-1")
    assert join("token-1") == (first, assignment), "a repeat changes nothing"
    old = assignment.grants[0].epoch
    assert commit(first, old, 3) == (Outcome.APPLIED,)
    again, assignment = join("token-2")
    new = assignment.grants[0].epoch
    assert again > first and new > old and assignment.grants[0].checkpoint == 3
    with pytest.raises(UnknownMember, match="join again"):
        commit(first, old, 9)
    assert commit(again, old, 9) == (Outcome.FENCED,)
    late = ReleasePartitions("g", "me", again, (PartitionProgress(0, old, Progress(9)),))
    assert coordinator.call(late) == (Outcome.FENCED,)
    assert group.status().partitions[0].checkpoint == 3
    assert commit(again, new, 4) == (Outcome.APPLIED,)


def test_the_flush_on_revoke_is_accepted(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    # Nothing is committed while a partition is owned: only the hand-over can carry the progress.
    group = topology.group("g", queue="q", commit_interval_ms=600_000)
    group.start(Recorder(stage.notes), consumers=1)
    send(topology, 80)
    eventually(lambda: len(stage.notebook.notes()) == 80)
    assert group.lag() == 80
    group.scale(2)
    moved = eventually(lambda: [c for c in group.history() if c.kind == "release"])
    ends = {p.partition: p.end_offset for p in group.status().partitions}
    assert moved and all(c.checkpoint == ends[c.partition] for c in moved)
    group.stop()
    assert group.lag() == 0
    group.start(Recorder(stage.notes), consumers=1)
    send(topology, 1, first=80)
    eventually(lambda: len(stage.notebook.notes()) > 80)
    assert Counter(stage.notebook.payloads()) == Counter(f"m{n}" for n in range(81))


class Foreign(JsonFileStore):
    """A store that nobody has heard of."""

    renewed: list[tuple[MemberId, Incarnation]]

    def renew(
        self,
        group: str,
        generation: int,
        members: Sequence[tuple[MemberId, Incarnation]],
        lease_ms: int,
    ) -> list[Outcome]:
        self.renewed += members
        return super().renew(group, generation, members, lease_ms)


class NobodyToTell:
    """A shell without actors."""

    def fence(self, group: str, epochs: dict[int, int]) -> None: ...

    def dismissed(self, group: str, dismiss: Dismiss) -> None: ...

    def deposed(self, group: str, error: BaseException) -> None:
        raise AssertionError(error)

    async def lead_again(self, group: str) -> Snapshot:
        raise AssertionError("nothing fails here")

    def led(self, group: str, generation: int, version: int) -> None: ...


def test_a_store_that_is_not_one_of_the_known_ones_gets_heartbeats_too(tmp_path: Path) -> None:
    store = Foreign(tmp_path / "registry.json")
    store.renewed = []
    lease_ms = 300

    async def run() -> tuple[Any, ...]:
        thread = StoreThread(lambda: store)
        await thread.open()
        store.create()
        host = GroupHost("g", store, thread, SystemClock(), NobodyToTell(), history_keep=100)
        snapshot = store.lead("g", 2, "test")
        await host.start(snapshot, group_settings(lease_ms=lease_ms))
        await host.submit(Join((Member("me", 1),)))
        end_s = time.monotonic() + 4 * lease_ms / 1_000
        while time.monotonic() < end_s:
            await host.submit(Heartbeat("me", 1))
            assert store.expired("g") == ()
            await asyncio.sleep(lease_ms / 10_000)
        owners = tuple(row.owner for row in host.core.state.rows)
        await host.close()
        await thread.close()
        return owners

    assert asyncio.run(run()) == ("me", "me")
    assert len(store.renewed) >= 6 and set(store.renewed) == {("me", 1)}
