"""`TopologyDocuments`: texts that a topology keeps with its configuration. A part of `Coordinator`.

Rules of this file. A text is kept under a name with a slash, which no other document has; the
coordinator's own documents have names without one. All are written under the coordinator's
generation. Of one name a text is kept, and read, when the one before is over: what waits for the
registry must not come after what was kept later, and whoever begins anew must not go on from before
it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.actors.coordinator.topology_requests import (
    GetDeployed,
    GetDocument,
    KeepDocument,
    NoteDeployed,
)

if TYPE_CHECKING:
    from pxrs_ray.actors.coordinator.store_thread import StoreThread
    from pxrs_ray.config import PxrsConfig
    from pxrs_ray.store.registry import RegistryStore


class TopologyDocuments(ABC):
    """See the rules at the head of this file."""

    _config: PxrsConfig
    _store: RegistryStore
    _thread: StoreThread
    _deployed: str
    _turns: dict[str, asyncio.Lock]

    def _turn(self, name: str) -> asyncio.Lock:
        return self._turns.setdefault(name, asyncio.Lock())

    @abstractmethod
    async def _ready(self) -> None:
        """Return when this incarnation has recovered."""

    @abstractmethod
    async def _put_document(self, name: str, text: str) -> None:
        """Have a text durable."""

    @answers(GetDocument)
    async def document(self, name: str) -> str:
        """What `keep_document` kept last; '' when nothing was."""
        await self._ready()
        async with self._turn(name):
            documents = await self._thread.call(self._store.documents, self._config.name)
        return documents.get(name, "")

    @answers(KeepDocument)
    async def keep_document(self, name: str, text: str) -> None:
        """Keep a text of the topology's own under a name with a slash, which nobody else uses."""
        await self._ready()
        assert "/" in name
        async with self._turn(name):
            await self._put_document(name, text)

    @answers(GetDeployed)
    async def deployed(self) -> str:
        """What `note_deployed` kept last; '' when nothing was."""
        await self._ready()
        return self._deployed

    @answers(NoteDeployed)
    async def note_deployed(self, text: str) -> None:
        """Store which file was deployed, with the configuration."""
        await self._ready()
        await self._put_document("deployed", text)
        self._deployed = text
