"""Messages that kill the process of whoever handles them: counted, set apart, and dealt with."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.config import ByKey
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery
from tests.actors.conftest import Stage, send
from tests.actors.recording import BatchRecorder, Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

ATTEMPTS = 3
QUICK = {"backoff_ms": 20, "commit_interval_ms": 20, "attempts_max": ATTEMPTS}


def end_process(how: str) -> None:
    """As handlers do it by accident."""
    if how == "exit":
        os._exit(9)
    if how == "fault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Recorder):
    """Ends its process at some payloads; everything takes a moment."""

    def __init__(self, folder: Path, deadly: dict[str, str]) -> None:
        super().__init__(folder, 0.002)
        self.deadly = deadly

    def handle(self, message: Delivery) -> None:
        how = self.deadly.get(message.payload.decode())
        if how is not None:
            self.notebook.write("kills", message.context, payload=message.payload.decode())
            end_process(how)
        super().handle(message)


class DeadlyBatches(BatchRecorder):
    """The same, a batch at a time."""

    def __init__(self, folder: Path, deadly: dict[str, str]) -> None:
        super().__init__(folder)
        self.deadly = deadly

    def handle_batch(self, batch: DeliveredBatch) -> None:
        for message in batch:
            how = self.deadly.get(message.payload.decode())
            if how is not None:
                self.notebook.write("kills", message.context, payload=message.payload.decode())
                end_process(how)
        super().handle_batch(batch)


def letters_of(topology: Any, group: str = "look") -> list[Any]:
    found: list[Any] = []
    with topology.group(group, queue="q.dead").consumer() as consumer:
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s:
            found.extend(consumer.poll(0.5) or ())
    return found


@pytest.mark.parametrize(
    ("how", "handler", "options", "told"),
    [
        ("exit", Deadly, {}, "exit code 9"),
        ("fault", Deadly, {"processing": ByKey(parallelism=8)}, "SIGSEGV"),
        ("kill", DeadlyBatches, {}, "SIGKILL"),
    ],
    ids=["exit-in-order", "fault-lanes", "kill-batch"],
)
def test_it_meets_its_policy_and_nothing_else_does(
    stage: Stage, how: str, handler: Any, options: dict[str, Any], told: str
) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q", failure_policy="dead_letter", **{**QUICK, **options})
    group.start(handler(stage.notes, {"m100": how}), consumers=3)
    send(topology, 300)
    unowned_since_s = None
    longest_s = 0.0
    end_s = time.monotonic() + 90
    while group.lag() and time.monotonic() < end_s:
        owned = any(p.owner is not None for p in group.status().partitions)
        now_s = time.monotonic()
        unowned_since_s = None if owned else (unowned_since_s or now_s)
        longest_s = max(longest_s, now_s - unowned_since_s if unowned_since_s else 0.0)
        time.sleep(0.1)
    assert group.lag() == 0, group.status()
    done = Counter(stage.notebook.payloads())
    assert set(done) == {f"m{n}" for n in range(300) if n != 100}
    # Deaths at which others were in hand too do not count; every one of the last three does.
    kills = stage.notebook.notes("kills")
    assert ATTEMPTS <= len(kills) <= ATTEMPTS + 3
    [letter] = letters_of(topology)
    headers = dict(letter.headers)
    assert letter.payload == b"m100" and headers["pxrs-attempts"] == b"3"
    assert told in headers["pxrs-error"].decode()
    assert longest_s < 5, "the group never loses its partitions to a message"
    history = " ".join(change.cause for change in group.history())
    assert told in history and f"P{kills[0].partition} offset" in history


def test_under_stop_the_partition_stands_still_and_tells_why(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q", **{**QUICK, "attempts_max": 2})
    group.start(Deadly(stage.notes, {"m10": "exit"}), consumers=2)
    send(topology, 40)
    status = eventually(
        lambda: (
            (found := group.status())
            and any("2 times" in p.problem and "exit code 9" in p.problem for p in found.partitions)
            and all(p.owner for p in found.partitions)
            and found
        ),
        60,
    )
    stuck = next(p for p in status.partitions if p.problem)
    eventually(lambda: group.status().partitions[1 - stuck.partition].lag == 0)
    kills = stage.notebook.notes("kills")
    assert {(n.partition, n.offset) for n in kills} == {(stuck.partition, stuck.checkpoint)}
    time.sleep(1.0)
    assert stage.notebook.notes("kills") == kills, "it is not delivered again"
    group.seek(stuck.checkpoint + 1, [stuck.partition])
    eventually(lambda: group.lag() == 0)
    assert set(stage.notebook.payloads()) == {f"m{n}" for n in range(40) if n != 10}
