"""`Upkeep`: the work that a buffer does on its logs without being asked. Pure: the caller passes
the time, and runs each job as the logs' only writer.

Rules of this file. A passing trouble is retried for as long as it lasts, one log at a time. Callers
that wait at that log are woken after each try, and get its present state. The trouble of one log
holds up no other log. Epochs of readers that could not be written are written later, and hold up no
reader.
"""

from __future__ import annotations

from pxrs_ray.backoff import Backoff
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import QueuePartition
from pxrs_ray.supervision.passing_trouble import passes

RETAIN_EVERY_MS = 5_000
MEND_EVERY_MS = 200
START_FIRST_MS = 20
START_MOST_MS = 1_000


class Upkeep:
    """The upkeep of one buffer's logs. A round of each kind is due every `..._EVERY_MS`."""

    def __init__(self, manager: LogManager, fence: ReadFence) -> None:
        self._manager = manager
        self._fence = fence

    def to_mend(self, monotonic_ms: int) -> list[QueuePartition]:
        """Where trouble may be over now: `mend` each as a job of the writer, then `mended`."""
        return self._manager.due(monotonic_ms)

    def mend(self, place: QueuePartition, wall_ms: int, monotonic_ms: int) -> bool:
        """Try one once more; whether all is well there now."""
        return self._manager.mend(place, wall_ms, monotonic_ms)

    def round_over(self) -> None:
        """Every log that was due was tried."""
        if self._fence.behind:
            self._fence.catch_up()

    def to_retain(self, wall_ms: int) -> list[PartitionLog]:
        """The logs to apply retention to, one job each; a job that fails is the next round's."""
        return self._manager.to_retain(wall_ms)


class StartTries:
    """The start of a process that must not fail: nobody starts it again."""

    def __init__(self) -> None:
        self._backoff = Backoff(START_FIRST_MS / 1_000, START_MOST_MS / 1_000)

    def failed(self, error: Exception) -> float:
        """For how long to rest before the next try; raises `error` where no try can help."""
        if not passes(error):
            raise error
        return self._backoff.failed()
