"""The ten steps of a rebalance: three consumers share the partitions, one dies, two take over.

python examples/rebalance_demo.py                         # 8 partitions
python examples/rebalance_demo.py --partitions 16 --leave # one leaves instead of being killed
python examples/rebalance_demo.py --store etcd://localhost:2379/
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import ray

from pxrs_ray import Delivery, GroupConfig, PxrsConfig, QueueConfig, deploy

CONSUMERS = ("A", "B", "C")
FIRST, MORE = 100, 50
WAIT_S = 60.0


class Ledger:
    """Notes every message in a file of its process, so that they can be counted afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def handle(self, message: Delivery) -> None:
        with (self.folder / f"{message.context.member}-{os.getpid()}").open("a") as notes:
            notes.write(f"{message.partition} {message.offset} {message.payload.decode()}\n")

    def lines(self) -> list[tuple[str, str]]:
        """Which consumer processed which message."""
        return [
            (file.name.split("-")[0], line.split()[2])
            for file in sorted(self.folder.iterdir())
            for line in file.read_text().splitlines()
        ]


def step(number: int, text: str) -> None:
    print(f"\n[{number:>2}] {text}")


def until(check: Callable[[], Any], what: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > end_s:
            raise SystemExit(f"not within {WAIT_S:g} s: {what}")
        time.sleep(0.01)


def show_owners(group: Any) -> None:
    for member, owned in sorted(group.status().owners.items()):
        print(f"     {member}: {owned}")


def shared_out(group: Any, members: Collection[str]) -> bool:
    """Whether these and nobody else own every partition, with no hand-over under way."""
    status = group.status()
    settled = all(p.phase == "owned" for p in status.partitions)
    return settled and status.owners.keys() == set(members)


def begin(arguments: argparse.Namespace, folder: Path, ledger: Ledger) -> tuple[Any, Any]:
    step(1, f"deploy a topology: queue 'payments' with {arguments.partitions} partitions")
    queue = QueueConfig(partitions=arguments.partitions)
    # Nobody is started in A's place, so that B and C have to do.
    billing = GroupConfig(queue="payments", assignor="range", respawn=False)
    topology = deploy(
        PxrsConfig(
            name="rebalance-demo",
            data_dir=folder,
            store=arguments.store,
            key_prefix=f"/{folder.name}/",
            queues={"payments": queue},
            groups={"billing": billing},
        )
    )
    print(f"     registry: {topology.status().store.url}")

    step(2, "start three consumers: A, B and C")
    group = topology.group("billing").start(ledger, consumers=0)
    for name in CONSUMERS:
        group.add_consumer(name)
    until(lambda: shared_out(group, CONSUMERS), "each of the three has its share")

    step(3, "the partitions are shared out in order")
    show_owners(group)
    shares = [owned for _, owned in sorted(group.status().owners.items())]
    assert [p for share in shares for p in share] == list(range(arguments.partitions))
    if arguments.partitions == 8:
        assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]], shares
    return topology, group


def take_over(group: Any, *, leave: bool) -> None:
    victim = next(c for c in group.status().consumers if c.member == "A")
    if leave:
        step(6, "A leaves: it hands over what it has")
        group.remove_consumer("A")
    else:
        step(6, f"A is killed: SIGKILL to process {victim.pid}")
        os.kill(victim.pid, signal.SIGKILL)
    began_s = time.perf_counter()

    step(7, "B and C take its partitions over, at their checkpoints")
    until(lambda: shared_out(group, ("B", "C")), "B and C own everything")
    print(f"     after {(time.perf_counter() - began_s) * 1_000:.0f} ms")
    show_owners(group)


def run(arguments: argparse.Namespace, folder: Path) -> None:
    notes = folder / "notes"
    notes.mkdir()
    ledger = Ledger(notes)
    topology, group = begin(arguments, folder, ledger)
    with topology.producer("payments") as producer:
        step(4, f"send {FIRST} messages")
        for n in range(FIRST):
            producer.send(f"account-{n % 20}", f"payment-{n}")
        producer.flush()
        until(lambda: group.lag() == 0, "the first messages are processed")
        print(f"     processed by {dict(sorted(Counter(m for m, _ in ledger.lines()).items()))}")

        step(5, "checkpoints, with nothing left to do")
        print(group.status())
        take_over(group, leave=arguments.leave)

        step(8, f"send {MORE} more")
        for n in range(FIRST, FIRST + MORE):
            producer.send(f"account-{n % 20}", f"payment-{n}")
        producer.flush()
        until(lambda: group.lag() == 0, "all messages are processed")

    step(9, "every message was processed, and every checkpoint is the end of its log")
    done = Counter(payload for _, payload in ledger.lines())
    assert done.keys() == {f"payment-{n}" for n in range(FIRST + MORE)}, "something was lost"
    status = group.status()
    assert all(p.checkpoint == p.end_offset for p in status.partitions)
    print(status)
    repeated = sum(done.values()) - len(done)
    print(f"     {len(done)} of {FIRST + MORE} messages processed, {repeated} of them again")

    step(10, "shut down")
    topology.shutdown()
    print("     no actor is left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--store", default="", help="a store URL; SQLite when left out")
    parser.add_argument("--leave", action="store_true", help="A leaves instead of being killed")
    arguments = parser.parse_args()
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        with tempfile.TemporaryDirectory(prefix="pxrs-demo-") as folder:
            run(arguments, Path(folder))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
