"""The last hour of each group in points: the coordinator keeps it for pages that are opened later.

Pure. Bounded in points, and in groups: what is kept is of those that there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypedDict

from pxrs_ray.status.answers import GroupStatus, TopologyStatus
from pxrs_ray.status.rates import Rates

# An hour, noted every five seconds.
POINTS_KEPT = 720
GROUPS_KEPT = 256


class Point(TypedDict):
    """A group at one moment: messages that wait, and messages a second."""

    at_ms: int
    lag: int
    consumed: float
    produced: float


class Past:
    """The newest points of each group."""

    def __init__(self, points_kept: int = POINTS_KEPT, groups_kept: int = GROUPS_KEPT) -> None:
        self.rates = Rates()
        self._kept, self._groups_kept = points_kept, groups_kept
        self._points: dict[str, deque[Point]] = {}

    def note(self, at_ms: int, status: TopologyStatus) -> None:
        """Take in one status; times must rise."""
        self.rates.note(at_ms / 1_000, status)
        for gone in self._points.keys() - {group.group for group in status.groups}:
            del self._points[gone]
        for group in status.groups[: self._groups_kept]:
            points = self._points.setdefault(group.group, deque(maxlen=self._kept))
            points.append(
                {
                    "at_ms": at_ms,
                    "lag": group.lag,
                    "consumed": round(self.rates.consumed(group.group), 1),
                    "produced": round(self.rates.produced(_queue_of(group, status)), 1),
                }
            )

    def begin(self, before: Mapping[str, Sequence[Point]]) -> None:
        """Go on after the points that somebody else has noted; of groups without any here."""
        for group, points in list(before.items())[: self._groups_kept]:
            if group not in self._points:
                self._points[group] = deque(points, maxlen=self._kept)

    def points(self) -> dict[str, list[Point]]:
        """Every group's, the oldest first."""
        return {group: list(points) for group, points in self._points.items()}

    def newest(self, group: str) -> Point | None:
        """The last point of a group."""
        points = self._points.get(group)
        return points[-1] if points else None


def _queue_of(group: GroupStatus, status: TopologyStatus) -> str:
    # A queue is shown without the topology's prefix, the queue of a group with it.
    names = [q.queue for q in status.queues]
    return next((n for n in names if group.queue == n or group.queue.endswith(f".{n}")), "")
