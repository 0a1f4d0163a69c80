"""Limits of calls, shared by the consumers of a group; and handlers that ask for time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray import ByKey, Ordered, RetryAfter
from pxrs_ray.consumer.delivery import Delivery
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

PER_MINUTE = 1_200
MESSAGES = 60


class Awaiting(Recorder):
    async def handle(self, message: Delivery) -> None:  # type: ignore[override]
        await asyncio.sleep(0.01)
        Recorder.handle(self, message)


def moments(stage: Stage) -> list[float]:
    return sorted(note.at_s for note in stage.notebook.notes())


@pytest.mark.parametrize(
    ("kind", "processing"),
    [(Recorder, Ordered()), (Recorder, ByKey(parallelism=8)), (Awaiting, ByKey(parallelism=8))],
)
def test_all_consumers_together_keep_the_limit(stage: Stage, kind: Any, processing: Any) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q", processing=processing, calls_per_minute=PER_MINUTE)
    group.start(kind(stage.notes), consumers=2)
    send(topology, MESSAGES)
    eventually(lambda: len(stage.notebook.notes()) == MESSAGES)
    times, per_s = moments(stage), PER_MINUTE / 60
    burst = PER_MINUTE // 60
    for first, begun in enumerate(times):
        for last in range(first, MESSAGES):
            # What one second holds may come at once; calls begin up to 0.2 s after their grant.
            assert last - first + 1 <= burst + per_s * (times[last] - begun + 0.2) + 1
    assert times[-1] - times[0] >= (MESSAGES - 2 * burst) / per_s - 0.2
    assert {note.member for note in stage.notebook.notes()} == {"g-0", "g-1"}
    group.stop()


def by_payload(message: Delivery) -> float:
    return float(len(message.payload))


def test_a_limit_is_set_and_lifted_while_it_runs(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q", calls_per_minute=30)
    group.start(Recorder(stage.notes), consumers=1)
    send(topology, MESSAGES)
    time.sleep(3)
    assert len(stage.notebook.notes()) <= 3
    config = topology.config
    topology.apply(config.changed(groups={"g": {"queue": "q", "calls_per_minute": None}}))
    eventually(lambda: len(stage.notebook.notes()) == MESSAGES)


class Limited(Recorder):
    """The first call about one key is refused, as by a service that is asked too often."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.refused = False

    def handle(self, message: Delivery) -> None:
        if message.key == b"k0" and not self.refused:
            self.refused = True
            raise RetryAfter(1.5, "429")
        super().handle(message)


def test_who_asks_for_time_holds_up_its_own_key_alone(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q", processing="by_key", attempts_max=1)
    group.start(Limited(stage.notes), consumers=1)
    with topology.producer("q") as producer:
        for number in range(40):
            producer.send(key=f"k{number % 4}", payload=str(number))
    eventually(lambda: len(stage.notebook.notes()) == 40)
    notes = stage.notebook.notes()
    late = [note for note in notes if note.offset % 4 == 0]
    others = [note for note in notes if note.offset % 4]
    assert min(n.at_s for n in late) - max(n.at_s for n in others) > 0.8
    assert [n.offset for n in late] == sorted(n.offset for n in late)
    assert group.status().given_up_count == 0
