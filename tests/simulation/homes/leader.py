"""One incarnation of a coordinator, as far as homes, buffers and the registry's witness go.

Rules of this file. `begin_coordinator`, `SlotTable`, `HomeRounds`, `move`, `DrainedSlots`,
`open_on`, `LogWitness` and `RegistryWitness` decide; here their steps are carried. Each call takes
its time, may be lost, and ends at its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pxrs_ray.data.protocol import BufferInfo, QueueSpec
from pxrs_ray.errors import (
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
    Outcome,
    PartitionId,
    Slot,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.steps import Do, Steps
from pxrs_ray.topology import coordinator_start as beginning
from pxrs_ray.topology.away_time import AwayTime
from pxrs_ray.topology.home_rounds import (
    HomeRounds,
    KeepHomes,
    LivingNodes,
    LookAtDisks,
)
from pxrs_ray.topology.homes import DOCUMENT, homes_from
from pxrs_ray.topology.older_registry import above_terms
from pxrs_ray.topology.openings import (
    check_may_begin,
    ids_on_disks,
    newest_on_disks,
    open_on,
    out_of_sight,
    queues_to_name,
    with_ids,
)
from pxrs_ray.topology.registry_witness import ACCEPTING, RegistryWitness, ShownRegistry
from pxrs_ray.topology.slot_table import SlotTable
from tests.simulation.homes.leader_calls import (
    CONFIRM_MS,
    KNOWN_ENDS,
    LEASE_MS,
    MET_MS,
    PING_MS,
    ROUND_MS,
    START_AGAIN_MS,
)
from tests.simulation.homes.leader_homes import LeaderHomes
from tests.simulation.homes.lives import GROUP, PARTITIONS, QUEUE, SLOTS, TOPOLOGY, spec_of
from tests.simulation.homes.machines import Gone, Node
from tests.simulation.simulator.world import call
from tests.simulation.stepping import Ask, carried

if TYPE_CHECKING:
    from tests.simulation.homes.run import Cluster


class Leader(LeaderHomes):
    """See the rules at the head of this file. `may_begin` says that the topology is deployed."""

    def __init__(self, cluster: Cluster, at: Node, *, may_begin: bool) -> None:
        super().__init__(cluster, at, may_begin=may_begin)
        self._documents: Mapping[str, str] = {}
        self._do(self._begin())

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
        yield from carried(beginning.begin_coordinator(TOPOLOGY), self._started)

    def _started(self, what: Do[Any]) -> Steps[Any]:
        match what:
            case beginning.OpenRegistry():
                return (yield from self._open_registry())
            case beginning.LeadTopology(over):
                yield from self._lead(over)
                self.shown = replace(self.shown, generation=self.generation)
            case beginning.ReadTopology():
                self._documents = yield from self._read_registry()
                return beginning.FoundTopology((GROUP,))
            case beginning.FindHomes():
                yield from self._find_homes(self._documents.get(DOCUMENT, ""))
                yield from self._rounds_once()
                yield Ask(lambda respond: self.after(MET_MS, partial(respond, None)))
                for slot in self.table.hosted():
                    found = yield from self._ping(slot)
                    if isinstance(found, BufferInfo):
                        self.table.met_at_start(slot, found)
            case beginning.CheckIdentity():
                yield from self._check_identity()
            case beginning.GrantLeases():
                yield from self._confirm()
                for slot in range(SLOTS):
                    self.every(PING_MS, partial(self._watch, slot, self.table))
            case beginning.LeadListed():
                yield from self._lead_group()
            case beginning.OpenQueues():
                yield from self._open_queues()
            case beginning.GoOnWith():
                yield from self._check_logs()
            case beginning.SettleAcceptance():
                if self.accepts_loss:
                    yield from self._put(ACCEPTING, "")
                self.witness.settled()
                self.accepts_loss = False
            case beginning.KeepWatch():
                self._keep_on()
        return None

    def _open_registry(self) -> Steps[Generation]:
        store = self.cluster.store
        known: Mapping[str, str] = yield from self._known(lambda: store().documents(TOPOLOGY))
        accepted = self.cluster.accepted_on(self.at)
        over = 0
        if not known:
            places = self.cluster.machines.survey()
            if places is None:
                raise DeadlineExceeded("a host does not tell")
            over = newest_on_disks(places)
        if not known and not accepted:
            self.shown = ShownRegistry()
            check_may_begin(TOPOLOGY, places, None, may_begin=self.may_begin)
        registry_id = yield from self._known(lambda: store().create())
        files = self.at.disk.note
        files.make_folder(Path("/data/t"))
        self.witness = RegistryWitness(Path("/data/t"), registry_id, files=files, strict=True)
        self.shown = ShownRegistry(registry_id)
        return over

    def _read_registry(self) -> Steps[Mapping[str, str]]:
        store = self.cluster.store
        documents: Mapping[str, str] = yield from self._known(lambda: store().documents(TOPOLOGY))
        self.witness.led(self.generation, knows=bool(documents) and not documents.get(ACCEPTING))
        self.accepts_loss = bool(self.witness.accepted)
        if self.witness.accepted:
            yield from self._put(ACCEPTING, self.witness.accepted)
            self.witness.registry_says_so()
        self.accepts_loss = self.accepts_loss or bool(documents.get(ACCEPTING))
        if self.accepts_loss:
            self.cluster.machines.judge.accepts()
        self.topology_id = documents.get("topology_id", "")
        if not self.topology_id:
            self.topology_id = self.witness.topology_id or f"id-{self.world.number()}"
            yield from self._put("topology_id", self.topology_id)
            self.cluster.machines.judge.begins(self.topology_id, self.accepts_loss)
        self.witness.note_topology(self.topology_id)
        self.table.grants.generation = self.generation
        if documents.get("known_ends"):
            self._ends = dict(KNOWN_ENDS.decode_text(documents["known_ends"]))
        return documents

    def _find_homes(self, document: str) -> Steps[None]:
        homes = homes_from(document)
        in_memory = False
        self.homes = HomeRounds(
            homes,
            self.table,
            lambda slot: self.table.seen_at(slot, self.monotonic_ms(), in_memory=in_memory),
            lambda: self.now().wall_ms,
            AwayTime(self.monotonic_ms, lambda: self.cluster.replace_after_ms),
            lost=self.accepts_loss,
        )
        if self.accepts_loss and homes.slots:
            seen = yield LookAtDisks(tuple((yield LivingNodes())))
            yield KeepHomes(lambda homes: above_terms(homes, seen))

    def _keep_on(self) -> None:
        """What is done again and again, by a coordinator that has started."""
        self.every(ROUND_MS, lambda: self.homes.is_due() and self._do(self._rounds_once()))
        self.every(CONFIRM_MS, lambda: self._do(self._confirm()))
        self.every(CONFIRM_MS * 3, lambda: self._do(self._keep_ends()))
        self.every(CONFIRM_MS * 4, self._give_epoch)
        self.every(CONFIRM_MS * 2, self._see_drains)

    def _lead(self, over: Generation) -> Steps[None]:
        led = yield from carried(beginning.lead_above(over), self._lead_once)
        self.generation = led.generation

    def _lead_once(self, _: Do[Any]) -> Steps[Snapshot]:
        store = self.cluster.store
        return self._known(lambda: store().lead(TOPOLOGY, 1, self.name))

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
        if self.homes.homes.behind:
            raise StoreCorrupted("a registry that is older than a home")
        against = yield from self._belong(adopt=False)
        if not against:
            return
        if not self.accepts_loss:
            raise StoreCorrupted("logs of another registry, or of a later coordinator")
        noted = max(known.generation for known in against.values())
        yield from self._lead(max(noted, self.table.newest_heard()))
        self.table.grants.generation = self.generation
        yield from self._belong(adopt=True)

    def _belong(self, *, adopt: bool) -> Steps[dict[Slot, Identity]]:
        against = {}
        for slot in self.table.met():
            try:
                mine = self.table.claim_at(slot, self._claim())
                known = yield from self._ask(slot, "belong", mine, adopt)
            except (BufferAway, Gone):
                self.table.look_anew(slot)
                continue
            self.table.belongs(slot, known, self._claim(), adopt=adopt)
            if self.table.is_against(slot, known, self._claim()):
                against[slot] = known
        return against

    def _open_queues(self) -> Steps[None]:
        homes = self.homes.homes
        known: dict[str, str] = {}
        away: list[Slot] = []
        if self.accepts_loss:
            places = self.cluster.machines.survey()
            if places is None:
                raise DeadlineExceeded("a host does not tell")
            known = ids_on_disks(places)
            away = out_of_sight(homes, {place.looked.disk for place in places})
        to_name = queues_to_name([QUEUE], homes, known)
        if to_name:
            wanted = {q: known.get(q) or f"q-{self.world.number()}" for q in to_name}
            yield KeepHomes(lambda homes: with_ids(homes, wanted, known, SLOTS, away))
            for slot in away:
                if not known:  # it is told as lost when it is back
                    self.cluster.machines.judge.harmed.setdefault(slot, "its queue was begun anew")
        yield from open_on(self.homes.homes, self.table.hosted(), [self._spec()])

    def _spec(self) -> QueueSpec:
        known = self.homes.homes.queues.get(QUEUE)
        return spec_of(known.queue_id if known is not None else "")

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
        mine = self.table.claim_at(slot, self._claim())
        known = yield from self._ask(slot, "belong", mine, False)
        if self.table.belongs(slot, known, self._claim(), adopt=False):
            yield from self._confirm()
            yield from self._ping(slot)
        failed = yield from open_on(self.homes.homes, [slot], [self._spec()])
        for error in failed:
            raise error
        yield from self._check_logs(slot)

    def _check_logs(self, slot: Slot | None = None) -> Steps[None]:
        """Ask the logs that are there what they have seen: of these it is known from then on."""
        every = self.table._incarnations.items()
        asked = {each: life for each, life in every if slot in (None, each)}
        yield from self.logs.checking(slot)
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
        yield Ask(self._epochs.take)  # one write after the other, as a group's writer does
        yield from self._raise_by_one(above)
        self._epochs.give()

    def _raise_by_one(self, above: Mapping[PartitionId, Epoch]) -> Steps[None]:
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
