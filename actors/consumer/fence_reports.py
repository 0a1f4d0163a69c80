"""`FenceReports`: reports to the coordinator which epochs of this member the logs have refused.

Rules of this file. A log that refuses an epoch knows a higher one. In most cases the member's newer
assignment is under way. Where the member is the owner all the same, the registry knows less than
the logs, and only the coordinator can find that out. A report is repeated until it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.model import Epoch, PartitionId

Tell = Callable[[list[tuple[PartitionId, Epoch]]], Awaitable[object]]


class FenceReports:
    """The reports of one member, on its event loop."""

    def __init__(self, tell: Tell, ended: asyncio.Event) -> None:
        self._tell = tell
        self._ended = ended
        self._refused: dict[PartitionId, Epoch] = {}
        self._wake = asyncio.Event()

    def note(self, partition: PartitionId, epoch: Epoch) -> None:
        """A log says that this epoch is over."""
        self._refused[partition] = epoch
        self._wake.set()

    async def loop(self) -> None:
        """Tell what is refused; where we are the owner, somebody is wrong."""
        while not self._ended.is_set():
            await self._wake.wait()
            self._wake.clear()
            epochs = sorted(self._refused.items())
            try:
                await self._tell(epochs)
            except DeadlineExceeded:
                self._wake.set()
                continue
            for partition, epoch in epochs:
                if self._refused.get(partition) == epoch:
                    del self._refused[partition]
