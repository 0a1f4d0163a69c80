"""Replicated logs in a world that fails: the real machines of `pxrs_ray/replication`.

Rules of this file. Replicas, coordinators, producers and readers are processes of the simulator's
`World`; what they decide and keep is the product's, on simulated disks. Faults are drawn from the
seed; of the replicas in sync, one at least keeps what it has. What clients saw is judged, and
nothing else: what was acknowledged, what was read.
"""

from __future__ import annotations

import random
import zlib
from functools import partial

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.errors import DiskFull, LogError
from pxrs_ray.replication.peer_messages import LogKey
from pxrs_ray.replication.peer_wire import unpack_peer
from pxrs_ray.replication.placement import (
    InSync,
    Placement,
    ReplicaSeen,
    first_placement,
)
from pxrs_ray.replication.placements import placements_from
from tests.simulation.replicas.faults import ReplicaFaults
from tests.simulation.replicas.kept import (
    AGAIN_MS,
    FAULTS,
    SETTLE_MS,
    SLOT,
    SPARES,
    TROUBLE_MS,
    Entry,
    Registry,
    ReplicaDisk,
    Rules,
    Wanted,
)
from tests.simulation.replicas.placing import PlacingCoordinator
from tests.simulation.replicas.replica import ReplicaProcess
from tests.simulation.simulator.disk import SimulatedDisk
from tests.simulation.simulator.scenario import draw
from tests.simulation.simulator.world import Process, World, call


class ReplicaProducer(Process):
    """Appends numbered messages, a few at a time, each until it is acknowledged."""

    role = "producer"

    def __init__(self, group: ReplicaGroup, name: str) -> None:
        super().__init__(group.world, name)
        self.group = group
        self.next: dict[LogKey, int] = {}
        self.pending: dict[tuple[LogKey, int], Wanted] = {}
        self.since_ms: dict[tuple[LogKey, int], int] = {}
        self.sending = True
        self.every(30, self._send)

    def _send(self) -> None:
        key = self.world.random.choice(self.group.keys)
        if self.sending and len(self.pending) < 6:
            number = self.next.get(key, 0)
            self.next[key] = number + 1
            wanted = Wanted(key, self.name, number, self.world.number())
            self.pending[key, number] = wanted
            self.since_ms[key, number] = self.world.now_ms
        for wanted in list(self.pending.values()):
            if wanted.key not in self.group.keys:
                del self.pending[wanted.key, wanted.sequence]
                continue
            leader = self.group.known_leader()
            if leader is not None:
                done = partial(self._acknowledged, wanted)
                call(self, leader, partial(leader.append, wanted), done)

    def _acknowledged(self, wanted: Wanted, offset: int | None) -> None:
        if offset is not None:
            self.pending.pop((wanted.key, wanted.sequence), None)
            self.group.acknowledged(wanted, offset)


class ReplicaGroup(ReplicaFaults):
    """One slot with its replicas, and what clients saw of it."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.world = World(seed, draw(seed, {"lost": 0, "doubled": 0.05, "slow": 0.1}))
        self.rules = rules
        self.broken: list[str] = []
        self.faults: dict[str, int] = {}
        self._dice = random.Random(f"replicas {seed}")
        self.keys: list[LogKey] = [("q", partition) for partition in range(rules.partitions)]
        self.made = 0
        self._seen: dict[tuple[LogKey, int], int] = {}
        self._places: dict[int, tuple[LogKey, int]] = {}
        self._acknowledged: dict[tuple[LogKey, int], Wanted] = {}
        self._over = False
        self._seed = seed
        names = "abcde"[: rules.replicas + SPARES]
        self.disks = {name: self.new_disk(name) for name in names}
        self.processes: dict[str, ReplicaProcess] = {}
        self.doors: dict[str, Process] = {}
        self.wanted, self.min_isr = rules.replicas, rules.min_isr
        self.drained: set[str] = set()
        for disk in list(self.disks.values())[: rules.replicas]:
            self._begin(disk)
        living = {n: ReplicaSeen(p.life, p.who.boot) for n, p in self.processes.items()}
        self.being_written: list[str] = []
        self.registry = Registry(first_placement(tuple(living), living))
        self._coordinators = 0
        self.start_coordinator()
        self.producers = [ReplicaProducer(self, f"producer {n}") for n in range(2)]
        self.reader = Process(self.world, "reader")
        self.reader.role = "reader"
        self.reader.every(50, self._read)
        self._strike()

    # --- the parts --------------------------------------------------------------------------------

    def start_coordinator(self) -> None:
        """A coordinator takes the lead."""
        self._coordinators += 1
        self.coordinator = PlacingCoordinator(self, self._coordinators)

    def known_leader(self) -> ReplicaProcess | None:
        """Whom clients take for the leader."""
        return self.processes.get(self.registry.placement.leader)

    def new_disk(self, name: str) -> ReplicaDisk:
        return ReplicaDisk(name, SimulatedDisk(zlib.crc32(f"{self._seed} {name}".encode())))

    def _begin(self, disk: ReplicaDisk) -> None:
        process = self.processes[disk.name] = ReplicaProcess(self, disk)
        door = self.doors.setdefault(disk.name, Process(self.world, f"door of {disk.name}"))
        door.role, door.cut_from = disk.name, process.cut_from

    def tell(self, data: bytes) -> None:
        """Whichever process of a disk lives now hears what was said to it."""
        said = unpack_peer(data)
        process = self.processes.get(said.to)
        if process is not None:
            process.run(partial(process.told, said.message))

    def start(self, disk: ReplicaDisk) -> None:
        known = self.processes.get(disk.name)
        is_there = self.disks.get(disk.name) is disk
        if is_there and (known is None or not known.alive):
            try:
                self._begin(disk)
            except (LogError, DiskFull, OSError) as error:
                if not disk.files.failing:
                    self.broken.append(f"{disk.name} cannot be opened: {error!r}")
                else:
                    self.world.at(AGAIN_MS, partial(self.start, disk))

    def failed(self, process: ReplicaProcess) -> None:
        """A log of it failed: it ends, and another one is started."""
        if not process.disk.files.failing:
            self.broken.append(f"{process.name} failed on a disk that does not")
        self.end(process)
        self.world.at(self._dice.randint(10, 100), partial(self.start, process.disk))

    def end(self, process: ReplicaProcess) -> None:
        process.crash()
        if self._dice.random() < 0.5:
            self.coordinator.run(partial(self.coordinator.died, process.disk.name, process.life))

    def dropped(self, process: ReplicaProcess) -> None:
        """Its damaged logs are gone, and its process ends."""
        self.end(process)
        for key in process.damaged:
            process.disk.drop(key)
        self.world.at(self._dice.randint(10, 100), partial(self.start, process.disk))

    def retired(self, process: ReplicaProcess) -> None:
        """A disk has no replica any more: its process ends, and its logs are gone."""
        process.crash()
        if self.processes.get(process.disk.name) is process:
            del self.processes[process.disk.name]
        process.disk.lose_logs()

    def has_other(self, name: str) -> bool:
        """Whether another replica in sync keeps what it has, whatever becomes of this one; also by
        what is about to stand in the registry."""
        coming = [placements_from(text).slots[SLOT] for text in self.being_written]
        return all(self._has_other(name, one) for one in (self.registry.placement, *coming))

    def _has_other(self, name: str, placement: Placement) -> bool:
        if placement.in_sync(name) is None:
            return True
        process = self.processes.get(name)
        leader = process.replica.leader if process is not None else None
        if placement.leader == name and (leader is None or leader.is_asking):
            return False
        return any(self._is_sound(one) for one in placement.isr if one.disk != name)

    def _is_sound(self, member: InSync) -> bool:
        disk = self.disks.get(member.disk)
        if disk is None or not disk.whole or (disk.emptied | disk.rotten).intersection(self.keys):
            return False
        return disk.files.boot_id() == member.boot

    def heal(self) -> None:
        """No more faults, and none that goes on."""
        self._over = True
        self._calm()
        self.drained.clear()
        if not self.coordinator.alive:
            self.start_coordinator()
        for process in (*self.processes.values(), self.coordinator):
            process.cut_from.clear()
            process.thaw()
        for disk in self.disks.values():
            disk.whole = True
            disk.files.failing = 0.0
            if disk.name in self.processes:
                self.start(disk)
        for producer in self.producers:
            producer.sending = False

    def waited_ms(self) -> int:
        """For how long the oldest append waits that is not acknowledged."""
        since = [p.since_ms[one] for p in self.producers for one in p.pending]
        return self.world.now_ms - min(since, default=self.world.now_ms)

    # --- what clients saw -------------------------------------------------------------------------

    def _found(self, key: LogKey, offset: int, value: int) -> None:
        known = self._seen.setdefault((key, offset), value)
        if known != value:
            self.broken.append(f"{key}/{offset} was {known}, and is {value}")
        place = self._places.setdefault(value, (key, offset))
        if place != (key, offset):
            self.broken.append(f"{value} is at {place}, and at {key}/{offset}")

    def acknowledged(self, wanted: Wanted, offset: int) -> None:
        """A producer heard so."""
        self._acknowledged[wanted.key, offset] = wanted
        self._found(wanted.key, offset, wanted.value)

    def _read(self) -> None:
        key = self._dice.choice(self.keys)
        process, back = self._any(), self._dice.choice((5, 5, 50))

        def known(entries: list[tuple[int, int]]) -> None:
            for offset, value in entries:
                self._found(key, offset, value)

        call(self.reader, process, partial(process.read, key, back), known)

    def run(self) -> list[str]:
        """Trouble, then healing, then rest; what was broken."""
        self.world.run_until(TROUBLE_MS)
        self.heal()
        while self.world.now_ms < TROUBLE_MS + SETTLE_MS and not self._rests():
            self.world.run_until(self.world.now_ms + 100)
        self._judge()
        self.world.close()
        return self.broken

    def _rests(self) -> bool:
        placement = self.registry.placement
        return (
            not any(producer.pending for producer in self.producers)
            and len(placement.isr) == len(placement.replicas) == self.wanted
            and all(self._is_sound(one) and self._has_all(one.disk) for one in placement.isr)
        )

    def _has_all(self, disk: str) -> bool:
        """Whether a replica has every log, and has dropped what its leader has dropped."""
        if disk not in self.processes or not self.processes[disk].is_whole:
            return False
        mine = self.processes[disk].replica.logs
        leads = self.processes[self.registry.placement.leader].replica.logs
        return all(
            key in mine and key in leads and mine[key].start_offset >= leads[key].start_offset
            for key in self.keys
        )

    def _judge(self) -> None:
        if not self._rests():
            left = sum(len(producer.pending) for producer in self.producers)
            self.broken.append(f"not at rest: {left} appends wait, {self.registry.placement}")
            return
        placement = self.registry.placement
        for key in self.keys:
            kept = {}
            for one in placement.isr:
                process = self.processes[one.disk]
                kept[one.disk] = {e.offset: e for e in process.entries(key)}
                self._judge_log(process, key, kept[one.disk])
            # Who led before may have dropped more than the one that leads now.
            start = max(min(entries, default=0) for entries in kept.values())
            same = {d: {o: e for o, e in kept[d].items() if o >= start} for d in kept}
            if any(entries != same[placement.leader] for entries in same.values()):
                self.broken.append(f"{key}: the logs of replicas in sync differ")

    def _judge_log(self, process: ReplicaProcess, key: LogKey, kept: dict[int, Entry]) -> None:
        log = process.replica.logs[key]
        for (of, offset), wanted in self._acknowledged.items():
            found = kept.get(offset)
            if of != key or offset < log.start_offset:
                continue
            if found is None or found.value != wanted.value:
                self.broken.append(f"{key}/{offset} was acknowledged: {wanted}, {found}")
        for producer in self.producers:
            name = producer_id(producer.name)
            numbers = [entry.sequence for entry in kept.values() if entry.producer == name]
            header = Batch.of([b"k"], [b"x"], timestamp_ms=1).to_wire(name, 0, 0)[0]
            next_one = log.expected_sequence(header)
            if numbers != list(range(next_one - len(numbers), next_one)):
                self.broken.append(f"{key}: {producer.name} has {numbers} of {next_one}")
            if next_one != producer.next.get(key, 0):
                self.broken.append(f"{key}: {producer.name} is known up to {next_one}")
        if log.gaps or sorted(kept) != list(range(log.start_offset, log.end_offset)):
            self.broken.append(f"{key}: {process.name} has gaps: {log.gaps}")


def drawn(seed: int, only: tuple[str, ...] = (), **fixed: object) -> Rules:
    """The rules of a run; with `only`, mostly these faults."""
    dice = random.Random(f"rules {seed}")
    weights = {name: 5.0 if name in only else 0.3 if only else 1.0 for name in FAULTS}
    replicas = dice.choice((1, 2, 2, 3, 3, 3))
    rules = Rules(
        replicas=replicas,
        partitions=dice.choice((1, 2)),
        synced_only=dice.random() < 0.5,
        min_isr=dice.choice((1, 1, 2)) if replicas > 1 else 1,
        weights=weights,
        catch_up_bytes_per_s=dice.choice((0, 60_000)),
    )
    for name, value in fixed.items():
        setattr(rules, name, value)
    return rules


def broken_in(seed: int, only: tuple[str, ...] = (), **fixed: object) -> list[str]:
    """Play one run; what of the promises it broke."""
    return ReplicaGroup(seed, drawn(seed, only, **fixed)).run()
