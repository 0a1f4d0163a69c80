"""`StoreThread`: calls a synchronous registry store from an event loop. One thread, calls in
order. `registry_calls` decides when a call is made again, and who looks at a registry that is away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from pxrs_ray.clock import SystemClock, monotonic_ms, wall_ms
from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.status.answers import StoreStatus
from pxrs_ray.steps import Do, carry
from pxrs_ray.store.registry import RegistryStore, StoreInfo
from pxrs_ray.supervision.registry_calls import (
    AwaitAnswer,
    CallOnce,
    IsAway,
    Look,
    RegistryHealth,
    RestBeforeLook,
    look_until_back,
    until_known,
)
from pxrs_ray.supervision.registry_watch import NOTICE_MS_MAX, RegistryWatch
from pxrs_ray.supervision.supervisor import Supervisor, off_loop, within

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Calls that change the store, lease keep-alives (`renew`) not counted.
WRITING = frozenset(("lead", "write", "put_document", "trim_changes", "restore", "remove_group"))
RECENT_KEPT = 10_000
_CLOCK = SystemClock()


class StoreThread:
    """Runs every call to one store on a thread of its own, and notes how many there are, how long
    they take and what fails."""

    def __init__(self, make: Callable[[], RegistryStore]) -> None:
        self._make = make
        self._store: RegistryStore | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pxrs-store")
        self._supervisor = Supervisor("the registry")
        self.calls = 0
        self.writes = 0
        self.busy_ms = 0.0
        self.recent_ms: deque[float] = deque(maxlen=RECENT_KEPT)
        self.health = RegistryHealth(monotonic_ms())
        self.watch = RegistryWatch()
        self._answered = asyncio.Event()
        self._probe: Callable[[], object] | None = None
        self._looking: asyncio.Future[None] | None = None
        self._back: asyncio.Future[None] | None = None
        self._told_when_back: set[Callable[[], None]] = set()

    async def open(self) -> RegistryStore:
        """Make the store, on its thread."""
        self._store = await off_loop(self._make, threads=self._pool)
        return self._store

    async def call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the store once."""
        started_s = time.perf_counter()

        def make() -> T:
            # On the thread, where calls follow one another: a call that waits its turn is not
            # asked, and one that hangs is noticed from here on.
            self.watch.asked(monotonic_ms())
            try:
                found = method(*args, **kwargs)
            except StoreUnavailable:
                self.watch.failed(monotonic_ms())
                raise
            except BaseException:
                self.watch.answered()
                raise
            self.watch.answered()
            return found

        try:
            answer = await off_loop(make, threads=self._pool)
        except StoreUnavailable as error:
            self.health.failed(error, wall_ms())
            self._look_until_back()
            raise
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            # SystemExit on that thread is no wish to end this process.
            raise RuntimeError(f"the store ended a call with {error!r}") from error
        finally:
            self.calls += 1
            self.writes += getattr(method, "__name__", "") in WRITING
            took_ms = (time.perf_counter() - started_s) * 1_000
            self.busy_ms += took_ms
            self.recent_ms.append(took_ms)
        self._answered.set()
        if self.health.answered(_CLOCK.now()):
            for tell in list(self._told_when_back):
                tell()
        return answer

    async def call_until_known(
        self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call until the outcome is known, however long the store is down.

        The method must be idempotent: it is repeated as it stands. `health` tells of it.
        """
        once = partial(self.call, method, *args, **kwargs)
        answer: T = await carry(until_known(), partial(self._do, once))
        return answer

    async def _do(self, once: Callable[[], Awaitable[Any]], what: Do[Any]) -> Any:
        match what:
            case CallOnce():
                return await once()
            case AwaitAnswer(wait_s):
                self._answered.clear()
                with suppress(TimeoutError):
                    await within(wait_s, self._answered.wait())
            case IsAway():
                return self.away_ms() is not None
            case RestBeforeLook(pause_s):
                await asyncio.sleep(pause_s)
            case Look():
                await once()
            case _:
                raise AssertionError(what)
        return None

    def when_back(self, tell: Callable[[], None]) -> None:
        """Call this whenever the store answers again after it did not."""
        self._told_when_back.add(tell)

    def not_when_back(self, tell: Callable[[], None]) -> None:
        """Call it no more."""
        self._told_when_back.discard(tell)

    # --- whether it is there ----------------------------------------------------------------------

    def away_ms(self, notice_ms: int = NOTICE_MS_MAX) -> int | None:
        """For how long the store has not answered; None while it is not known to be away."""
        return self.watch.away_ms(monotonic_ms(), notice_ms)

    def look_by(self, probe: Callable[[], object]) -> None:
        """What to ask the store, where it matters whether it is there and nobody else asks."""
        self._probe = probe

    async def look(self, wait_s: float) -> None:
        """Find out whether the store is there, unless it has just answered; within `wait_s`."""
        if self._probe is None or self.health.is_fresh(monotonic_ms()):
            return
        if self._looking is None or self._looking.done():
            self._looking = self._supervisor.once("a look", self._look(self._probe))
        await asyncio.wait((self._looking,), timeout=wait_s)

    async def _look(self, probe: Callable[[], object]) -> None:
        try:
            await self.call(probe)
        except StoreUnavailable as error:
            logger.debug("the registry is away: %s", error)

    def _look_until_back(self) -> None:
        """An idle coordinator calls nobody: it would take the store for away when it is back."""
        if self._probe is not None and (self._back is None or self._back.done()):
            self._back = self._supervisor.keep("looks", partial(self._look_on, self._probe))

    async def _look_on(self, probe: Callable[[], object]) -> None:
        await carry(look_until_back(), partial(self._do, partial(self._look, probe)))

    def status(self, info: StoreInfo) -> StoreStatus:
        """How the store is doing."""
        away_ms = self.away_ms()
        problem, down_since_ms = self.health.problem, self.health.down_since_ms
        if away_ms is not None and not problem:
            problem = "it is asked and does not answer"
        if away_ms is not None:
            down_since_ms = wall_ms() - away_ms
        down_since_s = None if down_since_ms is None else down_since_ms / 1_000
        return StoreStatus(
            info.backend,
            info.url,
            info.durable,
            self.calls,
            self.writes,
            self.busy_ms / max(1, self.calls),
            down_since_s,
            problem,
            info.warnings,
            None if away_ms is None else away_ms / 1_000,
        )

    async def close(self) -> None:
        """Close the store and end the thread."""
        for looking in (self._looking, self._back):
            if looking is not None:
                looking.cancel()
        if self._store is not None:
            await off_loop(self._store.close, threads=self._pool)
        self._pool.shutdown(wait=False)
