"""Carries the steps of rounds, openings, witnesses and moves in a simulated coordinator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.errors import (
    BufferAway,
    DeadlineExceeded,
    PxrsError,
)
from pxrs_ray.model import (
    Epoch,
    PartitionId,
    Slot,
)
from pxrs_ray.steps import Steps
from pxrs_ray.topology.home_rounds import (
    BeginPlacing,
    KeepHomes,
    LivingNodes,
    LookAtDisks,
    TellWaits,
)
from pxrs_ray.topology.homes import DOCUMENT, HOMES, Home
from pxrs_ray.topology.log_witness import AskEnds, AskFences, HaltGroup, RaiseEpochs
from pxrs_ray.topology.move_plan import LITTLE_BYTES, kept_between, plan_leaving
from pxrs_ray.topology.move_steps import (
    CopyRound,
    EmptyOld,
    EndArrival,
    Install,
    LetGoOn,
    ListFiles,
    MakeArrival,
    PlaceAnew,
    StepBack,
    StopBuffer,
    move,
)
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.openings import (
    NoteMade,
    OpenAll,
)
from tests.simulation.homes.leader_calls import ASK_MS, LeaderCalls
from tests.simulation.homes.lives import PARTITIONS, SLOTS, TOPOLOGY
from tests.simulation.homes.machines import Arrival, BufferProcess, Gone
from tests.simulation.simulator.world import call
from tests.simulation.stepping import Ask, Respond

if TYPE_CHECKING:
    pass


class LeaderHomes(LeaderCalls):
    """Carries the steps of rounds, openings, witnesses and moves."""

    @abstractmethod
    def _raise(self, above: Mapping[PartitionId, Epoch]) -> Steps[None]:
        """Give each of these an epoch above, durably."""

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
            case LookAtDisks(nodes, again, _):
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
            case AskFences(of_all, slot):
                slots = self.table.met() if slot is None else [slot]
                self._do(self._fences(slots, of_all or slot is not None), respond)
            case AskEnds():
                respond({})
            case RaiseEpochs(above, _):
                self._do(self._raise(above), respond)
            case HaltGroup(error):
                self.halted = error  # an operator is asked, as at a start
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
                self._looked[node.node] = replace(
                    there.seen(),
                    disk=looked.disk,
                    boot=looked.boot,
                    slots={trace.slot: trace.identity.age for trace in looked.traces},
                    terms=looked.terms("" if self.accepts_loss else self.topology_id),
                    own_terms=looked.terms(self.topology_id),
                    unknown=False,
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
            after_ms = self.cluster.replace_after_ms
            judge = self.cluster.machines.judge
            judge.home_changes(before, homes, self.moving, self.world.now_ms, after_ms)
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

    def _fences(self, slots: list[Slot], of_all: bool) -> Steps[dict[PartitionId, Epoch]]:
        found: dict[PartitionId, Epoch] = {}
        for slot in slots:
            try:
                mine = dict.fromkeys((p for p in range(PARTITIONS) if p % SLOTS == slot), 0)
                found.update({**mine, **(yield from self._ask(slot, "fences"))})
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
        except PxrsError:
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
            case StepBack(slot, left_for, moves):
                given = (self.generation, left_for, moves)
                self._call(self._sources[slot], "step_back", given, respond)
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
