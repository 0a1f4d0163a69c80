"""`WorkQueue` and `WorkEnd`: the waiting work of one worker, and how the worker ends. Pure.

Rules of this file. The caller lets one thread in at a time. Work is done in the order of its
arrival; an offset in the queue says that the log holds nothing before it. A full worker reports
once when it has room again. A worker that is to stop begins nothing new and drops what it has not
begun: the next owner reads it again from the log. A worker that is renewed ends too, but its
partition stays and continues with a new worker. The same holds for a worker that ended with a
fault.
"""

from __future__ import annotations

from collections import deque

from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Offset


class WorkQueue:
    """What waits for one worker."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.queued_bytes = 0
        self._waiting: deque[tuple[Batch | Offset, int]] = deque()
        self._was_full = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, batch: Batch, size_bytes: int) -> None:
        """A batch, behind those that wait."""
        self._waiting.append((batch, size_bytes))
        self.queued_bytes += size_bytes
        self._was_full = self.queued_bytes >= self.bytes_max

    def skip(self, to: Offset) -> None:
        """Go on at `to`, after what waits: the log has nothing before it."""
        self._waiting.append((to, 0))

    def pop(self) -> tuple[Batch | Offset, bool]:
        """The next of what waits, and whether there is room again where there was none."""
        taken, size_bytes = self._waiting.popleft()
        self.queued_bytes -= size_bytes
        has_room = self._was_full and self.queued_bytes < self.bytes_max
        if has_room:
            self._was_full = False
        return taken, has_room


class WorkEnd:
    """Whether one worker is to end, and why. `told_to_stop`: its partition goes."""

    def __init__(self) -> None:
        self.is_ending = False
        self.told_to_stop = False
        self._began_s = float("inf")

    def stop(self) -> None:
        """Begin nothing more: the partition goes."""
        self.told_to_stop = self.is_ending = True

    def renew(self) -> None:
        """Begin nothing more; the partition stays, and begins again."""
        self.is_ending = True

    def began(self, now_s: float) -> None:
        """Its handler has heard of the partition: the work begins."""
        self._began_s = now_s

    def is_well(self, passed: int, healed_s: float, now_s: float) -> bool:
        """Whether it has begun, and come further or worked for so long."""
        at_work_s = now_s - self._began_s
        return at_work_s > healed_s or (at_work_s > 0 and passed > 0)
