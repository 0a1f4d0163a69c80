"""`FeedRound`: which Spark partitions are fetched now, and which are being routed.

Rules of this file. An executor is asked for one partition at a time, because RayDP recovers lost
executors best then; every fetch has a deadline. Nothing here fetches, waits or asks a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pxrs_ray.feed.feed_run import FetchFailed

WINDOW_MIN = 2


class FeedRound:
    """One round over the Spark partitions `numbers`; `locations` says where each of all lies."""

    def __init__(
        self, numbers: Sequence[int], locations: Sequence[str], cpus: int, fetch_ms_max: int
    ) -> None:
        self.routing: set[int] = set()
        self._waiting = deque(numbers)
        self._locations = locations
        # An executor gives one partition at a time; as many more are routed meanwhile.
        self._window = max(WINDOW_MIN, min(cpus, 2 * len(set(locations)) + 1))
        self._fetch_ms_max = fetch_ms_max
        self._deadlines_ms: dict[int, int] = {}

    @property
    def over(self) -> bool:
        """Whether every partition has been routed."""
        return not (self._waiting or self._deadlines_ms or self.routing)

    def fetches(self, now_ms: int) -> list[int]:
        """The partitions whose fetch begins now."""
        found = []
        busy = {self._locations[number] for number in self._deadlines_ms}
        while len(self._deadlines_ms) + len(self.routing) < self._window:
            number = next((n for n in self._waiting if self._locations[n] not in busy), None)
            if number is None:
                break
            self._waiting.remove(number)
            self._deadlines_ms[number] = now_ms + self._fetch_ms_max
            busy.add(self._locations[number])
            found.append(number)
        return found

    def fetched(self, number: int) -> None:
        """A partition is at hand, and is routed from now on."""
        del self._deadlines_ms[number]
        self.routing.add(number)

    def routed(self, number: int) -> None:
        """A partition is in the logs."""
        self.routing.remove(number)

    def look(self, now_ms: int) -> None:
        """Raise FetchFailed when a fetch is late."""
        for number, deadline_ms in self._deadlines_ms.items():
            if now_ms > deadline_ms:
                raise FetchFailed(f"{self._locations[number]} did not give a partition in time")


class FirstFailure:
    """What a round raises of which each partition answers for itself: the first error that any has
    met, when all are over. The others go on: what they append need not be appended again."""

    def __init__(self) -> None:
        self._met: Exception | None = None

    def met(self, error: Exception) -> None:
        """A partition answers with this error."""
        self._met = self._met or error

    def over(self) -> None:
        """All are over. Raises what was met first."""
        if self._met is not None:
            raise self._met
