"""Computes rates from successive statuses. Pure; each status carries its time."""

from __future__ import annotations

from collections import deque

from pxrs_ray.status.answers import TopologyStatus

SAMPLES_KEPT = 6

Counts = dict[tuple[str, str], int]


class Rates:
    """Messages a second into each queue and through each group, over the last few statuses."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counts]] = deque(maxlen=SAMPLES_KEPT)

    def note(self, at_s: float, status: TopologyStatus) -> None:
        """Take in one status, seen at `at_s`; times must rise."""
        counts: Counts = {}
        for group in status.groups:
            counts["group", group.group] = sum(p.checkpoint for p in group.partitions)
        for queue in status.queues:
            counts["queue", queue.queue] = queue.produced
        self._samples.append((at_s, counts))

    def produced(self, queue: str) -> float:
        """Messages a second into a queue."""
        return self._rate("queue", queue)

    def consumed(self, group: str) -> float:
        """Messages a second that a group passes; a seek back does not count below zero."""
        return self._rate("group", group)

    def _rate(self, kind: str, name: str) -> float:
        known = [
            (at_s, counts[kind, name]) for at_s, counts in self._samples if (kind, name) in counts
        ]
        if len(known) < 2:
            return 0.0
        (first_s, first), (last_s, last) = known[0], known[-1]
        return max(0.0, (last - first) / (last_s - first_s))
