"""Chaos on real Ray: `python -m tests.actors.chaos --minutes 10 [--seed 7] [--store postgres]`.

For the given time, under a steady load, consumers are killed, frozen, added and removed, the
coordinator and the buffers are killed, and the store goes away and comes back. Disks are full,
syncs fail and wall clocks jump (see `sabotage`); handlers exit, end their process and fork. Then
everything is left in peace, and the checkers of `pxrs_ray.testing` judge what the consumers noted,
what the registry's history says, and what the logs hold. Among it: what is processed again was
not yet acknowledged as committed, and its owner ended uncleanly. The seed decides which faults
come in which order.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.errors import PxrsError
from pxrs_ray.model import Change, PartitionRow
from tests.actors import sabotage, witness
from tests.actors.load import Load
from tests.actors.mischief import Mischief
from tests.actors.recording import Note, Notebook, eventually
from tests.servers import PostgresServer, Server
from tests.simulation import checkers
from tests.simulation.history import Acknowledged, Ended, HistoryEvent

PARTITIONS = 8
BUFFERS = 2
CONSUMERS_MAX = 4
LEASE_S = 1.5
REST_S = 120.0
PER_SECOND = 300
OUTAGE_S = 2.0
DISK_S = 2.5
WALL_MS = 3_600_000


@dataclass
class Chaos:
    """One run: a topology, a source of faults, and what was done."""

    topology: Topology
    dice: random.Random
    server: Server | None
    orders: sabotage.Orders
    wall_ms: int = 0
    frozen: dict[int, float] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.group = self.topology.group("g")

    def run(self, seconds: float) -> None:
        """Make faults for so long, then heal everything."""
        sabotaged = sabotage.VARIABLE in os.environ
        faults: list[tuple[int, Callable[[], str]]] = [
            (4, self.kill_consumer),
            (3, self.freeze_consumer),
            (4, self.scale),
            (2, self.kill_coordinator),
            (2, self.kill_buffer),
            (1, self.seek_nowhere),
            *([(2, self.fill_disk), (2, self.fail_syncs), (2, self.move_clock)] * sabotaged),
            *([(1, self.store_outage)] if self.server is not None else []),
        ]
        weights = [weight for weight, _ in faults]
        # Each kind once, then as the dice fall.
        first = [fault for _, fault in self.dice.sample(faults, len(faults))]
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.thaw()
            fault = first.pop() if first else self.dice.choices(faults, weights)[0][1]
            try:
                self.done[fault()] += 1
            except (PxrsError, RayError, ProcessLookupError) as error:
                # A call may find the topology in the midst of another fault, and say so.
                self.done[f"refused: {type(error).__name__}"] += 1
            time.sleep(self.dice.uniform(0.1, 1.2))
        self.thaw(now=True)
        self.orders.give()
        if self.server is not None:
            self.server.heal()

    def _pids(self) -> list[int]:
        found = [c.pid for c in self.group.status().consumers if c.pid and c.state == "running"]
        return [pid for pid in found if pid not in self.frozen]

    def kill_consumer(self) -> str:
        pids = self._pids()
        if not pids:
            return "nobody to kill"
        os.kill(self.dice.choice(pids), signal.SIGKILL)
        return "consumer killed"

    def freeze_consumer(self) -> str:
        pids = self._pids()
        if not pids:
            return "nobody to freeze"
        pid = self.dice.choice(pids)
        os.kill(pid, signal.SIGSTOP)
        self.frozen[pid] = time.monotonic() + self.dice.uniform(0.2, 2.5 * LEASE_S)
        return "consumer frozen"

    def thaw(self, *, now: bool = False) -> None:
        for pid, until_s in list(self.frozen.items()):
            if now or time.monotonic() > until_s:
                del self.frozen[pid]
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    continue

    def scale(self) -> str:
        wanted = self.dice.randint(1, CONSUMERS_MAX)
        have = len(self.group.status().consumers)
        self.group.scale(wanted)
        return "joined" if wanted > have else "left" if wanted < have else "same scale"

    def kill_coordinator(self) -> str:
        os.kill(self.topology.status().coordinator_pid, signal.SIGKILL)
        return "coordinator killed"

    def kill_buffer(self) -> str:
        index = self.dice.randrange(self.topology.status().buffers)
        name = names.buffer(self.topology.name, index)
        buffer = ray.get_actor(name, namespace=names.NAMESPACE)
        os.kill(ray.get(buffer.ping.remote(), timeout=30).pid, signal.SIGKILL)
        return "buffer killed"

    def seek_nowhere(self) -> str:
        """Pause and resume: everybody is told something, and nothing moves."""
        self.group.pause()
        self.group.resume()
        return "paused and resumed"

    def fill_disk(self) -> str:
        """No buffer can write anything for a while."""
        self._sabotage(full=True)
        return "disks full"

    def fail_syncs(self) -> str:
        """No buffer can make anything durable for a while."""
        self._sabotage(sync=True)
        return "syncs failed"

    def move_clock(self) -> str:
        """The wall clocks of buffers and consumers jump, and stay there."""
        self.wall_ms = self.dice.choice((-WALL_MS, 0, WALL_MS))
        self.orders.give(wall_ms=self.wall_ms)
        return "clocks moved"

    def _sabotage(self, **what: bool) -> None:
        self.orders.give(wall_ms=self.wall_ms, **what)
        time.sleep(self.dice.uniform(0.2, DISK_S))
        self.orders.give(wall_ms=self.wall_ms)

    def store_outage(self) -> str:
        assert self.server is not None
        self.server.kill()
        time.sleep(self.dice.uniform(0.2, OUTAGE_S))
        self.server.restart()
        return "store killed"


def stale(notes: list[Note]) -> int:
    """How many messages were finished after a later owner had begun: in hand at a freeze."""
    newest: Counter[int] = Counter()
    found = 0
    for note in notes:
        found += note.epoch < newest[note.partition]
        newest[note.partition] = max(newest[note.partition], note.epoch)
    return found


def _config(folder: Path, name: str, server: Server | None) -> PxrsConfig:
    return PxrsConfig(
        name=name,
        data_dir=folder,
        store=server.url if server is not None else "",
        key_prefix=f"/{folder.name}/",
        buffers=BUFFERS,
        linger_ms=2,
        lease_ttl_seconds=LEASE_S,
        revoke_deadline_ms=3_000,
        append_timeout_ms=120_000,
        queues={"q": QueueConfig(partitions=PARTITIONS)},
        groups={"g": GroupConfig(queue="q", consumers=3, commit_interval_ms=50)},
    )


def run_chaos(
    folder: Path, name: str, seconds: float, seed: int, server: Server | None
) -> tuple[Counter[str], list[str]]:
    """Deploy, torture, let it come to rest, and judge; answers what was done and what is wrong."""
    notes = folder / "notes"
    notes.mkdir()

    class Witness(witness.Witness):
        def __init__(self) -> None:
            super().__init__(notes)
            self.mischief = Mischief()

        def handle(self, message: Delivery) -> None:
            self.mischief.perhaps(self.notebook)
            super().handle(message)

    topology = deploy(_config(folder, name, server))
    try:
        found = topology.group("g")
        found.start(Witness, consumers=3)
        orders = sabotage.Orders(Path(os.environ.get(sabotage.VARIABLE, folder)))
        chaos = Chaos(topology, random.Random(seed), server, orders)
        with Load(topology, PER_SECOND, may_refuse=True) as load:
            chaos.run(seconds)
        rest = eventually(lambda: _at_rest(found), REST_S, "everything comes to rest", 0.1)
        every = Notebook(notes).notes()
        changes: list[Change] = []
        while more := found.history(changes[-1].version if changes else 0).changes:
            changes += more
        history = witness.in_order(
            witness.processed(every),
            witness.stored(changes),
            witness.seen(notes),
            witness.appended(topology.name, BUFFERS, "q", PARTITIONS),
        )
        history += _end_of(rest, load)
        wrong = [str(violation) for violation in checkers.check(history, witness.JUDGES)]
        wrong += _own_checks(chaos, every, load.places.keys())
        chaos.done["messages"] = load.sent
        for error in load.refused.values():
            chaos.done[f"messages refused: {type(error).__name__}"] += 1
        for note in Notebook(notes).notes(None):
            chaos.done[note.what] += note.what.startswith("handler ")
        chaos.done["processed again"] = len(every) - len({n.payload for n in every})
        return chaos.done, wrong
    finally:
        topology.kill()


def _end_of(rest: Any, load: Load) -> list[HistoryEvent]:
    """What producers were told, and where everything stands at last."""
    at_ms = round(time.time() * 1_000)
    told = [
        Acknowledged(at_ms, place.partition, place.offset, f"m{number}")
        for number, place in load.places.items()
        if place.offset is not None
    ]
    owners = {c.member: c.incarnation for c in rest.consumers}
    rows = tuple(
        PartitionRow(p.partition, p.owner, owners[p.owner], p.epoch, p.checkpoint)
        for p in rest.partitions
    )
    ends = {p.partition: p.end_offset for p in rest.partitions}
    return [*told, Ended(at_ms, rows, ends, tuple(owners.items()))]


def _at_rest(group: Any) -> Any:
    status = group.status()
    owned = all(p.owner and p.phase == "owned" for p in status.partitions)
    running = all(c.state == "running" for c in status.consumers)
    return status if status.lag == 0 and owned and running and not status.problem else None


def _own_checks(chaos: Chaos, notes: list[Note], acknowledged: Collection[int]) -> list[str]:
    wrong = []
    lost = {f"m{n}" for n in acknowledged} - {note.payload for note in notes}
    if lost:
        wrong.append(f"lost: {sorted(lost)[:10]}")
    late, freezes = stale(notes), chaos.done["consumer frozen"]
    if late > freezes * PARTITIONS:
        wrong.append(f"{late} messages by owners that were over, in {freezes} freezes")
    by_key: dict[str, int] = {}
    first_time = set()
    for note in notes:
        number = int(note.payload[1:])
        if note.payload in first_time or number not in acknowledged:
            continue
        first_time.add(note.payload)
        if number < by_key.get(note.key, -1):
            wrong.append(f"{note} after {by_key[note.key]} of the same key")
        by_key[note.key] = number
    return wrong[:20]


def main() -> int:
    parser = argparse.ArgumentParser(description="Chaos on real Ray")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="postgres")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pxrs-chaos-"))
        os.environ[sabotage.VARIABLE] = folder
        # Workers import their sabotage before Ray tells them where this program's modules are.
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
        ray.init(
            "local",
            num_cpus=4,
            log_to_driver=False,
            logging_level="error",
            runtime_env=sabotage.environment(Path(folder)),
        )
        try:
            server = stack.enter_context(PostgresServer()) if arguments.store != "sqlite" else None
            done, wrong = run_chaos(Path(folder), "chaos", arguments.minutes * 60, seed, server)
        finally:
            ray.shutdown()
    for what, count in sorted(done.items()):
        print(f"{count:>8}  {what}")
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
