"""How fast messages go between hosts: handlers that measure, and producers on a host.

python -m tests.hosts.inside.pace TOPOLOGY latency COUNT PER_SECOND
python -m tests.hosts.inside.pace TOPOLOGY batches SECONDS
python -m tests.hosts.inside.pace TOPOLOGY fill COUNT
python -m tests.hosts.inside.pace TOPOLOGY acks COUNT PER_SECOND
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from pxrs_ray.consumer.delivery import Delivery
from tests.hosts.inside.connecting import connect

BATCH = 20_000
PAYLOAD_BYTES = 100
FLUSH_S = 60.0


class Stopwatch:
    """Notes how old each message is when it is handled; all hosts have one clock."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder) / "ages"

    def handle(self, message: Delivery) -> None:
        """The payload says when it was sent."""
        age_s = time.monotonic() - float(message.payload or b"0")
        with self._file.open("a") as file:
            file.write(f"{age_s:.6f}\n")


class Meter:
    """Takes batches by column, and notes how many messages there were by when."""

    handle = None

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def handle_batch(self, batch: Any) -> None:
        """Look at all payloads at once."""
        assert batch.batch.payloads.nbytes >= PAYLOAD_BYTES * len(batch)
        with (self._folder / f"seen-{os.getpid()}").open("a") as file:
            file.write(f"{time.monotonic():.6f} {len(batch)}\n")


def latency(producer: Any, count: int, per_second: float) -> None:
    """Send at an even pace."""
    due_s = time.monotonic()
    for number in range(count):
        due_s += 1 / per_second
        time.sleep(max(0.0, due_s - time.monotonic()))
        producer.send(b"%d" % (number % 100), b"%.9f" % time.monotonic())


def acks(producer: Any, count: int, per_second: float) -> list[float]:
    """Send at an even pace; for how long each message waited to be acknowledged, with those that
    were sent before it."""
    waiting: SimpleQueue[tuple[float, Any]] = SimpleQueue()
    took: list[float] = []

    def wait() -> None:
        for _ in range(count):
            sent_s, receipt = waiting.get()
            receipt.result(FLUSH_S)
            took.append(time.monotonic() - sent_s)

    waiter = Thread(target=wait)
    waiter.start()
    due_s = time.monotonic()
    for number in range(count):
        due_s += 1 / per_second
        time.sleep(max(0.0, due_s - time.monotonic()))
        sent_s = time.monotonic()
        waiting.put((sent_s, producer.send(b"%d" % (number % 100), b"x" * PAYLOAD_BYTES)))
    waiter.join()
    return took


def batches(producer: Any, seconds: float, count: int | None = None) -> int:
    """Send columns as fast as they are taken, for so long or so many; how many messages."""
    import pyarrow as pa

    keys = pa.array([b"%d" % (number % 1_000) for number in range(BATCH)], pa.binary())
    payloads = pa.array([os.urandom(PAYLOAD_BYTES)] * BATCH, pa.binary())
    sent, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s if count is None else sent < count:
        producer.send_batch(keys, payloads)
        sent += BATCH
    return sent


def main() -> None:
    """Do what the arguments say, and answer in one line."""
    name, what, *numbers = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    connect()
    from pxrs_ray.actors.client.topology import Topology

    began_s, took = time.monotonic(), []
    with Topology(name).producer("q") as producer:
        if what == "latency":
            latency(producer, int(numbers[0]), float(numbers[1]))
            sent = int(numbers[0])
        elif what == "acks":
            took = acks(producer, int(numbers[0]), float(numbers[1]))
            sent = int(numbers[0])
        elif what == "fill":
            sent = batches(producer, 0.0, int(numbers[0]))
        else:
            sent = batches(producer, float(numbers[0]))
        producer.flush(FLUSH_S)
    told = {"sent": sent, "began_s": began_s, "ended_s": time.monotonic(), "took_s": took}
    print(json.dumps(told), file=out, flush=True)


if __name__ == "__main__":
    main()
