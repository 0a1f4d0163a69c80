"""Computes rates from positions over time: what arrives, what is done, what one consumer can do."""

from __future__ import annotations

from collections import deque

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.scaling.observation import Observation

ENOUGH_S = 1.0


@dataclass(frozen=True, slots=True)
class ObservedRates:
    """Messages a second over the window: arriving, done in all, and done by one busy consumer.

    `per_consumer` is None while no consumer has been seen at full load.
    """

    arriving: float
    done: float
    per_consumer: float | None


class RateMeter:
    """Keeps the observations of a window, and the throughput of a consumer that had enough to
    do."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._seen: deque[Observation] = deque()
        self._per_consumer: float | None = None

    def look(self, observation: Observation) -> ObservedRates:
        """Take one observation in, and say what the rates are now."""
        self._seen.append(observation)
        while len(self._seen) > 2 and observation.at_ms - self._seen[1].at_ms >= self._window_ms:
            self._seen.popleft()
        first = self._seen[0]
        seconds = (observation.at_ms - first.at_ms) / 1_000
        if seconds <= 0:
            return ObservedRates(0.0, 0.0, self._per_consumer)
        arriving = _moved(first, observation, "end_offset") / seconds
        done = _moved(first, observation, "checkpoint") / seconds
        self._learn(first, observation, seconds)
        return ObservedRates(arriving, done, self._per_consumer)

    def forget_window(self) -> None:
        """The number of consumers has changed: earlier measurements say nothing of it."""
        while len(self._seen) > 1:
            self._seen.popleft()

    def _learn(self, first: Observation, last: Observation, seconds: float) -> None:
        """Measure consumers that had enough to do all the time: one that waits for work is no
        measure. A little lag is always there, because checkpoints follow the work: enough is a
        second's work."""
        before = {p.partition: p for p in first.partitions}
        done: dict[str, int] = {}
        waited: dict[str, int] = {}
        for now in last.partitions:
            then = before.get(now.partition)
            if now.owner is None or then is None or then.owner != now.owner:
                continue
            done[now.owner] = done.get(now.owner, 0) + max(0, now.checkpoint - then.checkpoint)
            waited[now.owner] = waited.get(now.owner, 0) + min(now.lag, then.lag)
        rates = [
            done[owner] / seconds
            for owner, waiting in waited.items()
            if done[owner] and waiting >= done[owner] / seconds * ENOUGH_S
        ]
        if not rates:
            return
        mean = sum(rates) / len(rates)
        known = self._per_consumer
        self._per_consumer = mean if known is None else 0.7 * known + 0.3 * mean


def _moved(first: Observation, last: Observation, what: str) -> int:
    before = {p.partition: getattr(p, what) for p in first.partitions}
    return sum(
        max(0, getattr(p, what) - before.get(p.partition, getattr(p, what)))
        for p in last.partitions
    )
