"""What is asked of buffers and of the registry grows with what changes, not with what is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer import inspection
from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.actors.coordinator.group_status import Observed
from pxrs_ray.actors.coordinator.metrics import (
    METRICS,
    REPEAT_AFTER_S,
    REPORT_EVERY_S,
    Sources,
    TopologyMetrics,
)
from pxrs_ray.config import PxrsConfig
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.protocol import BufferGrant, LogEnds, QueueSpec
from pxrs_ray.group.transitions import PartitionPhase
from pxrs_ray.log.ends_heard import EndsHeard
from pxrs_ray.model import PartitionRow
from pxrs_ray.status.answers import GroupStatus, PartitionStatus, StoreStatus, TopologyStatus
from tests.actors.fake_buffers import stand_in
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world
from tests.leases import let_serve
from tests.settings import log_limits

QUEUES = 20


def test_a_group_is_made_without_a_word_about_other_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = stand_in(monkeypatch)
    queues = {f"q{number}": {"partitions": 2} for number in range(QUEUES)}
    config = PxrsConfig(name="shop", data_dir=tmp_path, lease_ttl_seconds=1.0, queues=queues)

    async def scene() -> None:
        found = Coordinator(config, 2)
        await found.ping(begin=True)
        assert [len(fake.opened) for fake in fakes] == [QUEUES, QUEUES]
        for fake in fakes:
            fake.calls.clear()
        assert await found.group("g", "q3", {}) == "g"
        assert [fake.calls.count("open") for fake in fakes] == [1, 1]
        for fake in fakes:
            fake.calls.clear()
        await found.status()
        asked = [call for call in fakes[0].calls if "ends" in call]
        assert asked == ["changed_ends"], "one question for all queues"
        await found.shutdown()

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_status_hears_of_logs_that_have_changed_and_knows_the_others(tmp_path: Path) -> None:
    async def scene() -> None:
        buffer = Buffer("t", 0, 1, str(tmp_path))
        spec = QueueSpec("q", 16, log_limits(), queue_id="1")
        for make in (True, False):
            await buffer.open(spec, {}, make=make)
        await let_serve(buffer)
        status = EndsHeard()

        async def told() -> list[int]:
            answer = await buffer.changed_ends(status.heard)
            assert status.take(answer) == {"q": await buffer.ends("q")}, "it knows all of it"
            return sorted(answer.ends.get("q", ()))

        assert await told() == list(range(16))
        assert await told() == []
        frame = Batch.of([None], [b"x"], timestamp_ms=1).to_wire(b"p" * 16, 0, 0)
        await buffer.append("q", [(5, *frame)], 0)
        await buffer.passed("q", "g", {3: 0})
        await buffer.fence("q", "g", {4: 7})
        await buffer.fetch("q", "g", {6: (2, 0)}, wait_ms=0)
        assert await told() == [3, 4, 5, 6]
        await buffer.drop_group("q", "g")
        # The append is synced at some time, which is a change too.
        assert set(await told()) - {5} == {3, 4, 6}
        assert set(await told()) <= {5}
        late, status = await buffer.changed_ends(("", 0)), EndsHeard()
        await buffer.append("q", [(5, *_next())], 0)
        await told()
        assert status.take(late) == {"q": await buffer.ends("q")}, "an older answer says nothing"
        await buffer.drop_queue("q")
        answer = await buffer.changed_ends(status.heard)
        assert status.take(answer) == {}
        await buffer.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_status_of_very_many_logs_hears_of_them_by_and_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "ENDS_TOLD_MOST", 5)

    async def scene() -> None:
        buffer = Buffer("t", 0, 1, str(tmp_path))
        spec = QueueSpec("q", 12, log_limits(), queue_id="1")
        for make in (True, False):
            await buffer.open(spec, {}, make=make)
        await let_serve(buffer)
        status, told = EndsHeard(), []
        while True:
            answer = await buffer.changed_ends(status.heard)
            found = status.take(answer)
            told.append(len(answer.ends["q"]))
            if answer.is_all:
                break
            await buffer.passed("q", "g", {0: 0})
        assert told[:2] == [5, 5] and found == {"q": await buffer.ends("q")}
        await buffer.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def _next() -> tuple[bytes, object]:
    return Batch.of([None], [b"y"], timestamp_ms=1).to_wire(b"p" * 16, 0, 1)


def test_a_ping_tells_the_ends_that_its_coordinator_has_not_heard(tmp_path: Path) -> None:
    async def scene() -> None:
        buffer = Buffer("t", 0, 1, str(tmp_path))
        spec = QueueSpec("q", 16, log_limits(), queue_id="1")
        for make in (True, False):
            await buffer.open(spec, {}, make=make)
        info = await buffer.ping(BufferGrant(1, 1, 60_000))
        assert len(info.ends["1"]) == 16
        heard = (info.incarnation, info.ends_to)
        again = await buffer.ping(BufferGrant(1, 1, 60_000, ends_heard=heard))
        assert not again.ends and again.ends_to == info.ends_to
        lost = await buffer.ping(BufferGrant(1, 1, 60_000, ends_heard=("another life", 9)))
        assert len(lost.ends["1"]) == 16
        await buffer.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_gauge_that_stays_as_it_is_is_not_set_with_each_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, metrics = [], TopologyMetrics("shop")
    gauge: Any = SimpleNamespace(set=lambda value, labels: made.append((value, labels["group"])))
    now_s = [100.0]
    monkeypatch.setattr("pxrs_ray.actors.coordinator.metrics.time.monotonic", lambda: now_s[0])
    metrics._made["paused"] = gauge
    for value, group in ((0, "a"), (0, "a"), (0, "b"), (1, "a"), (0, "b")):
        metrics._set("paused", value, group)
    assert made == [(0.0, "a"), (0.0, "b"), (1.0, "a")]
    now_s[0] += REPEAT_AFTER_S
    metrics._set("paused", 1, "a")
    assert made[3:] == [(1.0, "a")], "Ray forgets one that nobody sets"


def test_a_partition_that_sleeps_is_told_as_it_was_until_anything_of_it_changes() -> None:
    phases, refusals = {0: PartitionPhase.OWNED, 1: PartitionPhase.OWNED}, dict[int, str]()
    state = SimpleNamespace(phase=phases.__getitem__)
    controller: Any = SimpleNamespace(
        host=SimpleNamespace(core=SimpleNamespace(state=state)),
        logs=SimpleNamespace(refusals=refusals),
        spec=SimpleNamespace(group="g"),
    )
    observed = Observed()
    row, end = PartitionRow(0, "c", 1, 7, 40), LogEnds(0, 0, 50, 50, None, None, 1, 2)
    place: list[Any] = [row, 40, end]

    def told() -> PartitionStatus:
        return observed.standing(controller, *place)

    first = told()
    assert (first.owner, first.checkpoint, first.lag, first.lag_ms) == ("c", 40, 10, None)
    assert told() is first
    other = observed.standing(controller, replace(row, partition=1), 40, replace(end, partition=1))
    assert other.partition == 1 and told() is first
    place[2] = replace(end, end_offset=60)
    assert told().lag == 20
    place[:2] = replace(row, checkpoint=60), 60
    assert (told().checkpoint, told().lag, told().lag_ms) == (60, 0, 0)
    place[1] = 55  # from before the logs were asked, and the row is newer
    assert (told().checkpoint, told().lag) == (55, 5)
    place[0] = replace(row, epoch=8)
    assert told().epoch == 8
    place[2] = replace(end, epochs={"g": 9})
    assert told().fenced_by == 9
    place[2] = None
    assert told().end_offset is None and told().lag is None
    phases[0] = PartitionPhase.REVOKING
    assert told().phase == "revoking"
    refusals[0] = "its log knows a higher epoch"
    assert told().refused == "its log knows a higher epoch"


def test_metrics_of_a_partition_that_sleeps_are_not_set_with_each_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, metrics, now_s = [], TopologyMetrics("shop"), [100.0]
    monkeypatch.setattr("pxrs_ray.actors.coordinator.metrics.time.monotonic", lambda: now_s[0])
    metrics._set = lambda name, value, *labels: made.append((name, value, labels))  # type: ignore[method-assign]
    asleep = PartitionStatus(0, "owned", "c", 1, 5, 5, 0, 0, 0)
    awake = replace(asleep, partition=1)

    def report(*partitions: PartitionStatus) -> list[tuple[str, float]]:
        made.clear()
        group: Any = GroupStatus("shop", "g", "q", 1, 1, "sticky", False, 1, partitions, (), "")
        metrics._report_group(group, None)
        return [(labels[1], value) for name, value, labels in made if name == "lag_messages"]

    assert report(asleep, awake) == [("0", 0), ("1", 0)]
    late = replace(awake, end_offset=8, lag=3)
    assert report(asleep, late) == [("1", 3)]
    assert ("consumer_lag_messages", 3, ("g", "c")) in made, "of all, also of those that sleep"
    now_s[0] += REPEAT_AFTER_S
    assert report(asleep, late) == [("0", 0), ("1", 3)], "Ray forgets one that nobody sets"


def test_what_is_0_of_nearly_all_partitions_is_told_of_those_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, metrics, now_s = [], TopologyMetrics("shop"), [100.0]
    monkeypatch.setattr("pxrs_ray.actors.coordinator.metrics.time.monotonic", lambda: now_s[0])
    gauge: Any = SimpleNamespace(
        set=lambda value, labels: made.append((labels["partition"], value))
    )
    metrics._made["lag_seconds"] = gauge
    asleep = PartitionStatus(0, "owned", "c", 1, 5, 5, 0, 0, 0)
    late = replace(asleep, partition=1, end_offset=8, lag=3, lag_ms=2_000)

    def report(*partitions: PartitionStatus) -> list[tuple[str, float]]:
        made.clear()
        now_s[0] += REPEAT_AFTER_S
        group: Any = GroupStatus("shop", "g", "q", 1, 1, "sticky", False, 1, partitions, (), "")
        metrics._report_group(group, None)
        return list(made)

    others = [replace(asleep, partition=number) for number in (2, 3)]
    assert report(asleep, late, *others) == [("0", 0), ("1", 2.0)]
    assert report(asleep, replace(late, lag=0, lag_ms=0), *others) == [("0", 0), ("1", 0)]
    assert report(asleep, replace(late, lag=0, lag_ms=0), *others) == [("0", 0)]


def test_reports_are_rarer_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, now_s = TopologyMetrics("shop"), [100.0]
    monkeypatch.setattr("pxrs_ray.actors.coordinator.metrics.time.monotonic", lambda: now_s[0])
    for name in METRICS:
        metrics._made[name] = SimpleNamespace(
            set=lambda *_: None, inc=lambda *_: None, observe=lambda *_: None
        )
    sleeps = PartitionStatus(0, "owned", "c", 1, 5, 5, 0, 0, 0)
    disk_free = iter(range(1_000_000, 2_000_000, 4_096))

    def pause_s(partition: PartitionStatus) -> float:
        now_s[0] += metrics.pause_s()
        group: Any = GroupStatus("shop", "g", "q", 1, 1, "sticky", False, 1, (partition,), (), "")
        store = StoreStatus("sqlite", "a file", True, 0, 0, 0.0)
        status = TopologyStatus("shop", "", 1, 0.0, 1, store, (), (group,))
        stats: Any = SimpleNamespace(
            rss_bytes=1, bytes_kept=2, fenced=0, disk_free_bytes=next(disk_free), refused=0
        )
        stats.links = stats.link_calls = stats.strangers_refused = 0
        metrics.report(Sources(status, {}, {0: stats}, []))
        return metrics.pause_s()

    assert pause_s(sleeps) == REPORT_EVERY_S, "all is new"
    for _ in range(4):
        assert pause_s(sleeps) == 2 * REPORT_EVERY_S, "a disk's free room is always another"
    behind = replace(sleeps, end_offset=6, lag=1)
    assert pause_s(behind) == REPORT_EVERY_S
    assert pause_s(behind) == 2 * REPORT_EVERY_S
    assert pause_s(replace(behind, checkpoint=6, lag=0)) == REPORT_EVERY_S
    assert 2 * REPORT_EVERY_S < 2 * 10.0, "Ray drops a gauge after two exports of its own"


def _partition_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("pxrs-partition-")]


def test_a_partition_without_messages_has_no_thread_and_is_handed_back_all_the_same(
    world: Callable[..., World],
) -> None:
    handled: list[tuple[int, int]] = []

    def handle(message: Delivery) -> None:
        handled.append((message.partition, message.offset))

    async def scene() -> None:
        here = world(partitions=40)
        await here.up()
        consumer = await here.consumer("m", handle)
        await until(lambda: len(here.host.core.state.grants("m")) == 40)
        assert _partition_threads() == []
        await here.produce([None, None], partition=3)
        await here.produce([None], partition=9)
        await until(lambda: len(handled) == 3)
        assert sorted(handled) == [(3, 0), (3, 1), (9, 0)]
        assert sorted(_partition_threads()) == ["pxrs-partition-3", "pxrs-partition-9"]
        assert await consumer._live().leave("test", 10.0)
        assert all(row.owner is None for row in here.host.core.state.rows)
        assert here.checkpoints()[3] == 2 and here.checkpoints()[9] == 1
        await here.down()
        assert _partition_threads() == []

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_handler_that_wants_to_hear_of_its_partitions_hears_of_those_that_sleep(
    world: Callable[..., World],
) -> None:
    told: list[tuple[str, int]] = []

    class Hearing:
        def on_assigned(self, partition: int, checkpoint: int) -> None:
            told.append(("assigned", partition))

        def on_revoked(self, partition: int) -> None:
            told.append(("revoked", partition))

        def handle(self, message: Delivery) -> None: ...

    async def scene() -> None:
        here = world(partitions=3)
        await here.up()
        consumer = await here.consumer("m", Hearing())
        await until(lambda: sorted(told) == [("assigned", p) for p in range(3)])
        assert await consumer._live().leave("test", 10.0)
        assert sorted(told)[3:] == [("revoked", p) for p in range(3)]
        await here.down()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_thread_that_cannot_be_had_is_a_fault_of_one_partition_that_passes(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[tuple[int, int]] = []
    refused: list[str] = []
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if thread.name == "pxrs-partition-1" and len(refused) < 2:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    async def scene() -> None:
        here = world(partitions=2)
        await here.up()
        await here.consumer("m", lambda message: handled.append((message.partition, 0)))
        await until(lambda: len(here.host.core.state.grants("m")) == 2)
        monkeypatch.setattr(threading.Thread, "start", starts)
        for partition in range(2):
            await here.produce([None], partition=partition)
        await until(lambda: sorted(handled) == [(0, 0), (1, 0)])
        assert len(refused) == 2
        await here.down()

    asyncio.run(asyncio.wait_for(scene(), 60))
