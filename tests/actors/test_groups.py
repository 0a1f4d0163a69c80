"""Groups of consumer actors: who owns what, handlers of every shape, and steering while running."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from pxrs_ray.config import GroupConfig, Ordered, QueueConfig
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery
from tests.actors.conftest import Stage, send
from tests.actors.recording import (
    BatchRecorder,
    HookRecorder,
    Note,
    Notebook,
    Recorder,
    eventually,
)

pytestmark = [pytest.mark.ray, pytest.mark.lent]


def all_done(stage: Stage, group: Any, count: int) -> list[Note]:
    """Wait until the group has passed everything, and see that each message was processed once."""
    eventually(lambda: group.lag() == 0, what=f"lag {group.lag}")
    notes = stage.notebook.notes()
    assert Counter(note.payload for note in notes) == Counter(f"m{n}" for n in range(count))
    for offsets in stage.notebook.offsets().values():
        assert offsets == list(range(len(offsets))), "in order, each once"
    return notes


def test_three_consumers_share_eight_partitions(stage: Stage) -> None:
    topology = stage.deploy(partitions=8)
    group = topology.group("billing", queue="q")
    group.start(Recorder(stage.notes), consumers=3)
    assert list(group.status().owners.values()) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    send(topology, 100)
    notes = all_done(stage, group, 100)
    by_key: dict[str, list[int]] = {}
    epochs = {partition.partition: partition.epoch for partition in group.status().partitions}
    for note in notes:
        by_key.setdefault(note.key, []).append(int(note.payload[1:]))
        assert (note.epoch, note.incarnation, note.attempt) == (epochs[note.partition], 1, 1)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    owners = {p: member for member, ps in group.status().owners.items() for p in ps}
    assert all(owners[note.partition] == note.member for note in notes)
    assert len({note.pid for note in notes}) == 3


def test_two_groups_read_the_same_queue_each_for_itself(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    first, second = topology.group("one", queue="q"), topology.group("two", queue="q")
    (stage.folder / "two").mkdir()
    first.start(Recorder(stage.notes))
    second.start(Recorder(stage.folder / "two"))
    send(topology, 30)
    all_done(stage, first, 30)
    eventually(lambda: second.lag() == 0)
    assert len(Notebook(stage.folder / "two").notes()) == 30
    assert {g.group for g in topology.status().groups} == {"one", "two"}


@pytest.mark.parametrize("shape", ["function", "batch function", "async", "class", "import path"])
def test_handlers_of_every_shape(stage: Stage, shape: str) -> None:
    folder = stage.notes

    def one(message: Delivery) -> None:
        Recorder(folder).handle(message)

    def batch(messages: DeliveredBatch) -> None:
        BatchRecorder(folder).handle_batch(messages)

    async def later(message: Delivery) -> None:
        import asyncio

        await asyncio.sleep(0)
        Recorder(folder).handle(message)

    class Whole:
        def __init__(self) -> None:
            self.recorder = Recorder(folder)

        def handle(self, message: Delivery) -> None:
            self.recorder.handle(message)

    handlers: dict[str, Any] = {
        "function": one,
        "batch function": batch,
        "async": later,
        "class": Whole,
        "import path": "tests.actors.handlers:record",
    }
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    options = {}
    if shape == "import path":
        options = {"runtime_env": {"env_vars": {"NOTES": str(folder)}}}
    group.start(handlers[shape], consumers=1, **options)
    send(topology, 20)
    all_done(stage, group, 20)
    assert bool(stage.notebook.notes("batch")) == (shape == "batch function")


def test_a_class_hears_of_its_partitions(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    group.start(HookRecorder(stage.notes))
    send(topology, 10)
    all_done(stage, group, 10)
    assert sorted((n.key, n.payload) for n in stage.notebook.notes("assigned")) == [
        ("0", "0"),
        ("1", "0"),
    ]
    ends = {p.partition: p.checkpoint for p in group.status().partitions}
    group.stop()
    assert sorted(n.key for n in stage.notebook.notes("revoked")) == ["0", "1"]
    assert len(stage.notebook.notes("closed")) == 1
    order = [n.what for n in stage.notebook.notes(None)]
    assert order.index("assigned") < order.index("done") and order[-1] == "closed"
    group.start(HookRecorder(stage.notes))
    eventually(lambda: len(stage.notebook.notes("assigned")) == 4)
    again = {int(n.key): int(n.payload) for n in stage.notebook.notes("assigned")[2:]}
    assert again == ends


@pytest.mark.parametrize("mode", ["interval", "batch", "message"])
def test_commit_modes(stage: Stage, mode: str) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group(
        "g", queue="q", processing=Ordered(commit_mode=mode), commit_interval_ms=20
    )
    group.start(Recorder(stage.notes))
    send(topology, 40)
    all_done(stage, group, 40)
    if mode == "message":
        store = topology.status().store
        assert store.writes >= 40 / 2, "each message was committed on its own, or with a neighbour"


def test_a_slow_message_holds_up_only_its_partition(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q", lease_ttl_seconds=1.0)
    folder = stage.notes

    def handle(message: Delivery) -> None:
        import time

        if message.payload == b"m0":
            time.sleep(2.5)
        Recorder(folder).handle(message)

    group.start(handle, consumers=1)
    send(topology, 80)
    notes = eventually(lambda: len(found := stage.notebook.notes()) == 80 and found)
    slow = next(note for note in notes if note.payload == "m0")
    others = [note.at_s for note in notes if note.partition != slow.partition]
    assert max(others) < slow.at_s
    # Slow is not dead: two and a half leases passed, and nothing moved.
    assert len({note.epoch for note in notes}) == 1


def test_scaling_moves_what_it_must_and_repeats_nothing(stage: Stage) -> None:
    topology = stage.deploy(partitions=8)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes, work_s=0.002), consumers=1)
    sent = 0
    for consumers in (3, 2, 4, 1):
        send(topology, 150, first=sent)
        sent += 150
        group.scale(consumers)
        owners = group.status().owners
        assert len(owners) == consumers
        counts = sorted(len(owned) for owned in owners.values())
        assert counts[-1] - counts[0] <= 1
    all_done(stage, group, sent)
    assert [c.kind for c in group.history() if c.cause.startswith("revoke deadline")] == []


def test_more_consumers_than_partitions_wait_as_warm_spares(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=3)
    status = group.status()
    assert len(status.consumers) == 3 and len(status.owners) == 2
    spare = next(c.member for c in status.consumers if not c.partitions)
    group.remove_consumer(next(iter(status.owners)))
    assert spare in group.status().owners
    send(topology, 10)
    all_done(stage, group, 10)


def test_pause_and_resume(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes))
    send(topology, 5)
    all_done(stage, group, 5)
    group.pause()
    assert group.status().paused and "paused" in repr(group.status())
    send(topology, 5, first=5)
    # It holds nothing up for as long as it takes the restart of a consumer that is paused too.
    group.add_consumer("another")
    assert group.lag() == 5 and len(stage.notebook.notes()) == 5
    group.resume()
    all_done(stage, group, 10)


def test_seek_while_running(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=2)
    send(topology, 20)
    all_done(stage, group, 20)
    between = datetime.now(UTC)
    ends = {p.partition: p.checkpoint for p in group.status().partitions}
    assert group.seek(0, 1) == {1: 0}
    eventually(lambda: len(stage.notebook.notes()) == 20 + ends[1])
    assert stage.notebook.offsets()[1] == [*range(ends[1])] * 2
    assert group.seek("start") == {0: 0, 1: 0}
    eventually(lambda: len(stage.notebook.notes()) == 40 + ends[1])
    group.pause()
    send(topology, 20, first=20)
    assert group.seek("end") == {p.partition: p.end_offset for p in group.status().partitions}
    assert group.lag() == 0
    assert group.seek(between) == ends
    group.resume()
    eventually(lambda: group.lag() == 0)
    assert Counter(stage.notebook.payloads())["m39"] == 1
    resets = [change for change in group.history() if change.kind == "reset"]
    assert {change.cause for change in resets} >= {"seek to start", "seek to end"}


def test_status_lag_history_and_plan_are_plain_data(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=2)
    group.pause()
    send(topology, 12)
    status = group.status()
    assert group.lag() == status.lag == 12 and 0 <= status.lag_ms < 60_000
    for told in (status, topology.status(), group.history()):
        assert pickle.loads(pickle.dumps(told)) == told
        assert "<table>" in told._repr_html_()
    assert "lag 12" in repr(status) and "g-1" in repr(status)
    assert "P3" in status._repr_html_() and "<script" not in status._repr_html_()
    running = [(c.member, c.state, c.partitions) for c in status.consumers]
    assert running == [("g-0", "running", (0, 1)), ("g-1", "running", (2, 3))]
    assert all(c.pid and c.node and (c.lease_left_ms or 0) > 0 for c in status.consumers)
    plan = group.plan(consumers=3)
    assert len(plan.moves) == 1 and sorted(plan.counts.values()) == [1, 1, 2]
    assert plan.moves[0].target == "g-2" and "more than its share" in plan.moves[0].reason
    assert group.status().owners == status.owners, "a plan moves nothing"
    down = group.plan(consumers=1)
    assert {move.source for move in down.moves} == {"g-1"} and down.moves[0].reason == "g-1 goes"
    history = group.history()
    assert [c.kind for c in history] == ["led", "joined", "joined", *["claim"] * 4]
    assert group.history(after_version=history.changes[3].version).changes == history.changes[4:]
    group.resume()
    all_done(stage, group, 12)
    assert group.status().lag_ms == 0


def test_membership_by_hand(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=1)
    group.add_consumer("zoe")
    assert {m: len(p) for m, p in group.status().owners.items()} == {"g-0": 2, "zoe": 2}
    before = group.status().version
    group.trigger_rebalance()
    assert group.status().version == before, "what is fair already is left as it is"
    group.remove_consumer("g-0")
    assert group.status().owners == {"zoe": [0, 1, 2, 3]}
    send(topology, 10)
    all_done(stage, group, 10)


def test_another_assignor_live(stage: Stage) -> None:
    topology = stage.deploy(partitions=6, groups={"g": GroupConfig(queue="q")})
    group = topology.group("g")
    group.start(Recorder(stage.notes), consumers=2)
    pids = {c.pid for c in group.status().consumers}
    assert group.status().owners == {"g-0": [0, 1, 2], "g-1": [3, 4, 5]}
    topology.apply(topology.config.changed(groups={"g": {"assignor": "round_robin"}}))
    eventually(lambda: group.status().owners == {"g-0": [0, 2, 4], "g-1": [1, 3, 5]})
    assert group.status().assignor == "round_robin"
    static = {"assignor": "static", "static_map": {"g-0": [5], "g-1": [0, 1, 2, 3, 4]}}
    topology.apply(topology.config.changed(groups={"g": static}))
    eventually(lambda: group.status().owners == {"g-0": [5], "g-1": [0, 1, 2, 3, 4]})
    assert {c.pid for c in group.status().consumers} == pids, "nobody was restarted for it"
    send(topology, 12)
    all_done(stage, group, 12)


def test_live_options_of_consumers_are_taken_over_where_they_work(stage: Stage) -> None:
    topology = stage.deploy(partitions=4, groups={"g": GroupConfig(queue="q", consumers=2)})
    group = topology.group("g")
    group.start(Recorder(stage.notes), consumers=2)
    pids = {c.pid for c in group.status().consumers}
    send(topology, 20)
    changed = {
        "processing": Ordered(commit_mode="message"),
        "lease_ttl_seconds": 1.5,
        "consumers": 3,
    }
    topology.apply(topology.config.changed(groups={"g": changed}))
    status = group.status()
    assert len(status.consumers) == 3 and pids < {c.pid for c in status.consumers}
    # A lease that runs is not cut: the shorter one begins with the next heartbeat.
    eventually(lambda: all((c.lease_left_ms or 0) <= 1_500 for c in group.status().consumers))
    send(topology, 20, first=20)
    all_done(stage, group, 40)


def test_a_shorter_lease_live_loses_nobody(stage: Stage) -> None:
    topology = stage.deploy(partitions=2, groups={"g": GroupConfig(queue="q")})
    group = topology.group("g")
    group.start(Recorder(stage.notes), consumers=2)
    with group.consumer("puller") as puller:
        topology.apply(topology.config.changed(groups={"g": {"lease_ttl_seconds": 1.0}}))
        version = eventually(
            lambda: (
                all((c.lease_left_ms or 9e9) <= 1_000 for c in group.status().consumers)
                and group.status().version
            )
        )
        send(topology, 10)
        eventually(lambda: group.lag() == 0)
        for _ in range(20):
            puller.poll(0.1)
        assert group.status().version == version


def test_the_handler_can_be_replaced(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=2)
    send(topology, 10)
    all_done(stage, group, 10)
    group.start(BatchRecorder(stage.notes), consumers=1)
    send(topology, 10, first=10)
    all_done(stage, group, 20)
    assert stage.notebook.notes("batch") and len(group.status().consumers) == 1


def test_prefixed_names_and_a_group_that_begins_at_the_end(stage: Stage) -> None:
    topology = stage.deploy(
        prefix="eu",
        queues={"q": QueueConfig(partitions=2)},
        groups={"late": GroupConfig(queue="q", start="end")},
    )
    send(topology, 10)
    group = topology.group("late")
    assert group.name == "eu.late" and group.lag() == 0
    group.start(Recorder(stage.notes))
    send(topology, 5, first=10)
    eventually(lambda: group.lag() == 0)
    assert sorted(stage.notebook.payloads()) == [f"m{n}" for n in range(10, 15)]
