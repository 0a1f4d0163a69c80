"""`BufferSlots`: the actors that serve the slots now. A part of `BufferPool`.

Rules of this file. `HomeController` says where a buffer belongs; this module starts it there. What
is known of a slot, and what follows from it, is `SlotTable`'s. A slot that waits for its host is
not called: a caller that needs it gets an error at once, and goes on with the others.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.cluster.ray_errors import is_gone
from pxrs_ray.actors.coordinator.buffer_start import buffer_at_home
from pxrs_ray.clock import lease_clock_ms
from pxrs_ray.errors import BufferAway, SlotWaits
from pxrs_ray.status.places import AT_HOME, DEPOSED, ELSEWHERE, SILENT, STARTING, WAITING
from pxrs_ray.supervision.supervisor import off_loop, within
from pxrs_ray.topology.homes import Home, SlotSeen
from pxrs_ray.topology.registry_witness import RECOVER
from pxrs_ray.topology.slot_table import SlotTable

if TYPE_CHECKING:
    from pxrs_ray.data.protocol import BufferInfo

logger = logging.getLogger(__name__)

TOLD_CHARS = 200


FOREIGN_REMEDY = (
    "restore the registry that they belong to, or give the topology another data_dir; "
    "`pxrs recover registry FILE --accept-loss` takes the messages that lie there for its own, "
    "and delivers them from the checkpoints that the registry has (the first message where none)"
)


def went_elsewhere(index: int, host: str) -> str:
    """What to do about a registry that does not know the last home of a buffer."""
    return (
        f"the registry went back: buffer {index} has been at home on host {host} since, and serves "
        f"nobody. Restore the registry, or run {RECOVER} to go on with what it holds, and with the "
        "newest logs that are there"
    )


class BufferSlots(SlotTable, ABC):
    """See the rules at the head of this file."""

    def __init__(self, topology: str, count: int, folder: str, lease_s: float) -> None:
        super().__init__(count, round(lease_s * 1_000), lease_clock_ms())
        self._topology = topology
        self._folder = folder
        self._lease_s = lease_s
        self._where: dict[int, str] = {}
        self._troubles: dict[int, tuple[str, ...]] = {}
        self._coming: dict[int, asyncio.Event] = {}

    @abstractmethod
    def look_soon(self, index: int) -> None:
        """Look at a buffer now, and not in its next round."""

    async def place(self, index: int, home: Home) -> None:
        """Make a buffer at its home, or find it there; one that is elsewhere is ended first.

        Raises DeadlineExceeded when that does not end, and whatever Ray raises.
        """
        anew = self.begins_at(index, home)
        make = partial(buffer_at_home, self._topology, index, self.count, self._folder)
        handle = await off_loop(partial(make, self._lease_s, anew, home))
        self.placed(index, home, handle)
        self.look_soon(index)

    def hold(self, index: int) -> BufferClient:
        """Look at a buffer no more and grant it nothing: it is to stop.

        Until it is placed anew, or released. Raises SlotWaits.
        """
        client = self.client(index)
        self.held(index)
        return client

    async def until_met(self, index: int, wait_s: float) -> bool:
        """Return when a buffer that was placed has been met; False when not in time."""
        coming = self._coming.setdefault(index, asyncio.Event())
        with suppress(TimeoutError):
            await within(wait_s, coming.wait())
        return coming.is_set()

    def release(self, index: int) -> None:
        """Look at it again: one that had closed its logs begins anew by that."""
        self.released(index)
        self.look_soon(index)

    def wait_for(self, waits: Mapping[int, str]) -> None:
        """These slots have no host now, each for the given reason."""
        for index in self.waits_for(waits):
            logger.error("%s %s", self.told(index), waits[index])

    def seen(self, index: int, *, in_memory: bool) -> SlotSeen:
        """What is known of a buffer now."""
        return self.seen_at(index, lease_clock_ms(), in_memory=in_memory)

    def lease_left_ms(self, index: int) -> int:
        """For how long somebody may still serve a slot on what was granted so far."""
        return max(0, self.grants.over_ms(index) - lease_clock_ms())

    def state(self, index: int) -> tuple[str, str]:
        """How a slot is (a text of `places`), and what else there is to say of it."""
        if index in self._waits:
            return WAITING, self._waits[index]
        if index in self._away:
            return SILENT, f"does not answer: {self._away[index]}"
        if index in self._elsewhere:
            return ELSEWHERE, self._elsewhere[index]
        leads = self._led_by.get(index, 0)
        if leads > self.grants.generation:
            return DEPOSED, (
                f"serves coordinator {leads} of this topology, which is newer than the one that "
                f"answers ({self.grants.generation})"
            )
        return (AT_HOME, "") if index in self._answered else (STARTING, "")

    def told(self, index: int) -> str:
        """A buffer as people find it: its number, process and node."""
        where = self._where.get(index)
        return f"buffer {index}" if where is None else f"buffer {index} ({where})"

    def client(self, index: int) -> BufferClient:
        """The buffer of a slot. Raises SlotWaits when it has none now."""
        handle = self._handles.get(index)
        if handle is None:
            raise SlotWaits(f"buffer {index} {self._waits.get(index, 'is being started')}")
        return BufferClient(handle)

    def _note(self, info: BufferInfo) -> None:
        where = f"host {info.host}" if info.host else f"node {info.node[:8]}"
        self._where[info.index] = f"pid {info.pid} on {where}"
        self._troubles[info.index] = info.problems
        self.heard(info.index, info, lease_clock_ms())

    def _failed(self, index: int, error: BaseException) -> None:
        """A look has failed."""
        if isinstance(error, BufferAway) and error.__cause__ is not None:
            error = error.__cause__
        why = (str(error).splitlines() or [type(error).__name__])[0][:TOLD_CHARS]
        self.look_failed(index, why, is_gone=is_gone(error))
