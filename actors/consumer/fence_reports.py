"""`FenceReports`: what a member's logs refuse it, told to the coordinator.

Rules of this file: a log that refuses an epoch knows of a higher one. Mostly the member's newer
assignment is on the way; where it is the owner all the same, the registry knows less than the
logs, and only the coordinator can say so. It is told until it has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.model import Epoch, PartitionId

Tell = Callable[[list[tuple[PartitionId, Epoch]]], Awaitable[object]]


class FenceReports:
    """For one member, on its event loop."""

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
