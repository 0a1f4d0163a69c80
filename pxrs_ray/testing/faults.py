# ruff: noqa: D102 (the docstrings of RegistryStore are the contract of these methods)
"""`FaultyStore`: a store that fails the way real ones do, by seed.

Rules of this file. Every fault keeps the contract of `RegistryStore`: what happened stays unknown
to the caller (`StoreUnavailable`), never a wrong answer. Four things can befall a call: it never
arrived; it was done and its answer was lost; only the first part of a batch was done; it arrives
late, after a later call. All of them are drawn from one seeded source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pxrs_ray.errors import PxrsError, StoreUnavailable
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Change,
    Generation,
    Incarnation,
    MemberId,
    Outcome,
    PartitionRow,
    Record,
    Snapshot,
)
from pxrs_ray.store.registry import RegistryStore, StoreInfo

Answer = TypeVar("Answer")

LATE_MAX = 100


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what goes wrong, each as a share of the calls from 0 to 1.

    `refused` never arrives, `lost_answer` is done but its answer is lost, `partial` does the
    first records of a write only, `late` is done after a later call. A call is first delayed by
    up to `delay_ms_max`.
    """

    refused: float = 0.0
    lost_answer: float = 0.0
    partial: float = 0.0
    late: float = 0.0
    delay_ms_max: int = 0


class FaultyStore(RegistryStore):
    """`inner`, with faults. `down` makes every call fail; `faults` may be changed at any time.

    `sleep_ms` is what a delay does; leave it out where time is virtual. `close` closes `inner`.
    """

    def __init__(
        self,
        inner: RegistryStore,
        seed: int,
        faults: Faults | None = None,
        *,
        sleep_ms: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.faults = faults or Faults()
        self.down = False
        self._inner = inner
        self._random = random.Random(seed)
        self._sleep_ms = sleep_ms
        self._late: list[Callable[[], object]] = []

    # --- faults ---------------------------------------------------------------------------------

    def deliver_late(self) -> int:
        """Let everything that is late arrive now, in any order; say how much it was."""
        late, self._late = self._late, []
        self._random.shuffle(late)
        for call in late:
            try:
                call()
            except PxrsError:
                pass  # Nobody waits for this answer any more.
        return len(late)

    def _read(self, call: Callable[[], Answer]) -> Answer:
        self._delay()
        if self.down or self._random.random() < self.faults.refused:
            raise StoreUnavailable("the store did not answer (simulated)")
        return call()

    def _change(
        self, call: Callable[[], Answer], first_part: Callable[[], object] | None = None
    ) -> Answer:
        self._delay()
        if self.down:
            raise StoreUnavailable("the store did not answer (simulated)")
        if self._late and self._random.random() < 0.5:
            self.deliver_late()
        faults, drawn = self.faults, self._random.random()
        if (drawn := drawn - faults.refused) < 0:
            raise StoreUnavailable("the store did not answer (simulated)")
        if (drawn := drawn - faults.lost_answer) < 0:
            call()
            raise StoreUnavailable("the store's answer was lost (simulated)")
        if (drawn := drawn - faults.late) < 0 and len(self._late) < LATE_MAX:
            self._late.append(call)
            raise StoreUnavailable("the store is late (simulated)")
        if first_part is not None and drawn - faults.partial < 0:
            first_part()
            raise StoreUnavailable("the store failed in the middle (simulated)")
        return call()

    def _delay(self) -> None:
        if self.faults.delay_ms_max:
            self._sleep_ms(self._random.randint(0, self.faults.delay_ms_max))

    # --- RegistryStore --------------------------------------------------------------------------

    def create(self) -> str:
        return self._change(self._inner.create)

    def lead(self, group: str, partitions: int, holder: str) -> Snapshot:
        return self._change(lambda: self._inner.lead(group, partitions, holder))

    def load(self, group: str) -> Snapshot | None:
        return self._read(lambda: self._inner.load(group))

    def groups(self) -> tuple[str, ...]:
        return self._read(self._inner.groups)

    def write(self, group: str, generation: Generation, records: Sequence[Record]) -> list[Outcome]:
        part = records[: self._random.randint(0, len(records))]
        return self._change(
            lambda: self._inner.write(group, generation, records),
            lambda: self._inner.write(group, generation, part),
        )

    def renew(
        self,
        group: str,
        generation: Generation,
        members: Sequence[tuple[MemberId, Incarnation]],
        lease_ms: int,
    ) -> list[Outcome]:
        return self._change(lambda: self._inner.renew(group, generation, members, lease_ms))

    def expired(self, group: str) -> tuple[PartitionRow, ...]:
        return self._read(lambda: self._inner.expired(group))

    def changes(self, group: str, after_version: int, limit: int = 1_000) -> tuple[Change, ...]:
        return self._read(lambda: self._inner.changes(group, after_version, limit))

    def trim_changes(self, group: str, generation: Generation, keep: int) -> None:
        self._change(lambda: self._inner.trim_changes(group, generation, keep))

    def put_document(self, group: str, generation: Generation, name: str, text: str) -> Outcome:
        return self._change(lambda: self._inner.put_document(group, generation, name, text))

    def documents(self, group: str) -> Mapping[str, str]:
        return self._read(lambda: self._inner.documents(group))

    def restore(
        self, snapshot: Snapshot, changes: Sequence[Change], documents: Mapping[str, str]
    ) -> None:
        self._change(lambda: self._inner.restore(snapshot, changes, documents))

    def remove_group(self, group: str, generation: Generation | None = None) -> Outcome:
        return self._change(lambda: self._inner.remove_group(group, generation))

    def describe(self) -> StoreInfo:
        return self._inner.describe()

    def close(self) -> None:
        self._inner.close()
