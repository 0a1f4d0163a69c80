"""`Leadership`: what a coordinator does while it leads: it grants buffers' leases and keeps known
ends.

Rules of this file. A buffer's lease is valid because this coordinator is the newest one, so the
registry is asked several times in each lease whether it still is. While the registry is away no
other coordinator can become newer through it; so buffers and consumers go on, and so do the leases.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.buffer.start_notice import NoteBufferStarted
from pxrs_ray.actors.coordinator.bootstrap import Bootstrap
from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.errors import CoordinatorDeposed, StoreCorrupted, StoreUnavailable
from pxrs_ray.group.write_queue import WriteBatch, check_stored
from pxrs_ray.steps import Do, carry
from pxrs_ray.supervision.supervisor import Supervisor, within
from pxrs_ray.topology.coordinator_start import LeadOnce, lead_above

if TYPE_CHECKING:
    from pxrs_ray.model import Generation, Snapshot

logger = logging.getLogger(__name__)

CONFIRMS_A_LEASE = 5
# The topology's own documents live in a group of the registry, and a group has a row at least.
DOCUMENT_ROWS = 1


class Leadership(Bootstrap):
    """The leading part of `Coordinator`. See the rules at the head of this file."""

    @answers(NoteBufferStarted)
    async def buffer_started(self, index: int) -> None:
        """A buffer has started: ping it now. Buffers call this themselves; none waits for the
        answer."""
        if hasattr(self, "_pool"):
            self._pool.look_soon(index)

    async def _lead(self, over: Generation = 0) -> None:
        """Take the next generation of the topology, above `over`."""
        snapshot = await carry(lead_above(over), self._lead_once)
        self._generation = snapshot.generation

    async def _lead_once(self, what: Do[Any]) -> Snapshot:
        assert isinstance(what, LeadOnce)
        snapshot = await self._thread.call_until_known(
            self._store.lead, self._config.name, DOCUMENT_ROWS, f"pid {os.getpid()}"
        )
        self._leader = uuid.uuid4().hex
        return snapshot

    async def check_leading(self) -> None:
        """Raise CoordinatorDeposed when a newer coordinator leads the topology."""
        stored = await self._thread.call_until_known(self._store.load, self._config.name)
        check_stored(WriteBatch((), 0), stored, self._generation)

    def _keep_up(self) -> list[asyncio.Task[None]]:
        supervisor = Supervisor(f"leading {self._config.name}")
        ids = partial(self._pool.known_ends.keep_for_ever, self._put_document, self._queue_ids)
        return [
            supervisor.keep("buffers' leases", self._confirm_for_ever),
            supervisor.keep("known ends", ids),
        ]

    def _queue_ids(self) -> set[str]:
        # Also of those that wait for their host: what they had come to is not forgotten.
        return {home.queue_id for home in self._homing.homes.queues.values()}

    async def _confirm_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._config.lease_ttl_seconds / CONFIRMS_A_LEASE)
            await self._confirm_leading()

    async def _confirm_leading(self) -> None:
        """Ask the registry whether this coordinator leads; only then are buffers' readings sent
        back."""
        heard = self._pool.grants.heard_so_far()
        # A registry that is away must leave time for looks and grants within the same lease.
        wait_s = self._config.lease_ttl_seconds / CONFIRMS_A_LEASE / 2
        try:
            load = self._thread.call(self._store.load, self._config.name)
            stored: Snapshot | None = await within(wait_s, load)
            check_stored(WriteBatch((), 0), stored, self._generation)
        except CoordinatorDeposed as error:
            self.deposed(self._config.name, error)
            return
        except StoreCorrupted as error:
            logger.error("buffers are granted nothing more: %s", error)
            return
        except (StoreUnavailable, TimeoutError) as error:
            logger.info("the registry does not say who leads: %s", error)
        self._pool.grants.leading(heard)
