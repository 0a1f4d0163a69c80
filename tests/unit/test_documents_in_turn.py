"""Texts that a topology keeps: of one name each is kept, and read, when the one before is over."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from pxrs_ray.actors.coordinator.topology_documents import TopologyDocuments


class Documents(TopologyDocuments):
    """Whoever keeps `slow` waits for the registry, as in an outage."""

    def __init__(self) -> None:
        self._turns = {}
        self.kept: dict[str, str] = {}
        self.back = asyncio.Event()
        store: Any = SimpleNamespace(documents=lambda _: dict(self.kept))
        self._config: Any = SimpleNamespace(name="t")
        self._store = store
        self._thread: Any = SimpleNamespace(call=self._call)

    async def _call(self, method: Any, *arguments: Any) -> Any:
        return method(*arguments)

    async def _ready(self) -> None:
        """It has."""

    async def _put_document(self, name: str, text: str) -> None:
        if text == "slow":
            await self.back.wait()
        self.kept[name] = text


async def _play() -> None:
    documents = Documents()
    first = asyncio.ensure_future(documents.keep_document("tenants/q", "slow"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(documents.keep_document("tenants/q", "later"))
    read = asyncio.ensure_future(documents.document("tenants/q"))
    await documents.keep_document("tenants/r", "another")
    assert documents.kept == {"tenants/r": "another"}, "another name waits for nobody"
    assert not read.done(), "who begins anew would go on from before what is being kept"
    documents.back.set()
    await asyncio.gather(first, second)
    assert documents.kept["tenants/q"] == "later" and await read == "later"


def test_what_waited_for_the_registry_undoes_nothing_that_was_kept_after_it() -> None:
    asyncio.run(asyncio.wait_for(_play(), 10))
