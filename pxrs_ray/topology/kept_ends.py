"""`KeptEnds`: the last known end of each log, and when it is to be kept in the registry. Pure.

Rules of this file. A checkpoint says only how far a reader had come. If a log is lost, offsets that
nobody has read yet would be given out a second time. So the ends that buffers report with each ping
are kept in one document: within a second when they have moved far, within ten when they have moved
at all. They only rise. A queue is named by its id, which is never used again, so a late report of a
removed queue says nothing of a new one with its name. What was not kept yet is within the margin
that a lost log goes on above (`LOSS_MARGIN`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pxrs_ray.codec import json_codec
from pxrs_ray.model import Offset, PartitionId

FAR_OFFSETS = 100_000
KEEP_EVERY_MS = 10_000

# Queue id: the ends of its partitions, in their order.
KNOWN_ENDS = json_codec("registry: known ends", dict[str, list[Offset]])


class KeptEnds:
    """See the rules at the head of this file. `saving` and `kept` tell it that they are kept."""

    def __init__(self) -> None:
        self._ends: dict[str, list[Offset]] = {}
        self._kept: dict[str, list[Offset]] = {}
        self._kept_ms = 0
        self._saving: dict[str, list[Offset]] = {}

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

    def saving(self) -> str:
        """What is known now, to be kept."""
        self._saving = {queue_id: list(found) for queue_id, found in self._ends.items()}
        return KNOWN_ENDS.encode_text(self._saving)

    def kept(self, now_ms: int) -> None:
        """What `saving` told last is in the registry."""
        self._kept, self._kept_ms = self._saving, now_ms
