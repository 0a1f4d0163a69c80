"""The pull consumer: a full member of a group in the caller's own process."""

from __future__ import annotations

from collections import Counter

import pytest

from pxrs_ray.actors.client import pull_consumer
from pxrs_ray.actors.client.pull_consumer import PullConsumer
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.errors import Fenced
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]


def polled(consumer: PullConsumer, count: int) -> list[Delivery]:
    """So many messages, in however many batches they come: a first one goes off by itself."""
    taken: list[Delivery] = []
    while len(taken) < count:
        taken += eventually(lambda: consumer.poll(1))
    return taken


def test_iterate_commit_and_leave(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q")
    send(topology, 50)
    told: list[tuple[str, int]] = []
    got: list[str] = []
    with group.consumer(
        on_assigned=lambda p, checkpoint: told.append(("assigned", p)),
        on_revoked=lambda p: told.append(("revoked", p)),
    ) as consumer:
        for batch in consumer:
            given = {p.partition: p.epoch for p in group.status().partitions}
            assert batch.context.member == consumer.member
            assert batch.context.epoch == given[batch.context.partition]
            got += [message.payload.decode() for message in batch]
            if len(got) == 50:
                break
        assert consumer.partitions == {p.partition: p.end_offset for p in group.status().partitions}
        assert group.lag() == 50, "taken is not committed"
        consumer.commit()
        assert group.lag() == 0
        assert sorted(told) == [("assigned", p) for p in range(4)]
    assert Counter(got) == Counter(f"m{n}" for n in range(50))
    assert sorted(told[4:]) == [("revoked", p) for p in range(4)]
    assert group.status().owners == {} and group.status().consumers == ()
    assert consumer.poll(0) is None


def test_what_was_not_committed_is_delivered_again(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q")
    send(topology, 10)
    with group.consumer("first") as consumer:
        taken = polled(consumer, 10)
    with group.consumer("second") as consumer:
        again = polled(consumer, 10)
        assert [m.payload for m in again] == [m.payload for m in taken]
        assert consumer.poll(0) is None
        (first,) = {m.context.epoch for m in taken}
        assert {m.context.epoch for m in again} == {first + 2}, "taken back, and given anew"
        consumer.commit()
    assert group.lag() == 0


def test_partitions_move_between_pulling_and_actors(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=1)
    pulled: list[str] = []
    with group.consumer("me") as consumer:
        eventually(lambda: consumer.poll(0.05) or len(consumer.partitions) == 2)
        send(topology, 60)

        def take() -> bool:
            batch = consumer.poll(0.05)
            if batch is not None:
                pulled.extend(message.payload.decode() for message in batch)
                consumer.commit()
            return bool(group.lag() == 0)

        eventually(take)
        assert pulled and stage.notebook.payloads()
        group.scale(3)
        eventually(lambda: consumer.poll(0.05) or len(consumer.partitions) == 1)
    eventually(lambda: "me" not in group.status().owners)
    done = Counter(pulled) + Counter(stage.notebook.payloads())
    assert done == Counter(f"m{n}" for n in range(60))


def test_another_of_the_same_name_takes_its_place(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q", lease_ttl_seconds=1.0)
    send(topology, 10)
    with group.consumer("me") as old:
        eventually(lambda: old.poll(0.1))
        with group.consumer("me") as new:
            eventually(lambda: len(new.partitions) == 2)
            with pytest.raises(Fenced, match="replaced"):
                eventually(lambda: old.poll(0.1) and False, timeout_s=10)
            got = eventually(lambda: new.poll(1))
            assert got.context.incarnation == 2
            new.commit()


def test_a_consumer_in_the_users_own_program_takes_live_options_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_consumer, "OPTIONS_LOOK_S", 0.2)
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    with group.consumer() as consumer:
        eventually(lambda: set(consumer.partitions) == {0, 1})
        [before] = group.status().consumers
        wanted = topology.config.changed(groups={"g": {"pull_bytes_max": 2_048}})
        assert topology.apply(wanted)
        eventually(lambda: consumer._runtime.spec.config.pull_bytes_max == 2_048)
        send(topology, 20)
        taken = 0
        while taken < 20:
            batch = consumer.poll(10.0)
            assert batch is not None
            taken += len(batch)
        consumer.commit()
        [after] = group.status().consumers
        assert (after.member, after.incarnation) == (before.member, before.incarnation)
        assert group.lag() == 0
