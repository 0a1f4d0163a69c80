"""`pxrs walkthrough`: the ten steps that show what PXRS is, each checked as it goes.

Rules of this file: it tells what it does as it does it, and an expectation that does not hold is
an error, so that the walk-through cannot show what is not so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pxrs_ray.actors.group import Group
from pxrs_ray.actors.topology import Topology, deploy
from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.errors import DeadlineExceeded, PxrsError
from pxrs_ray.model import PartitionId
from pxrs_ray.stats import GroupStatus

CONSUMERS = ("A", "B", "C")
FIRST, MORE = 100, 50
WAIT_S = 60.0

Say = Callable[[object], None]


def walk_through(name: str, partitions: int, store: str, data_dir: Path, say: Say) -> None:
    """Walk through all ten steps, and remove the topology. Raises PxrsError where one fails."""
    config = PxrsConfig(
        name=name,
        store=store,
        data_dir=data_dir,
        queues={"payments": QueueConfig(partitions=partitions)},
    )
    say(f"1. A topology with {partitions} partitions; its registry is {config.store_url}")
    topology = deploy(config)
    try:
        _steps(topology, partitions, say)
        say("10. Shut it down; messages and checkpoints stay where they are kept")
        topology.shutdown()
    except BaseException:
        topology.kill()
        raise


def _steps(topology: Topology, partitions: int, say: Say) -> None:
    group = topology.group("billing", queue="payments", commit_mode="batch", assignor="range")
    say("2. Three consumers join: contiguous, fair shares in the order of their names")
    group.start("pxrs_ray.actors.trial:ignore", consumers=0)
    for member in CONSUMERS:
        group.add_consumer(member)
    say(_shares(group.status()))
    say(f"3. {FIRST} messages, each to the partition that its key hashes to")
    _send(topology, 0, FIRST)
    say("4. Every one is processed, and each partition's checkpoint is kept")
    before = _processed(group, FIRST)
    say(group.status())
    say("5. A leaves: it finishes, commits, and hands its partitions over")
    group.remove_consumer("A")
    say("6. B and C have all of it, in contiguous shares again; what moved has a higher epoch")
    status = group.status()
    say(_shares(status))
    _expect(sorted(status.owners) == ["B", "C"], "B and C own everything")
    owned = sum(len(held) for held in status.owners.values())
    _expect(owned == partitions, f"all {partitions} partitions have an owner")
    say(f"7. {MORE} more messages")
    _send(topology, FIRST, MORE)
    say("8. The new owners go on at the checkpoints of the old one: nothing twice, nothing lost")
    after = _processed(group, FIRST + MORE)
    _expect(all(after[p] >= before[p] for p in before), "no checkpoint has gone back")
    say("9. How it stands, and how it came to be")
    say(group.status())
    say(group.history())


def _send(topology: Topology, start: int, count: int) -> None:
    with topology.producer("payments") as producer:
        for number in range(start, start + count):
            producer.send(f"account-{number % 20}", f"payment {number}")


def _processed(group: Group, count: int) -> dict[PartitionId, int]:
    """The checkpoints, once they add up to `count`."""
    end_s = time.monotonic() + WAIT_S
    while True:
        found = {p.partition: p.checkpoint for p in group.status().partitions}
        if sum(found.values()) == count:
            return found
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"{sum(found.values())} of {count} messages after {WAIT_S:g} s")
        time.sleep(0.05)


def _shares(status: GroupStatus) -> str:
    return "   " + "  ".join(f"{name}: {held}" for name, held in sorted(status.owners.items()))


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise PxrsError(f"this should hold and does not: {what}")
