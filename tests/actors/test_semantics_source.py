"""A group over a queue that is not ours: ownership and checkpoints over a growing file."""

from __future__ import annotations

import json
import os
import signal

import pytest

from pxrs_ray.config import ByKey, QueueConfig
from tests.actors.conftest import Stage
from tests.actors.recording import Recorder, eventually

pytestmark = pytest.mark.ray


def test_a_group_works_a_file_through_a_kill_and_goes_on_after_a_restart(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy

    path = stage.folder / "orders.jsonl"

    def add(first: int, count: int) -> None:
        with path.open("a") as file:
            for number in range(first, first + count):
                file.write(json.dumps({"account": f"a{number % 20}", "n": number}) + "\n")

    add(0, 500)
    queues = {"q": QueueConfig(partitions=4, source=f"file://{path}?key=account")}
    topology = stage.deploy(queues=queues)
    group = topology.group("g", queue="q", processing=ByKey(parallelism=2), commit_interval_ms=20)
    group.start(Recorder(stage.notes, work_s=0.001), consumers=2)

    def seen() -> set[int]:
        return {json.loads(payload)["n"] for payload in stage.notebook.payloads()}

    eventually(lambda: len(seen()) > 100)
    os.kill(next(c.pid for c in group.status().consumers if c.partitions), signal.SIGKILL)
    add(500, 200)
    eventually(lambda: seen() == set(range(700)), 60)
    for key in (f"a{n}" for n in range(20)):
        offsets = [n.offset for n in stage.notebook.notes() if n.key == key]
        assert [o for at, o in enumerate(offsets) if o not in offsets[:at]] == sorted(set(offsets))
    eventually(lambda: min(p.checkpoint for p in group.status().partitions) == 700)
    owners = {note.partition for note in stage.notebook.notes()}
    assert owners == set(range(4))
    topology.shutdown()
    count = len(stage.notebook.notes())
    add(700, 50)
    again = deploy(stage.config(name=topology.name, queues=queues))
    again.group("g").start(Recorder(stage.notes), consumers=1)
    eventually(lambda: seen() == set(range(750)))
    assert len(stage.notebook.notes()) == count + 50
