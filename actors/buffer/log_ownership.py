"""`LogOwnership`: which topology a buffer's logs belong to, which epochs they know, and how they
are dropped.

Rules of this file. A folder belongs to one topology of one registry: its `topology_id` is noted
beside the logs. So a topology that was made anew under an old name, or a registry that was
replaced, is noticed before the buffer obeys it. Dropping logs may be cut off anywhere, and is
simply done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pxrs_ray.actors.buffer.serving_state import ServingState
from pxrs_ray.errors import LeaseOver, LogAway
from pxrs_ray.log.held_calls import wake
from pxrs_ray.log.identity import Identity, belong, step_back
from pxrs_ray.model import Epoch, Generation, PartitionId


class LogOwnership(ServingState):
    """The ownership part of `Buffer`. See the rules at the head of this file."""

    async def belong(self, claim: Identity, adopt: bool) -> Identity:
        """See `identity.belong`. Raises LeaseOver of one that is closed: its logs may be on their
        way to another disk, and what comes late must not change which copy is the newer one.
        """
        if self.life.is_closed:
            raise LeaseOver(f"buffer {self._index} is closed")
        return belong(self._manager.files, self._manager.folder, claim, adopt=adopt)

    async def step_back(self, generation: Generation, left_for: int, moves: int) -> None:
        """These logs are closed, and are copied to another disk; see `identity.step_back`."""
        step_back(self._manager.files, self._manager.folder, generation, left_for, moves)

    async def fence(self, queue: str, group: str, epochs: Mapping[PartitionId, Epoch]) -> None:
        """From now on refuse readers of `group` below these epochs, waiting ones included."""
        self._fence.fence(queue, group, epochs)
        for partition in epochs:
            wake(self._waiting, (queue, partition))

    async def fences(self, queue: str, group: str) -> dict[PartitionId, Epoch]:
        """The highest epoch of `group` that each partition has seen here."""
        return self._fence.epochs(queue, group)

    async def drop_group(self, queue: str, group: str) -> None:
        """Forget a group: retention no longer waits for it, and its fences are gone.

        Raises LogAway and its like while a log that may know it cannot be asked.
        """
        await self._writer.do(
            lambda: self._manager.drop_group(queue, group), self._manager.all_logs()
        )
        self._fence.drop_group(queue, group)

    async def drop_queue(self, queue: str) -> None:
        """Delete every log of `queue` on this buffer; an absent queue is success."""
        await self._writer.do(lambda: self._manager.drop_queue(queue), ())
        self._fence.drop_queue(queue)

    async def forget(self, queues: Sequence[str]) -> None:
        """Delete every log, of `queues` also what lies there unknown, and all that is noted.

        Raises LogAway when something cannot be removed now.
        """
        self._manager.files.make_folder(self._manager.folder)
        for queue in {*queues, *self._manager.queues}:
            await self.drop_queue(queue)
        try:
            self._manager.files.remove_folder(self._manager.folder)
        except OSError as error:
            raise LogAway(f"{self._manager.folder} cannot be removed now: {error}") from error
        with suppress(OSError):  # other buffers may have theirs beside it
            self._manager.folder.parent.rmdir()
            self._manager.folder.parent.parent.rmdir()
