"""Everything dies, and nothing is lost: a consumer, the coordinator, a buffer, and all at once.

    python examples/crash_recovery.py

A producer sends without a pause while processes are killed. At the end each message was
processed, and those that were processed twice are the few that a dead consumer had not committed.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from pxrs_ray import Delivery, GroupStatus, PxrsConfig, QueueConfig, Topology, deploy
from pxrs_ray.actors import names

WAIT_S = 60.0
PAUSE_S = 0.004


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def handle(self, message: Delivery) -> None:
        with (self.folder / str(os.getpid())).open("a") as notes:
            notes.write(message.payload.decode() + "\n")

    def done(self) -> Counter[str]:
        files = list(self.folder.iterdir())
        return Counter(line for file in files for line in file.read_text().splitlines())


def until(check: Callable[[], Any], what: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > end_s:
            raise SystemExit(f"not within {WAIT_S:g} s: {what}")
        time.sleep(0.05)


def keep_sending(topology: Topology, stop: threading.Event, sent: list[str]) -> None:
    with topology.producer("orders") as producer:
        while not stop.wait(PAUSE_S):
            sent.append(f"order-{len(sent)}")
            producer.send(f"customer-{len(sent) % 50}", sent[-1])


def kill(what: str, pid: int | None) -> None:
    assert pid is not None
    print(f"SIGKILL to {what} (process {pid})")
    os.kill(pid, signal.SIGKILL)


def settled(status: GroupStatus) -> bool:
    """Whether every consumer runs, and every partition has its owner."""
    run = all(consumer.state == "running" for consumer in status.consumers)
    return run and all(partition.phase == "owned" for partition in status.partitions)


def run(config: PxrsConfig, ledger: Ledger) -> None:
    topology = deploy(config)
    group = topology.group("shipping", queue="orders").start(ledger, consumers=3)
    stop, sent = threading.Event(), list[str]()
    sender = threading.Thread(target=keep_sending, args=(topology, stop, sent))
    sender.start()

    def goes_on() -> None:
        goal = len(ledger.done()) + 200
        until(lambda: len(ledger.done()) > goal, "work goes on")
        print(f"  it goes on: {len(ledger.done())} processed")

    goes_on()
    kill("a consumer", group.status().consumers[0].pid)
    goes_on()
    until(lambda: settled(group.status()), "another consumer is in its place")
    before = group.status().version
    kill("the coordinator", topology.status().coordinator_pid)
    goes_on()
    changes = [change.kind for change in group.history(after_version=before)]
    print(f"  what the registry has to say about it: {changes}")
    buffer: Any = ray.get_actor(names.buffer(topology.name, 0), namespace=names.NAMESPACE)
    kill("a buffer", ray.get(buffer.ping.remote()).pid)
    goes_on()
    stop.set()
    sender.join()
    until(lambda: group.lag() == 0, "all is processed")

    print("every actor is killed at once, as by a power cut")
    topology.kill()
    topology = deploy(config)
    group = topology.group("shipping")
    with topology.producer("orders") as producer:
        sent.append("order-after-the-crash")
        producer.send("customer-0", sent[-1])
    # Its consumers are known from the registry, and started anew.
    until(lambda: sent[-1] in ledger.done(), "the consumers come back")

    done = ledger.done()
    lost = set(sent) - done.keys()
    repeated = sum(count - 1 for count in done.values())
    print(f"{len(sent)} sent, {len(lost)} lost, {repeated} processed again")
    assert not lost and not done.keys() - set(sent)
    topology.shutdown()


def main() -> None:
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        with tempfile.TemporaryDirectory(prefix="pxrs-crash-") as folder:
            notes = Path(folder, "notes")
            notes.mkdir()
            queues = {"orders": QueueConfig(partitions=8, durability="always")}
            run(PxrsConfig(name="crash", data_dir=Path(folder), queues=queues), Ledger(notes))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
