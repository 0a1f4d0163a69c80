"""Delayed messages on real Ray: in time, once and in order, though who moves them is killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import pytest

from pxrs_ray.config import QueueConfig
from pxrs_ray.data.delay import place_of
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Message
from tests.actors.conftest import Stage
from tests.actors.recording import Recorder, eventually

pytestmark = pytest.mark.ray


def test_delayed_messages_come_once_in_time_and_in_order_though_their_mover_is_killed(
    stage: Stage,
) -> None:
    topology = stage.deploy(queues={"q": QueueConfig(partitions=3, delays=True)})
    group = topology.group("g", queue="q", commit_interval_ms=20)
    group.start(Recorder(stage.notes))
    with topology.producer("q") as producer:
        producer.send("k", "at once")
        sent: dict[str, float] = {}
        for n in range(60):
            delay_s = (0.4, 1.5, 3.0)[n % 3]
            name = f"{n % 3}-{n:02}"
            producer.send(f"k{n % 4}", name, {"trace": b"1"}, delay_s=delay_s, id=name)
            sent[name] = time.time() + delay_s - 0.05
        producer.send("k", "due already", deliver_at_ms=5, timestamp=77)
    eventually(lambda: len(stage.notebook.payloads()) >= 2 + 10)
    # It is killed twice: in the middle of the rest, and before its successor has done much.
    movers = topology.group("q.delayed")
    for _ in range(2):
        eventually(lambda: movers.status().consumers[0].state == "running")
        os.kill(movers.status().consumers[0].pid or -1, signal.SIGKILL)
        time.sleep(0.5)
    eventually(lambda: len(stage.notebook.payloads()) >= 62)
    eventually(lambda: topology.group("q.delayed").lag() == 0)

    notes = stage.notebook.notes()
    assert Counter(note.payload for note in notes) == Counter(["at once", "due already", *sent])
    late = [note.at_s - sent[note.payload] for note in notes if note.payload in sent]
    assert min(late) >= 0, "none before its time"
    for key in ("k0", "k1", "k2", "k3"):
        for kind in "012":
            those = [n.payload for n in notes if n.key == key and n.payload[0] == kind]
            assert those == sorted(those), "those of one delay are in order"
    with topology.group("look", queue="q").consumer() as consumer:
        found: list[Message] = []

        def all_came() -> bool:
            found.extend(consumer.poll(0.5) or ())
            return len(found) == 62

        eventually(all_came)
    (one,) = [message for message in found if message.payload == b"0-00"]
    assert (one.key, one.id, one.headers[0]) == (b"k0", "0-00", ("trace", b"1"))
    assert [name for name, _ in one.headers[1:]] == ["pxrs-due-ms", "pxrs-sent-ms", "pxrs-delayed"]
    assert one.timestamp_ms == int(dict(one.headers)["pxrs-due-ms"]) and place_of(one) is not None
    (now,) = [message for message in found if message.payload == b"due already"]
    assert (now.headers, now.timestamp_ms) == ((), 77)


def test_what_waits_is_shown_apart_and_no_trouble(stage: Stage) -> None:
    topology = stage.deploy(queues={"q": QueueConfig(partitions=2, delays=True)})
    topology.group("g", queue="q").start(Recorder(stage.notes))
    with topology.producer("q") as producer:
        for n in range(5):
            producer.send("k", f"m{n}", delay_s=3_600)
    status = topology.status()
    groups = {group.group: group for group in status.groups}
    assert (groups["g"].lag, groups["q.delayed"].lag, groups["q.delayed"].lag_ms) == (0, 5, 0)
    assert "5 delayed" in repr(status) and "PROBLEM" not in repr(status)
    assert stage.notebook.payloads() == []


def test_a_queue_that_takes_no_delays_says_how_it_would(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    with topology.producer("q") as producer:
        with pytest.raises(UsageError, match="delays = true"):
            producer.send("k", "m", delay_s=1)
        assert producer.send("k", "m").result(10).offset == 0
