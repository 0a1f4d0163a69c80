"""Disks, nodes, and the buffers' processes on them; and Ray, as far as it starts and ends those.

Rules of this file. Nothing of homes is decided here. A process of a node that is cut off lives on,
and serves whoever reaches it. Ray tells of a node's end late, and of one that is cut off too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pxrs_ray.data.frame import pack_header
from pxrs_ray.data.protocol import Appended, BufferGrant, QueueSpec
from pxrs_ray.errors import DeadlineExceeded, LogAway, PxrsError
from pxrs_ray.log.buffer_life import BufferLife, Woken
from pxrs_ray.log.identity import (
    Identity,
    belong,
    note_left,
    read_identity,
    read_left,
    step_back,
)
from pxrs_ray.log.queues_file import read_queues
from pxrs_ray.log.refusals import append_frame
from pxrs_ray.model import Epoch, Offset, PartitionId, Slot
from pxrs_ray.topology.disk_survey import DiskTrace, Looked, SurveyedNode
from pxrs_ray.topology.homes import Home, is_in_the_way
from pxrs_ray.topology.node_seen import NodeSeen
from tests.simulation.homes.judge import Judge
from tests.simulation.homes.lives import DATA, GROUP, QUEUE, SLOTS, Life
from tests.simulation.simulator.disk import SimulatedDisk
from tests.simulation.simulator.frames import frame_of
from tests.simulation.simulator.world import Process, World
from tests.simulation.stepping import Respond

RESTART_MS = 60
NOTICED_MS = 500
SLOT_FOLDERS = DATA / ".buffers"
Copy = dict[str, dict[str, bytes]]


class Gone(Exception):
    """Raised for whom Ray says that it will never come back."""


class Disk:
    """A disk: what lies on it of each slot, and the coordinator's note."""

    def __init__(self, number: int) -> None:
        self.disk_id = f"disk-{number}"
        self.note = SimulatedDisk(number)
        self._parts: dict[Slot, SimulatedDisk] = {}

    def part(self, slot: Slot) -> SimulatedDisk:
        return self._parts.setdefault(slot, SimulatedDisk(slot))

    def kept(self) -> dict[Slot, Copy]:
        return {slot: part.kept() for slot, part in self._parts.items()}

    def restore(self, kept: dict[Slot, Copy]) -> None:
        for slot in range(SLOTS):
            self.part(slot).restore(kept.get(slot, {}))

    def forget(self, slot: Slot, left: Copy) -> None:
        """Remove what a slot left there, and nothing else: as `remove_slot`."""
        part, beside = self.part(slot), str(SLOT_FOLDERS)
        if part.kept() == left:
            part.make_folder(SLOT_FOLDERS)
            note_left(part, SLOT_FOLDERS / str(slot))
            part.restore({beside: part.kept().get(beside, {})})

    def traces(self) -> tuple[DiskTrace, ...]:
        found = []
        for slot, part in sorted(self._parts.items()):
            folder = SLOT_FOLDERS / str(slot)
            identity = read_identity(part, folder)
            if identity is not None:
                queues = {spec.queue: spec.queue_id for spec in read_queues(part, folder)}
                found.append(DiskTrace(slot, identity, queues))
        return tuple(found)

    def left(self) -> tuple[DiskTrace, ...]:
        parts = sorted(self._parts.items())
        known = {slot: read_left(part, SLOT_FOLDERS / str(slot)) for slot, part in parts}
        return tuple(DiskTrace(slot, each) for slot, each in known.items() if each is not None)


@dataclass(eq=False)
class Node:
    """One life of a host, as Ray knows it."""

    node: str
    host: str
    boot: str
    disk: Disk
    alive: bool = True
    told: bool = True
    cut: bool = False
    draining: bool = False
    processes: list[Process] = field(default_factory=list)

    def seen(self) -> NodeSeen:
        return NodeSeen(self.node, self.host, draining=self.draining, unknown=True)

    def looked(self) -> Looked:
        disk = self.disk
        return Looked(disk.disk_id, self.boot, None, disk.traces(), left=disk.left())


class Machines:
    """All hosts, and Ray."""

    def __init__(self, world: World, hosts: int) -> None:
        self.world = world
        self.judge = Judge(world)
        self.nodes: list[Node] = []
        self.buffers: dict[Slot, BufferProcess] = {}
        self.every: list[BufferProcess] = []
        self.disks = 0
        for number in range(hosts):
            self.boot_host(f"10.0.0.{number + 1}", self.new_disk())

    def new_disk(self) -> Disk:
        self.disks += 1
        return Disk(self.disks)

    def boot_host(self, host: str, disk: Disk) -> Node:
        number = self.world.number()
        node = Node(f"node-{number:06}", host, f"boot-{number}", disk)
        self.nodes.append(node)
        return node

    def is_up(self, host: str) -> bool:
        return any(node.host == host and node.alive for node in self.nodes)

    def living(self) -> list[Node]:
        """The nodes that Ray takes for living."""
        return [node for node in self.nodes if node.told]

    def of(self, node: str) -> Node:
        return next(each for each in self.nodes if each.node == node)

    def here(self) -> list[Node]:
        """Those that can be reached now."""
        return [node for node in self.nodes if node.alive and not node.cut]

    def survey(self) -> list[SurveyedNode] | None:
        """What every living node tells; None while one does not."""
        if any(node.cut or not node.alive for node in self.living()):
            return None
        return [SurveyedNode(n.node, n.host, n.looked()) for n in self.living()]

    # --- faults -----------------------------------------------------------------------------------

    def power_off(self, node: Node) -> None:
        if not node.alive:
            return
        node.alive = False
        for process in node.processes:
            process.crash()
        for slot in range(SLOTS):
            node.disk.part(slot).cut_power()
            if any(p for p in node.processes if isinstance(p, BufferProcess) and p.slot == slot):
                self.judge.forgets(slot)
        self.world.at(
            1 + int(self.world.roll() * NOTICED_MS), partial(setattr, node, "told", False)
        )

    def cut(self, node: Node, ms: int) -> None:
        """Nobody but producers reaches it; a node that Ray has given up ends when it is back."""
        node.cut = True
        for process in node.processes:
            process.cut_from = {"leader", "arrival"}

        def given_up() -> None:
            if node.cut:
                node.told = False

        def back() -> None:
            node.cut = False
            for process in node.processes:
                process.cut_from = set()
            if not node.told:
                self.power_off(node)

        self.world.at(1_500, given_up)
        self.world.at(ms, back)

    # --- Ray --------------------------------------------------------------------------------------

    def start_buffer(self, slot: Slot, home: Home, anew: bool, respond: Respond) -> None:
        """As `buffer_at_home`: what of the name is elsewhere is ended first."""
        there = self.buffers.get(slot)
        if there is not None and is_in_the_way(
            home, there.at.node, lives=there.is_known(), anew=anew
        ):
            if there.at.cut and there.at.told:
                respond(DeadlineExceeded("it does not end"))
                return
            there.end()
            there = None
        if there is not None and there.is_known() and there.at.node == home.node:
            respond(there)
            return
        node = self.of(home.node)
        if not node.told:
            respond(DeadlineExceeded("there is no such node"))
            return
        made = BufferProcess(self, slot, node, home.disk)
        self.buffers[slot] = made
        self.every.append(made)
        respond(made)


class BufferProcess(Process):
    """The actor of a slot: one process after the other, on one node."""

    role = "buffer"

    def __init__(self, machines: Machines, slot: Slot, at: Node, disk_id: str) -> None:
        super().__init__(machines.world, f"buffer-{slot}-{machines.world.number()}")
        self.machines, self.slot, self.at, self._disk_id = machines, slot, at, disk_id
        self.ended = False
        self.life: Life | None = None
        self.lives = BufferLife(slot, "here", disk_id)
        self._processes = 0
        at.processes.append(self)
        if at.cut:
            self.cut_from = {"leader", "arrival"}
        if at.alive:
            self._begin(0)

    @property
    def part(self) -> SimulatedDisk:
        return self.at.disk.part(self.slot)

    def is_known(self) -> bool:
        """Whether Ray takes the actor for living."""
        return not self.ended and self.at.told

    def end(self) -> None:
        """As ray.kill: for good, where it is reached."""
        self.ended = True
        if not self.at.cut:
            self._die()
            self.crash()

    def restart(self) -> None:
        """Its process dies; Ray starts another one on the same node."""
        if self.alive and self.at.alive and not self.ended:
            self._die()
            self.world.at(RESTART_MS, partial(self._begin, self._processes), self)

    def _die(self) -> None:
        if self.life is not None:
            self.part.end_processes()
        self.life = None
        self._processes += 1

    def _begin(self, number: int) -> None:
        if number == self._processes:
            self.lives = BufferLife(self.slot, "here", self._disk_id)
            self._live()

    def _live(self) -> Life:
        self.lives.begins()
        self.life = Life(self, f"{self.name}/{self.machines.world.number()}")
        return self.life

    def holds(self) -> bool:
        """Whether it would acknowledge something now."""
        life = self.life
        serves = self.alive and not self.frozen and life is not None and not life.closed
        return serves and life is not None and life.tenure.holds(self.monotonic_ms())

    # --- calls ------------------------------------------------------------------------------------

    def ping(self, grant: BufferGrant, respond: Respond) -> None:
        life = self.life
        if life is None:
            return
        match self.lives.asked(by_coordinator=True):
            case Woken.BEGIN_ANEW:
                life = self._live()
            case Woken.END_PROCESS:
                self.restart()
                return
        life.tenure.take(grant, self.monotonic_ms())
        respond(life.info())

    def belong(self, claim: Identity, adopt: bool, respond: Respond) -> None:
        life = self.life
        if life is None or life.manager is None or life.closed:
            return
        respond(belong(self.part, life.manager.folder, claim, adopt=adopt))

    def open(
        self, spec: QueueSpec, ends: dict[PartitionId, Offset], make: bool, respond: Respond
    ) -> None:
        life = self.life
        if life is None or life.manager is None or life.closed:
            return
        try:
            life.manager.open(spec, ends, self.now().wall_ms, make=make)
        except PxrsError as error:
            respond(error.with_traceback(None))
        else:
            respond(None)

    def fence(self, epochs: dict[PartitionId, Epoch]) -> None:
        if self.life is not None and self.life.fence is not None and not self.life.closed:
            self.life.fence.fence(QUEUE, GROUP, epochs)
            if self.holds():
                self.machines.judge.heard_epochs(epochs)

    def fences(self, respond: Respond) -> None:
        if self.life is not None and self.life.fence is not None and not self.life.closed:
            respond(self.life.fence.epochs(QUEUE, GROUP))

    def stop(self, respond: Respond) -> None:
        life = self.life
        if life is None:
            return
        if life.stopped_by:  # it closes: who asks meanwhile hears when it has
            life.stopped_by.append(respond)
            return
        if not self.lives.closes():
            respond(None)
            return
        life.stopped_by.append(respond)
        life.tenure.give_back()
        self.world.at(1 + int(self.world.roll() * 20), partial(self._rest, life), self)

    def _rest(self, life: Life) -> None:
        """What it had to close is closed."""
        if life is not self.life:
            return
        if life.manager is not None:
            life.manager.close()
        self.part.end_processes()
        self.lives.is_at_rest()
        told, life.stopped_by = life.stopped_by, []
        for respond in told:
            respond(None)

    def append(self, partition: PartitionId, text: str) -> None:
        """A producer's; what is acknowledged is noted."""
        life = self.life
        if life is None or life.manager is None or not self.holds():
            return
        header, body = frame_of(b"k", (text,))
        number = self.world.number()
        header = header._replace(producer_id=number.to_bytes(16, "big"))
        try:
            log = life.manager.log(QUEUE, partition)
            producers = life.manager.producers
            done = append_frame(log, producers, 1, partition, pack_header(header), body)
            log.sync()
        except PxrsError:
            return
        if isinstance(done, Appended):
            self.machines.judge.acknowledged(self, partition, done.base_offset, text)

    def step_back(self, generation: int, left_for: int, moves: int, respond: Respond) -> None:
        if self.life is not None and self.life.manager is not None and self.life.closed:
            step_back(self.part, self.life.manager.folder, generation, left_for, moves)
            respond(None)

    # --- for moves --------------------------------------------------------------------------------

    def copy(self, last: bool, respond: Respond) -> None:
        """What lies on the disk; a copy that is the last one is of a buffer that has stopped."""
        if self.life is None:
            return
        if last and not self.life.closed:
            respond(LogAway("it is still written"))
        else:
            respond(self.part.kept())


class Arrival(Process):
    """Who takes a copy on a node; it ends with the coordinator that had it made."""

    role = "arrival"

    def __init__(self, machines: Machines, slot: Slot, at: Node) -> None:
        super().__init__(machines.world, f"arrival-{slot}")
        self.slot, self.at = slot, at
        self.copy: Any = None
        at.processes.append(self)

    def install(self, respond: Respond) -> None:
        self.at.disk.part(self.slot).restore(self.copy)
        respond(None)
