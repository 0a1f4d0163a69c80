"""What a simulated coordinator asks of its registry and its buffers, each call in its time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.codec import json_codec
from pxrs_ray.data.protocol import BufferInfo
from pxrs_ray.errors import (
    BufferAway,
    StoreUnavailable,
)
from pxrs_ray.model import (
    Generation,
    Offset,
    Outcome,
    PartitionId,
    Slot,
    Snapshot,
)
from pxrs_ray.steps import Steps
from pxrs_ray.topology.home_rounds import (
    HomeRounds,
)
from pxrs_ray.topology.log_witness import LogWitness
from pxrs_ray.topology.move_steps import (
    DrainedSlots,
)
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.registry_witness import RegistryWitness, ShownRegistry
from pxrs_ray.topology.slot_table import SlotTable
from tests.simulation.homes.lives import GROUP, QUEUE, SLOTS, TOPOLOGY
from tests.simulation.homes.machines import BufferProcess, Gone, Node
from tests.simulation.simulator.store import store_call
from tests.simulation.simulator.world import Process, call
from tests.simulation.stepping import Ask, Respond, Turn, carry_out

if TYPE_CHECKING:
    from tests.simulation.homes.run import Cluster

LEASE_MS, PING_MS, ROUND_MS, CONFIRM_MS = 400, 80, 120, 80
ASK_MS, AGAIN_MS, START_AGAIN_MS, MET_MS = 250, 60, 200, 600
KNOWN_ENDS = json_codec("simulated: known ends", dict[PartitionId, Offset])


class LeaderCalls(Process):
    """Calls to the registry and to buffers; and what a leader knows."""

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
        self._leaving, self._moves, self._epochs = DrainedSlots(), Turn(), Turn()
        self._ends: dict[PartitionId, Offset] = {}
        self._kept_ends: dict[PartitionId, Offset] = {}
        self._group: Snapshot | None = None
        self._sources: dict[Slot, BufferProcess] = {}
        self.moving: set[Slot] = set()
        self._going: list[Slot] = []
        self._checked: dict[Slot, str] = {}
        self.witness: RegistryWitness
        self.shown = ShownRegistry()
        self.homes: HomeRounds
        self.logs = LogWitness(QUEUE, GROUP, self._rows, lambda: self.accepts_loss)
        at.processes.append(self)

    @abstractmethod
    def _carry(self, step: Any, respond: Respond) -> None:
        """Do what a step says."""

    def _do(self, steps: Steps[Any], over: Respond = lambda _: None) -> None:
        carry_out(self, steps, self._carry, over)

    def _rows(self) -> Any:
        return self._group.partitions if self._group is not None else ()

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
