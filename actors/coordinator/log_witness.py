"""`LogWitness` of a group's logs, carried: it asks the buffers and tells the group.

Rules of this file. `pxrs_ray.topology.log_witness` decides when logs show that the registry has
lost accepted writes, and what then; each step is carried out here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.group.events import Raise
from pxrs_ray.model import Epoch, PartitionId, Slot
from pxrs_ray.steps import carry
from pxrs_ray.topology import log_witness
from pxrs_ray.topology.log_witness import AskEnds, AskFences, HaltGroup, RaiseEpochs, Recovered

logger = logging.getLogger(__name__)


class LogWitnessCalls:
    """The logs of one group's queue, as its coordinator's witness."""

    def __init__(
        self,
        spec: GroupSpec,
        host: GroupHost,
        pool: BufferPool,
        accepts_loss: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._host = host
        self._pool = pool
        self._witness = log_witness.LogWitness(
            spec.queue, spec.group, lambda: host.core.state.rows, accepts_loss
        )
        self.refusals = self._witness.refusals

    @property
    def recovered(self) -> Recovered:
        """What the group went on with, where its registry had lost writes."""
        return self._witness.recovered

    async def check(self, slot: Slot | None = None) -> None:
        """Before the group goes on: halt it, or raise its epochs, where a log has seen more; of one
        slot, where that alone has begun anew."""
        await carry(self._witness.checking(slot), self._carry)

    async def check_told(self, slot: Slot, seen: Mapping[PartitionId, Epoch]) -> None:
        """The same of one slot, where it is known what its logs have `seen`."""

        async def told(step: Any) -> Any:
            return seen if isinstance(step, AskFences) else await self._carry(step)

        await carry(self._witness.checking(slot), told)

    async def refused(self, partitions: Iterable[PartitionId]) -> None:
        """The logs of these refuse their owner."""
        self._witness.are_refused(partitions)
        await self.try_again()

    async def try_again(self) -> None:
        """Grant anew what is refused; what cannot be done now is done in the next round."""
        if not self.refusals or self._host.halted is not None:
            return
        try:
            await carry(self._witness.granting_anew(), self._carry)
        except Exception as error:  # noqa: BLE001 - whatever it is, the problem stays and is reported
            logger.warning("group %s is granted anew later: %s", self._spec.group, error)

    async def _carry(self, step: Any) -> Any:
        queue, group = self._spec.queue, self._spec.group
        match step:
            case AskFences(of_all, slot):
                count = self._spec.partitions
                if slot is not None:
                    return await self._pool.fences_on(slot, queue, group, count)
                return await self._pool.fences(queue, group, count, of_all_met=of_all)
            case AskEnds():
                return await self._pool.ends(queue)
            case RaiseEpochs(above, cause):
                logger.error("group %s is granted anew above epochs %s: %s", group, above, cause)
                await self._host.submit(Raise(above, cause))
            case HaltGroup(error):
                self._host.halt(error)
        return None
