"""What a coordinator tells of its buffers: where each is at home, and how it is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.consumer.member_requests import JoinGroup
from pxrs_ray.actors.coordinator import group_status, metrics
from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.actors.coordinator.group_requests import PauseGroup
from pxrs_ray.actors.coordinator.metrics import METRICS, OF_BUFFER, Sources, TopologyMetrics
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.data.protocol import BufferInfo, LogEnds
from pxrs_ray.status.answers import PartitionStatus
from pxrs_ray.status.places import AT_HOME, DEPOSED, MOVING, SILENT, WAITING, BufferStatus
from pxrs_ray.status.problem import Kind
from pxrs_ray.status.stalls import WINDOW_MS
from tests.actors.fake_buffers import until
from tests.actors.test_homes_in_process import Cluster, cluster, coordinator, run
from tests.cli.pictures import buffer_place, buffer_stats, topology_status

__all__ = ["cluster"]


async def places(found: Coordinator) -> tuple[BufferStatus, ...]:
    return (await found.status()).places


def test_each_buffer_is_told_with_host_disk_size_room_and_lease(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        cluster.fakes[1].answers["stats"] = buffer_stats()
        first, second = await places(found)
        assert (first.host, first.node, first.state) == ("10.0.0.1", "here", AT_HOME)
        assert (second.host, second.node, second.disk) == ("10.0.0.2", "there", "d-there")
        assert (first.bytes, first.free_bytes, second.free_bytes) == (None, None, 0)
        assert 0 < second.lease_left_ms <= 1_000 and second.term == 1
        assert (await found.status()).uneven == ()
        await found.shutdown()

    run(scene())


def test_waiting_silence_and_moving_are_told_apart(cluster: Cluster, tmp_path: Path) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        cluster.fakes[0].faults["ping"] = [TimeoutError("no answer")] * 10_000

        async def state(index: int) -> str:
            return (await places(found))[index].state

        await until(lambda: found._pool.state(0)[0] == SILENT)
        assert await state(0) == SILENT
        await found._homing.hold(1)
        assert await state(1) == MOVING
        found._homing.release(1)
        assert await state(1) == AT_HOME
        cluster.nodes.pop()
        cluster.fakes[1].faults["ping"] = [ConnectionError("gone")] * 10_000
        await until(lambda: found._pool.state(1)[0] == WAITING)
        await until(lambda: found._pool.lease_left_ms(1) == 0)
        (_, second) = await places(found)
        assert second.text.startswith("waits for host 10.0.0.2, away for ")
        assert second.away_s is not None and second.lease_left_ms == 0
        await found.shutdown()

    run(scene())


def test_a_buffer_that_serves_a_newer_coordinator_is_told(cluster: Cluster, tmp_path: Path) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        generation = found._pool.grants.generation + 1
        info = BufferInfo("shop", 0, "1", 1, "", (), generation=generation, monotonic_ms=1)
        found._pool._note(info)
        state, told = found._pool.state(0)
        assert state == DEPOSED and f"coordinator {generation} " in told
        await found.shutdown()

    run(scene())


def test_buffers_on_one_node_are_told_when_another_comes(cluster: Cluster, tmp_path: Path) -> None:
    async def scene() -> None:
        there = replace(cluster.nodes.pop(), unknown=True)
        found = coordinator(tmp_path)
        await found.ping()
        assert (await found.status()).uneven == ()
        cluster.nodes.append(there)
        await until(lambda: len(found._homing.nodes) == 2)
        (step,) = (await found.status()).uneven
        assert (step.source, step.target) == ("10.0.0.1", "10.0.0.2")
        await found.shutdown()

    run(scene())


def end_of(offset: int, **options: Any) -> LogEnds:
    return LogEnds(0, 0, offset, offset, 1, 1, 1, 1, **options)


async def first_partition(found: Coordinator) -> PartitionStatus:
    (group,) = (await found.status()).groups
    return group.partitions[0]


def test_an_owner_that_its_log_fences_is_told_though_nobody_complains(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.group("g", "a", {})
        await found.answer(JoinGroup("g", "m", "m-1"))
        epoch = (await first_partition(found)).epoch
        cluster.fakes[0].answers["ends"] = {0: end_of(5, epochs={"g": epoch, "other": 99})}
        assert (await first_partition(found)).fenced_by is None
        cluster.fakes[0].answers["ends"] = {0: end_of(5, epochs={"g": epoch + 2})}
        first = await first_partition(found)
        assert first.fenced_by == epoch + 2 and "m owns it under" in first.fenced
        mine = [each for each in (await found.status()).problems if "P0" in each.where]
        assert [each.kind for each in mine] == [Kind.PARTITION_FENCED]
        await found.shutdown()

    run(scene())


def test_an_owned_partition_that_is_stalled_is_reported(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        later_ms = 0
        monkeypatch.setattr(group_status, "monotonic_ms", lambda: monotonic_ms() + later_ms)
        found = coordinator(tmp_path)
        await found.group("g", "a", {})
        await found.answer(JoinGroup("g", "m", "m-1"))
        cluster.fakes[0].answers["ends"] = {0: end_of(5)}
        assert (await first_partition(found)).stall is None
        cluster.fakes[0].answers["ends"] = {0: end_of(50)}
        assert (await first_partition(found)).stall is None
        later_ms = WINDOW_MS
        first = await first_partition(found)
        assert first.stall is not None and first.stall.grown == 45
        assert first.stall.seconds >= 60
        # Paused, it does not move rightly.
        await found.answer(PauseGroup("g"))
        assert (await first_partition(found)).stall is None
        await found.shutdown()

    run(scene())


class Noted:
    """A metric that keeps what it was set to."""

    made: dict[str, Noted]

    def __init__(self, name: str, *_: Any, **__: Any) -> None:
        self.values: dict[tuple[str, ...], float] = {}
        Noted.made[name] = self

    def set(self, value: float, labels: dict[str, str]) -> None:
        self.values[tuple(labels.values())] = value

    def inc(self, value: float, labels: dict[str, str]) -> None: ...

    def observe(self, value: float, labels: dict[str, str]) -> None: ...


def test_metrics_tell_of_homes_under_labels_that_have_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Noted.made = {}
    for kind in ("Gauge", "Counter", "Histogram"):
        monkeypatch.setattr(metrics, kind, Noted)
    told = TopologyMetrics("shop")
    away = buffer_place(1, state=WAITING, away_s=40.0, lease_left_ms=0)
    status = topology_status(places=(buffer_place(0), away))
    told.report(Sources(status, {}, {0: buffer_stats()}, []))

    def value(name: str, *labels: str) -> float:
        return Noted.made[f"pxrs_{name}"].values["shop", *labels]

    assert [value("buffer_at_home", each) for each in "01"] == [1.0, 0.0]
    assert value("buffer_away_seconds", "1") == 40.0 and value("buffer_lease_seconds", "0") == 9.0
    assert value("buffer_hosts") == 1.0 and value("buffers_uneven") == 0.0
    of_homes = [name for name in METRICS if name.startswith("buffer")]
    assert {METRICS[name][1] for name in of_homes} <= {OF_BUFFER, ("topology",)}
