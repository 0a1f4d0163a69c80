"""`Commands`: answers commands and questions about the registry, also while it is away.

Rules of this file. `ChangesUnderWay` says who is refused, and who hears that a change waits; here
changes are made in tasks of their own, so that they go on when their caller was answered. One is
lost only if the coordinator ends before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pxrs_ray.errors import ChangeWaits, RegistryAway
from pxrs_ray.supervision.changes_under_way import ChangesUnderWay
from pxrs_ray.supervision.supervisor import beside

T = TypeVar("T")

LOOK_S = 0.1


class Commands:
    """What is under way at one coordinator. For its event loop.

    `away_ms` says for how long the registry has been away (None: it is there), `problem` why.
    """

    def __init__(self, away_ms: Callable[[], int | None], problem: Callable[[], str]) -> None:
        self._away_ms = away_ms
        self._problem = problem
        self._changes = ChangesUnderWay()

    def waiting(self) -> tuple[str, ...]:
        """The changes that wait for the registry, the oldest first."""
        return self._changes.waiting(self._away_ms())

    async def make(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Make a change. Raises RegistryAway (nothing was changed) or ChangeWaits."""
        away_ms = self._away_ms()
        if away_ms is not None and self._changes.refuses(away_ms):
            raise RegistryAway(
                f"{self._told(away_ms)}: {what} is refused and nothing was changed; ask again "
                f"when it is back ({self._problem()})"
            )
        making: asyncio.Future[T] = beside(_result_of, work)
        self._changes.begins(making, what)
        making.add_done_callback(self._over)
        away_ms = await self._answer_or_away(making)
        if away_ms is None:
            return making.result()
        raise ChangeWaits(
            f"{self._told(away_ms)}: {what} waits, and is made when it is back, unless the "
            f"coordinator ends before; `pxrs status` shows it ({self._problem()})"
        )

    async def ask(self, what: str, question: Callable[[], Awaitable[T]]) -> T:
        """Ask something that may need the registry. Raises RegistryAway when it does."""
        asking: asyncio.Future[T] = beside(_result_of, question)
        away_ms = await self._answer_or_away(asking)
        if away_ms is None:
            return asking.result()
        asking.cancel()
        raise RegistryAway(f"{self._told(away_ms)}: {what} must wait ({self._problem()})")

    async def _answer_or_away(self, working: asyncio.Future[T]) -> int | None:
        while not working.done():
            await asyncio.wait((working,), timeout=LOOK_S)
            away_ms = self._away_ms()
            if not working.done() and self._changes.refuses(away_ms):
                return away_ms
        return None

    def _over(self, made: asyncio.Future[Any]) -> None:
        self._changes.over(made)
        if not made.cancelled():
            made.exception()  # whoever waits yet gets it, and otherwise it is in the history

    def _told(self, away_ms: int) -> str:
        return f"registry away for {away_ms / 1_000:.0f} s"


async def _result_of(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
