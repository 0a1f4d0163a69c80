"""`StoreThread`: a synchronous registry store, called from an event loop. One thread, in order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.stats import StoreStatus
from pxrs_ray.store.base import RegistryStore, StoreInfo

P = ParamSpec("P")
T = TypeVar("T")

# Calls that change the store, lease keep-alives (`renew`) not counted.
WRITING = frozenset(("lead", "write", "put_document", "trim_changes", "restore", "remove_group"))
PAUSE_FIRST_S = 0.05
PAUSE_MOST_S = 1.0
RECENT_KEPT = 10_000


class StoreThread:
    """Runs every call to one store on one thread of its own, and keeps count of how it goes."""

    def __init__(self, make: Callable[[], RegistryStore]) -> None:
        self._make = make
        self._store: RegistryStore | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pxrs-store")
        self.calls = 0
        self.writes = 0
        self.busy_ms = 0.0
        self.recent_ms: deque[float] = deque(maxlen=RECENT_KEPT)
        self.down_since_s: float | None = None
        self.problem = ""

    async def open(self) -> RegistryStore:
        """Make the store, on its thread."""
        loop = asyncio.get_running_loop()
        self._store = await loop.run_in_executor(self._pool, self._make)
        return self._store

    async def call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the store once."""
        loop = asyncio.get_running_loop()
        started_s = time.perf_counter()
        try:
            answer = await loop.run_in_executor(self._pool, lambda: method(*args, **kwargs))
        except StoreUnavailable as error:
            if self.down_since_s is None:
                self.down_since_s = time.time()
            self.problem = str(error)
            raise
        finally:
            self.calls += 1
            self.writes += getattr(method, "__name__", "") in WRITING
            took_ms = (time.perf_counter() - started_s) * 1_000
            self.busy_ms += took_ms
            self.recent_ms.append(took_ms)
        self.down_since_s, self.problem = None, ""
        return answer

    async def call_until_known(
        self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call until the outcome is known, however long the store is down.

        The method must be idempotent: it is repeated as it stands. `down_since_s` tells of it.
        """
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                return await self.call(method, *args, **kwargs)
            except StoreUnavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MOST_S)

    def status(self, info: StoreInfo) -> StoreStatus:
        """How the store is doing."""
        return StoreStatus(
            info.backend,
            info.url,
            info.durable,
            self.calls,
            self.writes,
            self.busy_ms / max(1, self.calls),
            self.down_since_s,
            self.problem,
            info.warnings,
        )

    async def close(self) -> None:
        """Close the store and end the thread."""
        if self._store is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._pool, self._store.close)
        self._pool.shutdown(wait=False)
