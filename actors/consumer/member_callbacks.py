"""`MemberCallbacks`: what a `GroupMember` calls on the consumer that does the work."""

from __future__ import annotations

from typing import Protocol

from pxrs_ray.consumer.session import WorkProgress
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Epoch, Grant, Incarnation, Offset, PartitionId


class MemberCallbacks(WorkProgress, Protocol):
    """Called by `GroupMember` on the event loop; nothing here may block."""

    def started(self, grant: Grant) -> None:
        """Work on this partition may begin."""

    def received(self, partition: PartitionId, epoch: Epoch, batch: Batch, size_bytes: int) -> None:
        """Messages to work on, in order."""

    def preparing(self, grant: Grant) -> None:
        """This partition will come: load what it needs, and then call `runtime.prepared`."""

    def unprepared(self, partition: PartitionId) -> None:
        """The partition goes elsewhere: what was loaded for it can be dropped."""

    def skipped(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has nothing before `to` any more: that is where the work goes on."""

    def draining(self, partition: PartitionId) -> None:
        """Finish what is in hand, begin nothing new, and then call `runtime.stopped`."""

    def dropped(self, partition: PartitionId) -> None:
        """The partition is lost: nothing that is still done for it will count."""

    def rejoined(self, incarnation: Incarnation) -> None:
        """The member goes on as this incarnation."""
