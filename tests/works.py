"""`Works`: the workers of a session in a test, which come as far as the test says."""

from __future__ import annotations

from pxrs_ray.model import Epoch, Offset, PartitionId, Progress


class Works:
    """What a `ConsumerSession` asks."""

    def __init__(self) -> None:
        self.queued: dict[PartitionId, int] = {}
        # How often it was asked for progress.
        self.asked = 0
        self._done: dict[tuple[PartitionId, Epoch], Progress] = {}

    def come(
        self, partition: PartitionId, epoch: Epoch, to: Offset, attempts: int = 0, detail: str = ""
    ) -> None:
        """The work on a partition comes so far."""
        self._done[(partition, epoch)] = Progress(to, attempts, detail)

    def forget(self, partition: PartitionId, epoch: Epoch) -> None:
        """The work on a partition can no longer say how far it came."""
        del self._done[(partition, epoch)]

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far it came; None where it never began."""
        self.asked += 1
        return self._done.get((partition, epoch))

    def queued_bytes(self, partition: PartitionId) -> int:
        """What waits for it."""
        return self.queued.get(partition, 0)
