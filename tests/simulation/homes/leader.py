"""One incarnation of a coordinator, as far as homes, buffers and the registry's witness go.

Rules of this file. `SlotTable`, `HomeRounds`, `move`, `Leaving`, `open_on`, `LogWitness` and
`RegistryWitness` decide; here their steps are carried, in the order in which `Coordinator` begins
them. Each call takes its time, may be lost, and ends at its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pxrs_ray.codec import json_codec
from pxrs_ray.data.protocol import BufferInfo, QueueSpec
from pxrs_ray.errors import (
    AlreadyExists,
    BufferAway,
    DeadlineExceeded,
    PxrsError,
    RegistryNotHere,
    StoreCorrupted,
    StoreUnavailable,
)
from pxrs_ray.log.identity import Identity
from pxrs_ray.model import (
    Epoch,
    Generation,
    Offset,
    Outcome,
    PartitionId,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.steps import Steps
from pxrs_ray.topology.home_rounds import (
    BeginPlacing,
    HomeRounds,
    KeepHomes,
    LivingNodes,
    LookAtDisks,
    TellWaits,
)
from pxrs_ray.topology.homes import DOCUMENT, HOMES, Home, NodeSeen, Slot, homes_from
from pxrs_ray.topology.log_witness import AskEnds, AskFences, Halt, LogWitness, RaiseEpochs
from pxrs_ray.topology.move_plan import LITTLE_BYTES, kept_between, plan_leaving
from pxrs_ray.topology.move_steps import (
    CopyRound,
    EmptyOld,
    EndArrival,
    Install,
    Leaving,
    LetGoOn,
    ListFiles,
    MakeArrival,
    PlaceAnew,
    StepBack,
    StopBuffer,
    move,
)
from pxrs_ray.topology.openings import (
    NoteMade,
    OpenAll,
    check_may_begin,
    ids_on_disks,
    open_on,
    queues_to_name,
    with_ids,
)
from pxrs_ray.topology.registry_witness import ACCEPTING, RegistryWitness
from pxrs_ray.topology.slot_table import SlotTable, is_against
from tests.simulation.homes.machines import (
    GROUP,
    PARTITIONS,
    QUEUE,
    SLOTS,
    TOPOLOGY,
    Arrival,
    BufferProcess,
    Gone,
    Node,
    spec_of,
)
from tests.simulation.simulator.store import store_call
from tests.simulation.simulator.world import Process, call
from tests.simulation.stepping import Ask, Respond, Turn, carry_out

if TYPE_CHECKING:
    from tests.simulation.homes.run import Cluster

LEASE_MS, PING_MS, ROUND_MS, CONFIRM_MS = 400, 80, 120, 80
ASK_MS, AGAIN_MS, START_AGAIN_MS, MET_MS = 250, 60, 200, 600
KNOWN_ENDS = json_codec("simulated: known ends", dict[PartitionId, Offset])


class Halted(Exception):
    """Raised where somebody has to accept a loss."""


class Leader(Process):
    """See the rules at the head of this file. `may_begin` says that the topology is deployed."""

    role = "leader"

    def __init__(self, cluster: Cluster, at: Node, *, may_begin: bool) -> None:
        super().__init__(cluster.world, f"leader-{cluster.world.number()}")
        self.cluster, self.at, self.may_begin = cluster, at, may_begin
        self.halted: BaseException | None = None
        self.starting = True
        self.generation: Generation = 0
        self.table = SlotTable(SLOTS, LEASE_MS, self.monotonic_ms())
        self.accepts_loss = False
        self._looked: dict[str, NodeSeen] = {}
        self._seen: list[NodeSeen] = []
        self._round, self._writing = Turn(), Turn()
        self._leaving, self._moves = Leaving(), Turn()
        self._ends: dict[PartitionId, Offset] = {}
        self._kept_ends: dict[PartitionId, Offset] = {}
        self._group: Snapshot | None = None
        self._sources: dict[Slot, BufferProcess] = {}
        self.moving: set[Slot] = set()
        self._going: list[Slot] = []
        self._checked: dict[Slot, str] = {}
        self.witness: RegistryWitness
        self.homes: HomeRounds
        self.logs = LogWitness(QUEUE, GROUP, self._rows, lambda: self.accepts_loss)
        at.processes.append(self)
        self._do(self._begin())

    def _do(self, steps: Steps[Any], over: Respond = lambda _: None) -> None:
        carry_out(self, steps, self._carry, over)

    # --- starting ---------------------------------------------------------------------------------

    def _begin(self) -> Steps[None]:
        while True:
            try:
                yield from self._start()
            except (StoreCorrupted, RegistryNotHere) as error:
                self.halted = error  # it is shown, and asked again
            except (PxrsError, Gone):
                self.halted = None
            else:
                self.halted, self.starting = None, False
                return
            yield Ask(lambda respond: self.after(START_AGAIN_MS, partial(respond, None)))

    def _start(self) -> Steps[None]:
        self.table = SlotTable(SLOTS, LEASE_MS, self.monotonic_ms())
        store = self.cluster.store
        known: Mapping[str, str] = yield from self._known(lambda: store().documents(TOPOLOGY))
        accepted = self.cluster.accepted_on(self.at)
        if not known and not accepted:
            places = self.cluster.machines.survey()
            if places is None:
                raise DeadlineExceeded("a host does not tell")
            check_may_begin(TOPOLOGY, places, None, may_begin=self.may_begin)
        registry_id = yield from self._known(lambda: store().create())
        files = self.at.disk.note
        files.make_folder(Path("/data/t"))
        self.witness = RegistryWitness(Path("/data/t"), registry_id, files=files, strict=True)
        self.accepts_loss = bool(self.witness.accepted)
        yield from self._lead(0)
        documents: Mapping[str, str] = yield from self._known(lambda: store().documents(TOPOLOGY))
        if self.witness.accepted:
            yield from self._put(ACCEPTING, self.witness.accepted)
        self.accepts_loss = self.accepts_loss or bool(documents.get(ACCEPTING))
        if self.accepts_loss:
            self.cluster.machines.judge.era += 1
        self.topology_id = documents.get("topology_id", "")
        if not self.topology_id:
            self.topology_id = self.witness.topology_id or f"id-{self.world.number()}"
            yield from self._put("topology_id", self.topology_id)
            self.cluster.machines.judge.begins(self.topology_id, self.accepts_loss)
        self.witness.note_topology(self.topology_id)
        self.table.grants.generation = self.generation
        if documents.get("known_ends"):
            self._ends = dict(KNOWN_ENDS.decode_text(documents["known_ends"]))
        homes = homes_from(documents.get(DOCUMENT, ""))
        in_memory = False
        self.homes = HomeRounds(
            homes,
            self.table,
            lambda slot: self.table.seen_at(slot, self.monotonic_ms(), in_memory=in_memory),
            lambda: self.now().wall_ms,
            lambda: self.cluster.replace_after_ms,
        )
        yield from self._rounds_once()
        yield Ask(lambda respond: self.after(MET_MS, partial(respond, None)))
        for slot in self.table.hosted():
            found = yield from self._ping(slot)
            if isinstance(found, BufferInfo):
                self.table.met_at_start(slot, found)
        yield from self._check_identity()
        yield from self._confirm()
        for slot in range(SLOTS):
            self.every(PING_MS, partial(self._watch, slot, self.table))
        yield from self._lead_group()
        yield from self._open_queues()
        yield from self._check_logs()
        if self.accepts_loss:
            yield from self._put(ACCEPTING, "")
        self.witness.settled()
        self.accepts_loss = False
        self.every(ROUND_MS, lambda: self._do(self._rounds_once()))
        self.every(CONFIRM_MS, lambda: self._do(self._confirm()))
        self.every(CONFIRM_MS * 3, lambda: self._do(self._keep_ends()))
        self.every(CONFIRM_MS * 4, self._give_epoch)
        self.every(CONFIRM_MS * 2, self._see_drains)

    def _lead(self, over: Generation) -> Steps[None]:
        self.generation = 0
        store = self.cluster.store
        while self.generation <= over:
            led: Snapshot = yield from self._known(lambda: store().lead(TOPOLOGY, 1, self.name))
            self.generation = led.generation

    def _lead_group(self) -> Steps[None]:
        """The group's generation, compared with what was noted of it."""
        store = self.cluster.store
        over = self.witness.generation(GROUP) if self.witness.accepted else 0
        while True:
            led: Snapshot = yield from self._known(
                lambda: store().lead(GROUP, PARTITIONS, self.name)
            )
            if led.generation > over:
                break
        self.witness.check(GROUP, led.generation, led.last_version)
        self._group = led
        self.witness.note(GROUP, led.generation, led.last_version)

    def _claim(self) -> Identity:
        return Identity(self.topology_id, self.generation, self.name)

    def _check_identity(self) -> Steps[None]:
        against = yield from self._belong(adopt=False)
        if not against:
            return
        if not self.accepts_loss:
            raise StoreCorrupted("logs of another registry, or of a later coordinator")
        yield from self._lead(max(known.generation for known in against.values()))
        self.table.grants.generation = self.generation
        yield from self._belong(adopt=True)

    def _belong(self, *, adopt: bool) -> Steps[dict[Slot, Identity]]:
        against = {}
        for slot in self.table.met():
            try:
                known = yield from self._ask(slot, "belong", self._claim(), adopt)
            except (BufferAway, Gone):
                self.table.look_anew(slot)
                continue
            self.table.belongs(slot, known, self._claim(), adopt=adopt)
            if is_against(known, self._claim()):
                against[slot] = known
        return against

    def _open_queues(self) -> Steps[None]:
        homes = self.homes.homes
        known: dict[str, str] = {}
        if self.accepts_loss:
            places = self.cluster.machines.survey()
            if places is None:
                raise DeadlineExceeded("a host does not tell")
            known = ids_on_disks(places)
            if not self.cluster.all_are_there():
                self.cluster.harm("the registry's loss was accepted while its host was away")
        to_name = queues_to_name([QUEUE], homes, known)
        if to_name:
            wanted = {q: known.get(q) or f"q-{self.world.number()}" for q in to_name}
            yield KeepHomes(lambda homes: with_ids(homes, wanted, known, SLOTS))
        yield from open_on(self.homes.homes, self.table.hosted(), [self._spec()])

    def _spec(self) -> QueueSpec:
        known = self.homes.homes.queues.get(QUEUE)
        return spec_of(known.queue_id if known is not None else "")

    # --- calls ------------------------------------------------------------------------------------

    def _known(self, do: Callable[[], Any]) -> Steps[Any]:
        """What the registry answers, however long it is away."""
        while True:
            try:
                answer = yield Ask(partial(self._store, do))
            except StoreUnavailable:
                yield Ask(lambda respond: self.after(AGAIN_MS, partial(respond, None)))
            else:
                return answer

    def _store(self, do: Callable[[], Any], respond: Respond) -> None:
        cluster = self.cluster

        def unless_down() -> Any:
            if cluster.down:
                raise StoreUnavailable("it is away")
            found = do()
            if cluster.deaf and self.world.chance(0.5):
                raise StoreUnavailable("its answer was lost")
            return found

        store_call(self, unless_down, respond, 6)

    def _put(self, name: str, text: str) -> Steps[None]:
        store, generation = self.cluster.store, self.generation
        outcome = yield from self._known(
            lambda: store().put_document(TOPOLOGY, generation, name, text)
        )
        if outcome is not Outcome.APPLIED:
            self.crash()
            yield Ask(lambda respond: None)

    def _ask(self, slot: Slot, method: str, *given: Any) -> Steps[Any]:
        """A call to whoever serves a slot. Raises BufferAway, Gone."""
        return (yield Ask(partial(self._call, self.table._handles.get(slot), method, given)))

    def _call(
        self, buffer: BufferProcess | None, method: str, given: tuple[Any, ...], respond: Respond
    ) -> None:
        if buffer is None:
            respond(BufferAway("nobody serves it"))
            return
        do = getattr(buffer, method)
        call(self, buffer, lambda answer: do(*given, answer), respond)

        def over() -> None:
            gone = not buffer.is_known()
            respond(Gone(buffer.name) if gone else BufferAway("no answer in time"))

        self.after(ASK_MS, over)

    def _ping(self, slot: Slot) -> Steps[BufferInfo | None]:
        table = self.table
        if not table.is_looked_at(slot):
            return None
        try:
            info: BufferInfo = yield from self._ask(slot, "ping", table.grant_of(slot))
        except (BufferAway, Gone) as error:
            table.look_failed(slot, str(error), is_gone=isinstance(error, Gone))
            return None
        for ends in info.ends.values():
            for partition, end in ends.items():
                self._ends[partition] = max(end, self._ends.get(partition, 0))
        table.heard(slot, info, self.monotonic_ms())
        return info

    def _watch(self, slot: Slot, table: SlotTable) -> None:
        if table is self.table:
            self._do(self._look(slot))

    def _look(self, slot: Slot) -> Steps[None]:
        info = yield from self._ping(slot)
        if info is None:
            return
        self.table.is_back(slot)
        if self.starting or not self.table.to_be_opened(slot, info):
            return
        try:
            yield from self._reopen(slot)
        except (PxrsError, Gone) as error:
            self.table.look_anew(slot)
            self.table.look_failed(slot, str(error), is_gone=isinstance(error, Gone))

    def _reopen(self, slot: Slot) -> Steps[None]:
        known = yield from self._ask(slot, "belong", self._claim(), False)
        if self.table.belongs(slot, known, self._claim(), adopt=False):
            yield from self._confirm()
            yield from self._ping(slot)
        failed = yield from open_on(self.homes.homes, [slot], [self._spec()])
        for error in failed:
            raise error
        yield from self._check_logs()

    def _check_logs(self) -> Steps[None]:
        """Ask the logs that are there what they have seen: of these it is known from then on."""
        asked = dict(self.table._incarnations)
        yield from self.logs.checking()
        now = self.table._incarnations
        self._checked.update({s: life for s, life in asked.items() if now.get(s) == life})

    # --- leading ----------------------------------------------------------------------------------

    def _confirm(self) -> Steps[None]:
        heard, table = self.table.grants.heard_so_far(), self.table
        store = self.cluster.store
        try:
            found: Snapshot | None = yield Ask(partial(self._store, lambda: store().load(TOPOLOGY)))
        except StoreUnavailable:
            pass  # nobody can become newer through it meanwhile
        else:
            if found is None or found.generation != self.generation:
                self.crash()
                yield Ask(lambda respond: None)
        table.grants.leading(heard)

    def _keep_ends(self) -> Steps[None]:
        if self._ends != self._kept_ends:
            ends = dict(self._ends)
            yield from self._put("known_ends", KNOWN_ENDS.encode_text(ends))
            self._kept_ends = ends

    def _rows(self) -> Any:
        return self._group.partitions if self._group is not None else ()

    def _give_epoch(self) -> None:
        met = self.table.met()
        if self._group is None or not met or self.halted is not None:
            return
        partition = self.world.random.randrange(PARTITIONS)
        if partition % SLOTS in met:
            self._do(self._raise({partition: self._rows()[partition].epoch}))
        refused = self.cluster.machines.judge.refused(self._rows())
        if refused:  # a reader of each says so
            self.logs.are_refused(refused)
        self._do(self.logs.granting_anew())

    def _raise(self, above: Mapping[PartitionId, Epoch]) -> Steps[None]:
        """Give each of these an epoch above, durably; then their logs hear that it is over."""
        store = self.cluster.store
        for partition, epoch in above.items():
            group = self._group
            assert group is not None
            row = group.partitions[partition]
            version = group.last_version + 1
            write = Write(
                WriteKind.RESET,
                partition,
                None,
                0,
                row.epoch,
                version=version,
                epoch_to=epoch + 1,
            )
            given = write.epoch_after
            rows = tuple(
                replace(r, epoch=given) if r.partition == partition else r for r in group.partitions
            )
            self._group = replace(group, partitions=rows, last_version=version)
            outcomes = yield from self._known(
                lambda w=write, g=group: store().write(GROUP, g.generation, [w])  # type: ignore[misc]
            )
            if outcomes != [Outcome.APPLIED]:
                self.crash()
                yield Ask(lambda respond: None)
            slot = partition % SLOTS
            known = self._checked.get(slot)
            if known is not None and known == self.table._incarnations.get(slot):
                self.cluster.machines.judge.gives(partition, given, slot)
            self.witness.note(GROUP, group.generation, version)
            buffer = self.table._handles.get(slot)
            if buffer is not None:
                epochs = {partition: given}
                call(self, buffer, lambda _, b=buffer, e=epochs: b.fence(e), lambda _: None)  # type: ignore[misc]

    # --- homes ------------------------------------------------------------------------------------

    def _rounds_once(self) -> Steps[None]:
        yield Ask(self._round.take)
        yield from self.homes.round()
        self._round.give()

    def _carry(self, step: Any, respond: Respond) -> None:
        match step:
            case LivingNodes():
                nodes = [self._looked.get(n.node, n.seen()) for n in self.cluster.machines.living()]
                draining = {n.node: n.draining for n in self.cluster.machines.living()}
                told = [replace(n, draining=draining[n.node]) for n in nodes]
                self.after(1 + int(self.world.roll() * 3), partial(respond, told))
            case LookAtDisks(nodes, again):
                self.after(
                    1 + int(self.world.roll() * 30), lambda: respond(self._look_at(nodes, again))
                )
            case KeepHomes(change):
                self._do(self._keep_homes(change), respond)
            case TellWaits(waits):
                self.table.waits_for(waits)
                respond(None)
            case BeginPlacing(slot, home):
                self._do(self._place(slot, home), lambda _: self.homes.placed(slot))
                respond(None)
            case _:
                self._carry_more(step, respond)

    def _carry_more(self, step: Any, respond: Respond) -> None:
        match step:
            case OpenAll(pairs, make):
                self._open_all(pairs, make, respond)
            case NoteMade(places):

                def made(homes: Any) -> Any:
                    for slot, queue in places:
                        homes = homes.with_made(queue, [slot])
                    return homes

                self._do(self._keep_homes(made), respond)
            case AskFences(of_all):
                self._do(self._fences(of_all), respond)
            case AskEnds():
                respond({})
            case RaiseEpochs(above, _):
                self._do(self._raise(above), respond)
            case Halt(error):
                respond(error)
            case _:
                self._carry_move(step, respond)

    def _look_at(self, nodes: tuple[NodeSeen, ...], again: frozenset[str]) -> list[NodeSeen]:
        for node in again:
            self._looked.pop(node, None)
        found = []
        for node in nodes:
            there = self.cluster.machines.of(node.node)
            if there.alive and not there.cut and node.node not in self._looked:
                looked = there.looked()
                slots = {trace.slot: trace.identity.generation for trace in looked.traces}
                self._looked[node.node] = replace(
                    there.seen(), disk=looked.disk, boot=looked.boot, slots=slots, unknown=False
                )
            known = self._looked.get(node.node, node)
            found.append(replace(known, draining=there.draining))
        self._seen = found
        return found

    def _keep_homes(self, change: Any) -> Steps[None]:
        yield Ask(self._writing.take)
        homes = self.homes.changed(change)
        if homes is not None:
            before = self.homes.homes
            self.cluster.machines.judge.home_changes(before, homes, self.moving)
            yield from self._put(DOCUMENT, HOMES.encode_text(homes))
            self.homes.kept(homes)
        self._writing.give()

    def _place(self, slot: Slot, home: Home) -> Steps[None]:
        anew = self.table.begins_at(slot, home)
        start = partial(self.cluster.machines.start_buffer, slot, home, anew)
        handle = yield Ask(lambda respond: self.after(5, partial(start, respond)))
        self.table.placed(slot, home, handle)

    def _open_all(self, pairs: Any, make: bool, respond: Respond) -> None:
        failed: dict[tuple[Slot, str], BaseException] = {}
        left = {(slot, spec.queue) for slot, spec in pairs}

        def known(place: tuple[Slot, str], answer: Any) -> None:
            left.discard(place)
            if isinstance(answer, BaseException):
                self.table.not_open(*place, str(answer))
                failed[place] = answer if isinstance(answer, PxrsError) else BufferAway("gone")
            else:
                self.table.is_open(*place)
            if not left:
                respond(failed)

        if not left:
            respond({})
        for slot, spec in pairs:
            if make:
                self.cluster.machines.judge.made(slot, spec.queue_id)
            ends = {p: end for p, end in self._ends.items() if p % SLOTS == slot}
            self._do(self._ask(slot, "open", spec, ends, make), partial(known, (slot, spec.queue)))

    def _fences(self, of_all: bool) -> Steps[dict[PartitionId, Epoch]]:
        found: dict[PartitionId, Epoch] = {}
        for slot in self.table.met():
            try:
                found.update((yield from self._ask(slot, "fences")))
            except (BufferAway, Gone):
                if of_all:
                    raise
                self.table.look_anew(slot)
        return found

    # --- moves ------------------------------------------------------------------------------------

    def move(self, slot: Slot, wanted: str | None) -> Steps[None]:
        yield Ask(self._moves.take)
        try:
            yield from self._move(slot, wanted)
        except (PxrsError, Gone):
            self._leaving.could_not(slot, self.monotonic_ms())
        self._moves.give()

    def _move(self, slot: Slot, wanted: str | None) -> Steps[None]:
        node: NodeSeen = yield from self.homes.place_for(slot, wanted)
        kept = {slot: kept_between(None, None, 1.0)}
        plan = plan_leaving(TOPOLOGY, self.homes.homes, self._seen, {slot: wanted}, kept)
        self.cluster.machines.judge.planned(slot, plan.moves[0].target, node.host)
        yield Ask(self._round.take)
        try:
            self.homes.hold(slot)
        except AlreadyExists:
            self._round.give()
            raise
        self._round.give()
        before = self.homes.homes.slots[slot]
        self._leaving.begins(slot)
        self.moving.add(slot)
        try:
            yield from move(self.homes, slot, before, node, self.monotonic_ms)
            self.cluster.moves += 1
        except (PxrsError, Gone):
            self._over(slot)
            raise
        self._over(slot)

    def _over(self, slot: Slot) -> None:
        self.homes.release(slot)
        self.moving.discard(slot)

    def _see_drains(self) -> None:
        drained = [n.node for n in self.cluster.machines.living() if n.draining]
        there = self.homes.at_home_on(drained)
        self._leaving.drained(there)
        due = self._leaving.due(there, self.monotonic_ms())
        if due and not self._going:
            self._going = due
            self._do(self._leave(due))

    def _leave(self, slots: list[Slot]) -> Steps[None]:
        for slot in slots:
            yield from self.move(slot, None)
        self._going = []

    def _carry_move(self, step: Any, respond: Respond) -> None:
        machines = self.cluster.machines
        match step:
            case MakeArrival(node, slot):
                at = machines.of(node)
                if not at.alive or at.cut:
                    self.after(ASK_MS, lambda: respond(DeadlineExceeded("no node")))
                    return
                arrival = Arrival(machines, slot, at)
                self.after(20, lambda: respond((arrival, at.disk.disk_id)))
            case CopyRound(arrival, slot, last):
                source = self._sources[slot] if last else self.table._handles.get(slot)
                self._do(self._copy(arrival, source, last), respond)
            case StopBuffer(slot):
                source = self.table._handles.get(slot)
                if source is None:
                    respond(BufferAway("nobody serves it"))
                    return
                self._sources[slot] = source
                self.table.held(slot)
                self._call(source, "stop", (), respond)
            case StepBack(slot):
                self._call(self._sources[slot], "step_back", (self.generation,), respond)
            case ListFiles(slot):
                self._call(self._sources[slot], "copy", (True,), respond)
            case Install(arrival):
                call(self, arrival, lambda answer: arrival.install(answer), respond)
                self.after(ASK_MS, lambda: respond(DeadlineExceeded("not installed in time")))
            case LetGoOn(slot):
                self.table.released(slot)
                respond(None)
            case PlaceAnew(slot, home):
                self.table.forget_actor(slot)
                self._do(self._place(slot, home), respond)
            case EmptyOld(slot, before, left):
                at = machines.of(before.node)
                if at.alive and not at.cut and self.world.chance(0.8):
                    self.world.at(10, partial(at.disk.forget, slot, left))
                respond(None)
            case EndArrival(arrival, _):
                arrival.crash()
                respond(None)

    def _copy(self, arrival: Arrival, source: BufferProcess | None, last: bool) -> Steps[int]:
        found = yield Ask(partial(self._call, source, "copy", (last,)))
        if not arrival.alive:
            raise Gone("the arrival")
        arrival.copy = found
        more = not last and self.world.chance(0.4)
        yield Ask(lambda respond: self.after(30, partial(respond, None)))
        return LITTLE_BYTES + 1 if more else 0
