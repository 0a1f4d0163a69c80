"""`KnownEnds`: has the registry keep what `KeptEnds` says, whenever it is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from pxrs_ray.clock import monotonic_ms
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.topology.kept_ends import KeptEnds

logger = logging.getLogger(__name__)

DOCUMENT = "known_ends"
LOOK_PAUSE_S = 1.0

PutDocument = Callable[[str, str], Awaitable[None]]


class KnownEnds(KeptEnds):
    """The ends of all logs of a topology. For one event loop, and one save at a time."""

    async def save(self, put: PutDocument, now_ms: int) -> None:
        """Have in the registry what is known now."""
        await put(DOCUMENT, self.saving())
        self.kept(now_ms)

    async def keep_for_ever(
        self, put: PutDocument, queue_ids: Callable[[], Collection[str]]
    ) -> None:
        """Store them whenever it is due; a registry that is away is tried again."""
        while True:
            await asyncio.sleep(LOOK_PAUSE_S)
            self.only(queue_ids())
            if not self.is_due(monotonic_ms()):
                continue
            try:
                await self.save(put, monotonic_ms())
            except Exception as error:  # noqa: BLE001 - tried again in a second
                logger.info("how far the logs have come is kept later: %s", told(error))
