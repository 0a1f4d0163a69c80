"""`LogWitness`: compares what the logs know of a group with what its registry says.

Rules of this file. Epochs are durable in the registry before a log hears of them. So a log that has
seen a higher one is a witness: the registry has lost accepted writes (a restored backup, a server
that lost its last second). At a start that halts the group until somebody accepts it, because
messages will be delivered again. A reader that is refused while it owns its partition is granted it
anew, above what the log has seen; until that is done it is a problem of the group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.registry_witness import RECOVER
from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.group.events import Raise
from pxrs_ray.model import Epoch, PartitionId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A group that goes on with a registry that had lost writes: which epochs were skipped, and how
    many messages of each partition are delivered again, as far as the logs know."""

    epochs: Mapping[PartitionId, Epoch] = field(default_factory=dict)
    repeated: Mapping[PartitionId, int] = field(default_factory=dict)


class LogWitness:
    """The logs of one group's queue, as its coordinator's witness."""

    def __init__(
        self,
        spec: GroupSpec,
        host: GroupHost,
        pool: BufferPool,
        accepts_loss: Callable[[], bool],
    ) -> None:
        self.refusals: dict[PartitionId, str] = {}
        self.recovered = Recovered()
        self._spec = spec
        self._host = host
        self._pool = pool
        self._accepts_loss = accepts_loss

    async def check(self) -> None:
        """Before the group goes on: halt it, or raise its epochs, where a log has seen more."""
        seen = await self._pool.fences(self._spec.queue, self._spec.group)
        behind = self._behind(seen)
        if self._accepts_loss():
            self.recovered = await self._repeated(behind)
            if behind:
                await self._host.submit(Raise(behind, "the registry was behind the logs: accepted"))
            return
        if not behind:
            return
        partition, epoch = next(iter(behind.items()))
        self._host.halt(
            StoreCorrupted(
                f"the log of partition {partition} of {self._spec.queue} has seen epoch {epoch} of "
                f"group {self._spec.group}, its registry knows "
                f"{self._host.core.state.rows[partition].epoch}: the registry has lost accepted "
                f"writes. Restore it, or run {RECOVER} to go on with what it holds (messages are "
                "delivered again from the older checkpoints)"
            )
        )

    async def _repeated(self, behind: Mapping[PartitionId, Epoch]) -> Recovered:
        """What is delivered again: what the logs hold for passed by the group."""
        ends = await self._pool.ends(self._spec.queue)
        group, rows = self._spec.group, self._host.core.state.rows
        passed = {p: end.groups.get(group, 0) for p, end in ends.items() if p < len(rows)}
        again = {p: at - rows[p].checkpoint for p, at in passed.items()}
        return Recovered(dict(behind), {p: count for p, count in again.items() if count > 0})

    def _behind(self, seen: dict[PartitionId, Epoch]) -> dict[PartitionId, Epoch]:
        rows = self._host.core.state.rows
        return {p: e for p, e in seen.items() if p < len(rows) and e > rows[p].epoch}

    async def refused(self, partitions: Iterable[PartitionId]) -> None:
        """The logs of these refuse their owner."""
        for partition in partitions:
            self.refusals[partition] = (
                "its log refuses its owner: it has seen a higher epoch than the registry gave out "
                "(the registry has lost accepted writes); it is granted anew"
            )
        await self.try_again()

    async def try_again(self) -> None:
        """Grant anew what is refused; what cannot be done now is done in the next round."""
        waiting = list(self.refusals)
        if not waiting or self._host.halted is not None:
            return
        try:
            seen = await self._pool.fences(self._spec.queue, self._spec.group, of_all_met=True)
            rows = self._host.core.state.rows
            above = {p: max(seen.get(p, 0), rows[p].epoch) for p in waiting}
            logger.error("group %s is granted anew above epochs %s", self._spec.group, above)
            await self._host.submit(Raise(above, "its log had seen a higher epoch"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the problem stays and is reported
            logger.warning("group %s is granted anew later: %s", self._spec.group, error)
        else:
            for partition in waiting:
                self.refusals.pop(partition, None)
