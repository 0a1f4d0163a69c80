"""Broadcast, static partitions, one at a time, notifications, and events of ownership."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.config import Ordered, QueueConfig
from pxrs_ray.consumer.delivery import Delivery
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]


class Spans(Recorder):
    """Notes when each call begins and ends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 0.02)

    def handle(self, message: Delivery) -> None:
        self.notebook.write("begun", message.context)
        super().handle(message)


def overlaps(stage: Stage) -> bool:
    """Whether one call began between another's beginning and end."""
    moments = sorted(
        [(note.at_s, 1) for note in stage.notebook.notes("begun")]
        + [(note.at_s, -1) for note in stage.notebook.notes("done")]
    )
    running = most = 0
    for _, step in moments:
        running += step
        most = max(most, running)
    return most > 1


@pytest.mark.parametrize("each", [True, False])
def test_partitions_are_worked_each_on_its_own_or_one_at_a_time(stage: Stage, each: bool) -> None:
    topology = stage.deploy(partitions=4)
    send(topology, 40)
    group = topology.group("g", queue="q", processing=Ordered(consumer_per_partition=each))
    group.start(Spans(stage.notes), consumers=1)
    eventually(lambda: len(stage.notebook.notes()) == 40)
    assert overlaps(stage) == each


def test_a_broadcast_reaches_every_partition_and_static_partitions_stay(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    places = {"g-0": [0, 3], "g-1": [1, 2]}
    group = topology.group("g", queue="q", assignor="static", static_map=places)
    group.start(Recorder(stage.notes), consumers=2)
    with topology.producer("q") as producer:
        producer.broadcast(b"forget what you know", key="config").result(30)
    eventually(lambda: len(stage.notebook.notes()) == 4)
    notes = stage.notebook.notes()
    assert {(note.partition, note.member) for note in notes} == {
        (partition, member) for member, partitions in places.items() for partition in partitions
    }
    group.remove_consumer("g-1")
    eventually(lambda: group.status().owners == {"g-0": [0, 3]})


def test_groups_and_queues_of_one_topology_work_side_by_side(stage: Stage) -> None:
    queues = {"q": QueueConfig(partitions=2), "other": QueueConfig(partitions=3)}
    topology = stage.deploy(queues=queues)
    for name, queue in (("one", "q"), ("two", "q"), ("three", "other")):
        topology.group(name, queue=queue).start(Recorder(stage.notes), consumers=1)
    send(topology, 20)
    send(topology, 30, first=100, queue="other")
    eventually(lambda: len(stage.notebook.notes()) == 2 * 20 + 30)
    members = [note.member for note in stage.notebook.notes()]
    assert [members.count(f"{name}-0") for name in ("one", "two", "three")] == [20, 20, 30]


def test_every_listener_hears_every_notification_in_order(stage: Stage) -> None:
    from pxrs_ray.actors.client.notifications import Notifications

    topology = stage.deploy(partitions=1)
    heard: dict[int, list[bytes]] = {0: [], 1: []}

    def listen(number: int, messages: Any) -> None:
        for message in messages:
            heard[number].append(message.payload)
            if len(heard[number]) == 3:
                return

    first = Notifications(topology, "rules").tell(b"before anybody listens")
    threads = [
        threading.Thread(
            target=listen, args=(n, Notifications(topology, "rules").listen()), daemon=True
        )
        for n in heard
    ]
    for thread in threads:
        thread.start()
    for number in range(3):
        Notifications(topology, "rules").tell(b"%d" % number)
    for thread in threads:
        thread.join(30)
    assert heard == {0: [b"0", b"1", b"2"], 1: [b"0", b"1", b"2"]}
    again = Notifications(topology, "rules").listen(after=first)
    assert next(again).payload == b"0"


def test_changes_of_ownership_are_told_with_their_numbers(stage: Stage) -> None:
    from pxrs_ray.actors.client.notifications import partition_changes

    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=1)
    events: list[Any] = []
    listener = threading.Thread(
        target=lambda: events.extend(partition_changes(group, quiet_s=8)), daemon=True
    )
    listener.start()
    time.sleep(0.3)
    group.scale(2)
    eventually(lambda: len(group.status().owners) == 2)
    listener.join(60)
    numbers = [event.sequence for event in events]
    assert numbers == sorted(set(numbers)) and len(events) == 4
    assert events[0].old == {"g-0": (0, 1, 2, 3)}
    owners = {member: tuple(partitions) for member, partitions in group.status().owners.items()}
    assert events[-1].new == owners
    moved = sorted(p for event in events for p in event.gained("g-1"))
    assert moved == list(owners["g-1"])
