"""One run of a world of homes: trouble, then healing, then everything has to be served again."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.topology.homes import DOCUMENT, homes_from
from pxrs_ray.topology.registry_witness import (
    NAME,
    NOTED,
    Noted,
    may_begin_again,
    write_note,
)
from tests.simulation.homes.leader import Leader
from tests.simulation.homes.lives import PARTITIONS, QUEUE, SLOTS, TOPOLOGY
from tests.simulation.homes.machines import Machines, Node
from tests.simulation.simulator.run import quiet, uncollected
from tests.simulation.simulator.scenario import Network, Scenario
from tests.simulation.simulator.world import World

TROUBLE_MS, SETTLE_MS = 8_000, 14_000
SEND_MS = 25
# An operator gives up what is away for longer than all hosts need to be back.
PATIENCE_MS = 2_000
FOLDER = Path("/data/t")

FAULTS = {
    "buffer_crash": 2.0,
    "buffer_freeze": 1.0,
    "host_off": 2.0,
    "host_cut": 1.5,
    "leader_crash": 3.0,
    "drain": 1.5,
    "move": 4.0,
    "store_outage": 1.0,
    "store_deaf": 1.0,
    "registry_older": 0.4,
    "registry_lost": 0.4,
    "give_up": 0.3,
    "network": 1.0,
}
"""Every fault of hosts, and its weight against the others."""
CLOCKS = {**FAULTS, "clock_jump": 2.0}
"""The same, while clocks are set. Apart: the seeds that showed a fault once show it without."""
LOST = {
    **dict.fromkeys(FAULTS, 0.0),
    "registry_older": 3.0,
    "registry_lost": 2.0,
    "leader_crash": 2.0,
    "move": 2.0,
    "host_off": 1.0,
}
"""Registries that come back older, or empty."""


class Cluster:
    """The machines, the registry, and whoever leads."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(f"homes {seed}")
        calm = dice.random() < 0.4
        network = Network() if calm else Network(lost=0.03, doubled=0.05, slow=0.1, slow_ms_max=300)
        self.world = World(seed, replace(Scenario(), network=network))
        self.machines = Machines(self.world, dice.choice((2, 3, 4)))
        self.replace_after_ms = dice.choice((None, None, None, 2_500))
        self.harmless = dice.random() < 0.6
        self.down = self.deaf = False
        self.moves = 0
        self._store = MemoryStore(now_ms=lambda: self.world.now_ms)
        self.leader: Leader | None = None
        self.accepting = False
        # By the operator's own watch.
        self._away_from_ms: dict[int, int] = {}
        self.over = False
        self.start_leader(may_begin=True)
        self.world.at(50, self._supervise)
        self.world.at(SEND_MS, self._send)

    def store(self) -> MemoryStore:
        return self._store

    # --- the coordinator --------------------------------------------------------------------------

    def start_leader(self, *, may_begin: bool = False) -> None:
        here = [n for n in self.machines.here() if n.told]
        if here:
            self.leader = Leader(self, self.world.random.choice(here), may_begin=may_begin)

    def accepted_on(self, node: Node) -> bool:
        return may_begin_again(self._noted(node))

    def _noted(self, node: Node) -> Noted:
        node.disk.note.make_folder(FOLDER)
        try:
            return NOTED.decode(node.disk.note.read_file(FOLDER / NAME))
        except FileNotFoundError:
            return Noted("")

    def _supervise(self) -> None:
        self.world.at(120, self._supervise)
        leader = self.leader
        if leader is None or not leader.alive:
            self.start_leader(may_begin=leader is None)
        elif leader.halted is not None and (self.accepting or self.world.chance(0.05)):
            self._accept(leader)
        elif self.accepting and leader.table._foreign:
            self._accept(leader)  # these were away when it was accepted
        elif self.accepting and not leader.starting:
            self._give_up_what_is_gone(leader)

    def _give_up_what_is_gone(self, leader: Leader) -> None:
        """An operator accepts the loss of disks that nobody has any more, and ends a buffer that
        has heard of a coordinator whose registry was lost."""
        for slot, generation in leader.table._led_by.items():
            if generation > leader.generation:  # status tells: it serves a coordinator that is gone
                self.machines.buffers[slot].restart()
        disks = {n.disk.disk_id for n in self.machines.nodes if n.told}
        for slot, home in leader.homes.homes.slots.items():
            gone = home.disk not in disks  # nor does anybody know of its newest logs
            if home.away_since_ms is None:
                self._away_from_ms.pop(slot, None)
                continue
            since_ms = self._away_from_ms.setdefault(slot, self.world.now_ms)
            waits = self.world.now_ms - since_ms > PATIENCE_MS
            if waits and self.all_are_there() and gone:
                leader._do(leader.homes.give_up(slot))

    def _accept(self, leader: Leader) -> None:
        """An operator goes on with what the registry holds, as the error says."""
        if not self.all_are_there():
            return  # whoever is away is not asked: that host's logs would be given up with it
        noted = self._noted(leader.at)
        noted = replace(noted, accepted="somebody", shown=leader.shown)
        write_note(FOLDER / NAME, noted, leader.at.disk.note)
        node = leader.at
        leader.crash()
        self.leader = Leader(self, node, may_begin=False)

    def harm(self, why: str) -> None:
        for slot in range(SLOTS):
            self.machines.judge.harmed.setdefault(slot, why)

    def all_are_there(self) -> bool:
        lives = [n for n in self.machines.nodes if n.alive and not n.cut and n.told]
        hosts = {n.host for n in self.machines.nodes}
        return {n.host for n in lives} == hosts and self.machines.survey() is not None

    def _send(self) -> None:
        if not self.over:
            self.world.at(SEND_MS, self._send)
        partition = self.world.random.randrange(PARTITIONS)
        text = f"m{self.world.number()}"
        # Whoever was found under the name once may be called as well as who is there now.
        there = [b for b in self.machines.every if b.slot == partition % SLOTS and b.alive]
        for buffer in there[-3:]:
            if buffer.alive:
                self.world.at(1, partial(buffer.append, partition, text), buffer)
                text = f"m{self.world.number()}"


class Chaos:
    """Breaks things until the trouble is over."""

    def __init__(self, cluster: Cluster, seed: int, weights: Mapping[str, float]) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.dice = random.Random(f"homes chaos {seed}")
        self.counts: Counter[str] = Counter()
        self._names, self._weights = list(weights), list(weights.values())
        self.over = self._restores = False
        self._interval_ms = self.dice.choice((150, 350, 800))
        self.world.at(900, self._next)

    def _next(self) -> None:
        if self.over:
            return
        (name,) = self.dice.choices(self._names, self._weights)
        self.counts[name] += 1
        getattr(self, name)()
        self.world.at(1 + int(self.dice.expovariate(1 / self._interval_ms)), self._next)

    def _node(self) -> Node | None:
        here = self.cluster.machines.here()
        return self.dice.choice(here) if here else None

    def buffer_crash(self) -> None:
        """A buffer's process is killed."""
        self.dice.choice(self.cluster.machines.every or [None]).restart()

    def buffer_freeze(self) -> None:
        """A buffer stands still, for less or more than its lease."""
        buffer = self.dice.choice(self.cluster.machines.every)
        buffer.freeze()
        self.world.at(self.dice.randint(100, 1_500), buffer.thaw)

    def host_off(self) -> None:
        """A host loses its power, and comes back: with its disk, or an older or an empty one."""
        node = self._node()
        if node is None:
            return
        machines, disk = self.cluster.machines, node.disk
        kind = "same"
        if not self.cluster.harmless:
            kind = self.dice.choice(("same", "same", "older", "empty"))
        kept = disk.kept()
        machines.power_off(node)
        back_ms = self.dice.randint(100, 2_500)

        def back() -> None:
            if machines.is_up(node.host):
                return
            there = disk
            if kind == "older":
                disk.restore(self._kept.get(disk.disk_id, kept))
                self.cluster.harm("its disk is older")
                machines.judge.a_disk_is_older = True
            elif kind == "empty":
                there = machines.new_disk()
                self.cluster.harm("its disk is empty")
            node.told = False
            machines.boot_host(node.host, there)

        self._kept = {**getattr(self, "_kept", {})}
        self._kept.setdefault(disk.disk_id, kept)
        self.world.at(back_ms, back)

    def host_cut(self) -> None:
        """A host is cut off from all but producers: too short for Ray, or long enough."""
        node = self._node()
        if node is not None:
            self.cluster.machines.cut(node, self.dice.choice((200, 800, 2_500)))
            host, disk = node.host, node.disk
            machines = self.cluster.machines

            def again() -> None:
                if not machines.is_up(host):
                    machines.boot_host(host, disk)

            self.world.at(3_200, again)

    def leader_crash(self) -> None:
        """The coordinator is killed, wherever it had come to."""
        if self.cluster.leader is not None:
            self.cluster.leader.crash()

    def drain(self) -> None:
        """A node is drained; the drain is called off."""
        node = self._node()
        if node is not None:
            node.draining = True
            self.world.at(self.dice.randint(300, 2_000), partial(setattr, node, "draining", False))

    def move(self) -> None:
        """Somebody moves a slot."""
        leader = self.cluster.leader
        if leader is not None and leader.alive and not leader.starting:
            slot = self.dice.randrange(SLOTS)
            leader.run(lambda: leader._do(leader.move(slot, None)))
            if self.dice.random() < 0.5:
                self.world.at(self.dice.randint(1, 250), leader.crash)

    def store_outage(self) -> None:
        """The registry is away for a while."""
        self.cluster.down = True
        self.world.at(self.dice.randint(100, 1_500), partial(setattr, self.cluster, "down", False))

    def store_deaf(self) -> None:
        """The registry does what it is asked, and loses answers."""
        self.cluster.deaf = True
        self.world.at(self.dice.randint(100, 900), partial(setattr, self.cluster, "deaf", False))

    def registry_older(self) -> None:
        """The registry comes back as it was a while ago: when it knew the queue already."""
        homes = homes_from(self.cluster.store().documents(TOPOLOGY).get(DOCUMENT, ""))
        if not all(homes.is_made(QUEUE, slot) for slot in range(SLOTS)):
            return
        if self._restores:
            return  # not while one is being restored: it could undo that
        self._restores = True
        kept = copy.deepcopy(_content(self.cluster.store()))

        def back() -> None:
            self._restores = False
            if not self.over:
                self.cluster.store()._registry.groups = kept
                self.cluster.machines.judge.forgets_homes(homes)
                if self.cluster.leader is not None:
                    self.cluster.leader.crash()

        self.world.at(self.dice.randint(300, 1_500), back)

    def registry_lost(self) -> None:
        """The registry is emptied."""
        self.cluster._store = MemoryStore(now_ms=lambda: self.world.now_ms)
        if self.cluster.leader is not None:
            self.cluster.leader.crash()

    def give_up(self) -> None:
        """An operator gives up the disk of a slot that waits."""
        leader = self.cluster.leader
        if leader is None or not leader.alive or leader.starting:
            return
        for slot, home in leader.homes.homes.slots.items():
            if home.away_since_ms is not None:
                leader._do(leader.homes.give_up(slot))
                return

    def network(self) -> None:
        """The network is bad for a while."""
        world = self.world
        world.network = Network(0.3, 0.3, 0.5, 400)

        def better() -> None:
            if not self.over:
                world.network = world.scenario.network

        world.at(self.dice.randint(200, 900), better)

    def clock_jump(self) -> None:
        """All wall clocks are stepped, forwards or back."""
        self.world.wall_offset_ms += self.dice.choice((-3_600_000, -500, 500, 3_600_000))

    def heal(self) -> None:
        """End every fault; every host comes back."""
        self.over = True
        cluster, machines = self.cluster, self.cluster.machines
        cluster.down = cluster.deaf = False
        cluster.replace_after_ms = None
        cluster.accepting = True
        self.world.network = Network()
        for node in machines.nodes:
            node.draining = False
        for buffer in machines.every:
            buffer.thaw()


def _content(store: MemoryStore) -> dict[str, object]:
    return store._registry.groups  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class HomesRun:
    """What one seed gave."""

    seed: int
    wrong: tuple[str, ...]
    faults: Mapping[str, int]
    moves: int
    acknowledged: int


def run(seed: int, weights: Mapping[str, float] | None = None) -> HomesRun:
    """Simulate the run of `seed`; `weights` replaces those of some faults."""
    with uncollected(), quiet():
        cluster = Cluster(seed)
        dice = random.Random(f"homes faults {seed}")
        drawn = {name: weight for name, weight in FAULTS.items() if dice.random() < 0.6}
        chaos = Chaos(cluster, seed, {**(drawn or FAULTS), **(weights or {})})
        cluster.world.run_until(TROUBLE_MS)
        chaos.heal()
        cluster.world.run_until(TROUBLE_MS + SETTLE_MS - 2_000)
        cluster.over = True
        cluster.world.run_until(TROUBLE_MS + SETTLE_MS)
        judge = cluster.machines.judge
        leader = cluster.leader
        judge.at_rest(cluster.machines, leader._rows() if leader is not None else ())
        if leader is None or leader.starting:
            judge.breaks(f"nobody leads: {leader and leader.halted!r}")
        return HomesRun(
            seed, tuple(judge.wrong), dict(chaos.counts), cluster.moves, len(judge.acks)
        )
