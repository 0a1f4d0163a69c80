"""`KnownEnds`: the last known end of each log, kept in the registry.

Rules of this file. A checkpoint says only how far a reader had come. If a log is lost, offsets that
nobody has read yet would be given out a second time. So the ends that buffers report with each ping
are kept in one document: within a second when they have moved far, within ten when they have moved
at all. They only rise. A queue is named by its id, which is never used again, so a late report of a
removed queue says nothing of a new one with its name. What was not kept yet is within the margin
that a lost log goes on above (`LOSS_MARGIN`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from pxrs_ray.clock import monotonic_ms
from pxrs_ray.codec import json_codec
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.supervision.restart_rules import told

logger = logging.getLogger(__name__)

DOCUMENT = "known_ends"
LOOK_PAUSE_S = 1.0
FAR_OFFSETS = 100_000
KEEP_EVERY_MS = 10_000

# Queue id: the ends of its partitions, in their order.
KNOWN_ENDS = json_codec("registry: known ends", dict[str, list[Offset]])

Put = Callable[[str, str], Awaitable[None]]


class KnownEnds:
    """See the rules at the head of this file. For one event loop."""

    def __init__(self) -> None:
        self._ends: dict[str, list[Offset]] = {}
        self._kept: dict[str, list[Offset]] = {}
        self._kept_ms = 0

    def read(self, document: str) -> None:
        """Begin with what was kept ('' for nothing). Raises ValueError."""
        if document:
            self._kept = KNOWN_ENDS.decode_text(document)
            for queue_id, ends in self._kept.items():
                self.heard({queue_id: dict(enumerate(ends))})

    def heard(self, ends: Mapping[str, Mapping[PartitionId, Offset]]) -> None:
        """Take in how far a buffer's logs have come."""
        for queue_id, found in ends.items():
            known = self._ends.setdefault(queue_id, [])
            for partition, end in found.items():
                known.extend([0] * (partition + 1 - len(known)))
                known[partition] = max(known[partition], end)

    def of(self, queue_id: str) -> dict[PartitionId, Offset]:
        """How far the logs of a queue are known to have come."""
        return dict(enumerate(self._ends.get(queue_id, ()))) if queue_id else {}

    def only(self, queue_ids: Collection[str]) -> None:
        """Forget every queue but these."""
        for queue_id in self._ends.keys() - set(queue_ids):
            del self._ends[queue_id]

    def is_due(self, now_ms: int) -> bool:
        """Whether what is known should be kept now."""
        if self._ends == self._kept:
            return False
        return now_ms - self._kept_ms >= KEEP_EVERY_MS or self._moved() >= FAR_OFFSETS

    def _moved(self) -> int:
        moved = 0
        for queue_id, ends in self._ends.items():
            kept = self._kept.get(queue_id, [])
            for partition, end in enumerate(ends):
                moved = max(moved, end - (kept[partition] if partition < len(kept) else 0))
        return moved

    async def save(self, put: Put, now_ms: int) -> None:
        """Have in the registry what is known now."""
        ends = {queue_id: list(found) for queue_id, found in self._ends.items()}
        await put(DOCUMENT, KNOWN_ENDS.encode_text(ends))
        self._kept, self._kept_ms = ends, now_ms

    async def keep_for_ever(self, put: Put, queue_ids: Callable[[], Collection[str]]) -> None:
        """Store them whenever it is due; a registry that is away is tried again."""
        while True:
            await asyncio.sleep(LOOK_PAUSE_S)
            self.only(queue_ids())
            if not self.is_due(monotonic_ms()):
                continue
            try:
                await self.save(put, monotonic_ms())
            except Exception as error:  # noqa: BLE001 - tried again in a second
                logger.info("how far the logs have come is kept later: %s", told(error))
