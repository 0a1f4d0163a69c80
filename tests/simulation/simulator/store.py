"""The simulated registry: a real `MemoryStore` that writes down what it does to each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pxrs_ray.errors import PxrsError
from pxrs_ray.model import (
    Generation,
    Outcome,
    PartitionId,
    PartitionRow,
    Record,
    Snapshot,
    Write,
)
from pxrs_ray.store.memory import MemoryStore
from tests.simulation.history import Led, Stored
from tests.simulation.simulator.world import Answer, Process, World

GROUP = "simulated"


class RecordingStore(MemoryStore):
    """A memory store that takes records one by one, and records what became of each."""

    def __init__(self, world: World) -> None:
        super().__init__(now_ms=lambda: world.now_ms)
        self._world = world
        self._sent: set[tuple[Generation, Record]] = set()

    def lead(self, group: str, partitions: int, holder: str) -> Snapshot:
        """Take the lead, and record what was read."""
        snapshot = super().lead(group, partitions, holder)
        self._world.record(Led(self._world.now_ms, snapshot.generation, snapshot))
        return snapshot

    def write(self, group: str, generation: Generation, records: Sequence[Record]) -> list[Outcome]:
        """Write, and record each outcome."""
        outcomes = []
        for record in records:
            partition = record.partition if isinstance(record, Write) else None
            before = self._row(group, partition)
            (outcome,) = super().write(group, generation, [record])
            sent = (generation, record)
            after = self._row(group, partition)
            self._world.record(
                Stored(
                    self._world.now_ms,
                    generation,
                    record,
                    outcome,
                    before,
                    after,
                    sent in self._sent,
                )
            )
            self._sent.add(sent)
            outcomes.append(outcome)
        return outcomes

    def _row(self, group: str, partition: PartitionId | None) -> PartitionRow | None:
        if partition is None:
            return None
        return self._registry.groups[group].rows[partition].frozen()


def store_call(
    process: Process,
    do: Callable[[], Answer],
    on_answer: Callable[[Answer | PxrsError], None],
    latency_ms: int,
) -> None:
    """Have the store `do` something for `process`; errors are answers.

    A request that has left is done, also when the process has crashed meanwhile. Requests of one
    process may overtake one another, as over several connections.
    """
    world = process.world

    def arrive() -> None:
        answer: Answer | PxrsError
        try:
            answer = do()
        except PxrsError as error:
            answer = error.with_traceback(None)  # it would keep this very frame
        process.after(takes_ms(), lambda: on_answer(answer))

    def takes_ms() -> int:
        return int(world.random.random() * (latency_ms + 1))

    world.at(takes_ms(), arrive)
