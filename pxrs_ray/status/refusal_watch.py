"""`RefusalWatch`: which buffers refuse appends now, by what they have counted so far. Pure.

Rules of this file. A buffer counts since it started; one that has started anew begins at 0, and
what it has counted then is new. The first look at a buffer tells nothing: what it has refused may
be of last week.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

WINDOW_MS = 5 * 60_000
# A look may come a few times a second: so many are kept as the window needs.
LOOK_EVERY_MS = 5_000


class RefusalWatch:
    """The appends that each buffer has refused within the last minutes."""

    def __init__(self) -> None:
        self._counted: dict[int, int] = {}
        self._grown: dict[int, deque[tuple[int, int]]] = {}

    def note(self, now_ms: int, counts: Mapping[int, int]) -> dict[int, int]:
        """Take in the count of each buffer that has answered; how many of each are of late.

        `now_ms` is of a clock that does not jump.
        """
        for buffer, count in counts.items():
            before = self._counted.get(buffer, count)
            self._counted[buffer] = count
            if grown := count - before if count >= before else count:
                self._add(buffer, now_ms, grown)
        for buffer, moments in list(self._grown.items()):
            while moments and now_ms - moments[0][0] > WINDOW_MS:
                moments.popleft()
            if not moments:
                del self._grown[buffer]
        return {buffer: sum(n for _, n in moments) for buffer, moments in self._grown.items()}

    def _add(self, buffer: int, now_ms: int, grown: int) -> None:
        moments = self._grown.setdefault(buffer, deque())
        if moments and now_ms - moments[-1][0] < LOOK_EVERY_MS:
            began_ms, grown_before = moments.pop()
            moments.append((began_ms, grown_before + grown))
        else:
            moments.append((now_ms, grown))
