"""`ChangesUnderWay`: which changes wait for the registry, and what their callers are told. Pure.

Rules of this file. Every caller gets a true answer within seconds. A change that is requested while
the registry is known to be away is refused: nothing was changed, ask again. A change that had begun
when the registry went away is completed when the registry is back; its caller is told that it
waits, and it is listed until it is over. `away_ms` is how long the registry has been away; None
means that it is there.
"""

from __future__ import annotations

from collections.abc import Hashable

ANSWER_MS = 2_000


class ChangesUnderWay:
    """What is under way at one coordinator, the oldest first."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, str] = {}

    def refuses(self, away_ms: int | None) -> bool:
        """Whether nobody may begin anything, or be left without an answer."""
        return away_ms is not None and away_ms >= ANSWER_MS

    def begins(self, change: Hashable, what: str) -> None:
        """A change is being made."""
        self._under_way[change] = what

    def over(self, change: Hashable) -> None:
        """It was made, or has failed."""
        self._under_way.pop(change, None)

    def waiting(self, away_ms: int | None) -> tuple[str, ...]:
        """The changes that wait for the registry."""
        return tuple(self._under_way.values()) if away_ms is not None else ()
