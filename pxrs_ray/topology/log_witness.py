"""What the logs know of a group, compared with what its registry says. Pure: see
`pxrs_ray.steps`.

Rules of this file. Epochs are durable in the registry before a log hears of them. So a log that has
seen a higher one is a witness: the registry has lost accepted writes (a restored backup, a server
that lost its last second). At a start that halts the group until somebody accepts it, because
messages will be delivered again. A reader that is refused while it owns its partition is granted it
anew, above what the log has seen; until that is done it is a problem of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, PartitionId, PartitionRow, Slot
from pxrs_ray.steps import Do, Steps
from pxrs_ray.topology.registry_witness import RECOVER

REFUSED = (
    "its log refuses its owner: it has seen a higher epoch than the registry gave out "
    "(the registry has lost accepted writes); it is granted anew"
)
RowsNow = Callable[[], Sequence[PartitionRow]]


@dataclass(frozen=True, slots=True)
class Recovered:
    """A group that goes on with a registry that had lost writes: which epochs were skipped, and how
    many messages of each partition are delivered again, as far as the logs know."""

    epochs: Mapping[PartitionId, Epoch] = field(default_factory=dict)
    repeated: Mapping[PartitionId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskFences(Do[Any]):
    """Ask the logs which epochs of the group they have seen: the highest by partition, 0 for one
    that has seen none. A log that cannot be asked now is missing.

    With `of_all`, who goes away meanwhile is an error, and not asked later. Of one `slot`, only its
    logs are asked.
    """

    of_all: bool = False
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class AskEnds(Do[Any]):
    """Ask the logs where they stand; what cannot be asked now is missing."""


@dataclass(frozen=True, slots=True)
class RaiseEpochs(Do[Any]):
    """Have the group's epochs above these, durably, and every owner granted its partitions anew."""

    above: Mapping[PartitionId, Epoch]
    cause: str


@dataclass(frozen=True, slots=True)
class HaltGroup(Do[Any]):
    """The group goes on no more until somebody accepts what the registry has lost."""

    error: StoreCorrupted


class LogWitness:
    """The logs of one group's queue, as its coordinator's witness. `rows` are the group's."""

    def __init__(
        self, queue: str, group: str, rows: RowsNow, accepts_loss: Callable[[], bool]
    ) -> None:
        self.refusals: dict[PartitionId, str] = {}
        self.recovered = Recovered()
        self._queue, self._group = queue, group
        self._rows, self._accepts_loss = rows, accepts_loss

    def checking(self, slot: Slot | None = None) -> Steps[None]:
        """Before the group goes on: halt it, or raise its epochs, where a log has seen more. Only
        the logs of one `slot` are asked where the others have answered before."""
        seen: Mapping[PartitionId, Epoch] = yield AskFences(slot=slot)
        behind = self._behind(seen)
        if self._accepts_loss():
            ends: Mapping[PartitionId, LogEnds] = yield AskEnds()
            self.recovered = Recovered(behind, self._repeated(ends))
            if behind:
                yield RaiseEpochs(behind, "the registry was behind the logs: accepted")
            return
        if not behind:
            return
        partition, epoch = next(iter(behind.items()))
        yield HaltGroup(
            StoreCorrupted(
                f"the log of partition {partition} of {self._queue} has seen epoch {epoch} of "
                f"group {self._group}, its registry knows {self._rows()[partition].epoch}: the "
                f"registry has lost accepted writes. Restore it, or run {RECOVER} to go on with "
                "what it holds (messages are delivered again from the older checkpoints)"
            )
        )

    def _repeated(self, ends: Mapping[PartitionId, LogEnds]) -> dict[PartitionId, int]:
        """What is delivered again: what the logs hold for passed by the group."""
        rows = self._rows()
        passed = {p: end.groups.get(self._group, 0) for p, end in ends.items() if p < len(rows)}
        again = {p: at - rows[p].checkpoint for p, at in passed.items()}
        return {p: count for p, count in again.items() if count > 0}

    def _behind(self, seen: Mapping[PartitionId, Epoch]) -> dict[PartitionId, Epoch]:
        rows = self._rows()
        return {p: e for p, e in seen.items() if p < len(rows) and e > rows[p].epoch}

    def are_refused(self, partitions: Iterable[PartitionId]) -> None:
        """The logs of these refuse their owner: they are to be granted anew."""
        for partition in partitions:
            self.refusals[partition] = REFUSED

    def granting_anew(self) -> Steps[None]:
        """Grant anew what is refused. What fails is thrown on, and is done in the next round, like
        what no log has answered for: the epoch that it has seen may be the next one to be given."""
        waiting = list(self.refusals)
        if not waiting:
            return
        seen: Mapping[PartitionId, Epoch] = yield AskFences(of_all=True)
        rows = self._rows()
        above = {p: max(seen[p], rows[p].epoch) for p in waiting if p in seen}
        if above:
            yield RaiseEpochs(above, "its log had seen a higher epoch")
        for partition in above:
            self.refusals.pop(partition, None)
