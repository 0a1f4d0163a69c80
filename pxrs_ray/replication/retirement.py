"""`Retirement`: when a replica's process may drop its logs because its disk is no replica any more.

Rules of this file. A disk may be placed again after it was let go of, by the same coordinator or by
another, and what was said to its process before may come late. So every look and every dismissal
bears when a coordinator began it, and a process that was looked at later keeps its logs. Nobody is
placed whose process has not answered a look that began after the last dismissal: see
`SlotPlacements.dismissed`.
"""

from __future__ import annotations

from collections.abc import Collection

from pxrs_ray.model import Generation
from pxrs_ray.replication.placement import Disk, Placement


def may_drop_damaged(
    me: Disk, placement: Placement | None, absent: Collection[Disk] | None
) -> bool:
    """Whether a replica may drop a log that is damaged, to take it from the others: it leads
    nothing and counts as in sync no longer, and its coordinator knows that it lacks something. So
    nobody lets it in again for what it had."""
    return (
        placement is not None
        and absent is not None
        and me in absent
        and me != placement.leader
        and placement.in_sync(me) is None
    )


class Retirement:
    """What one process has heard of coordinators, each by its own steady clock."""

    def __init__(self) -> None:
        self._looked: tuple[Generation, int] = (0, -1)

    def looked_at(self, generation: Generation, asked_ms: int) -> None:
        """A coordinator looks at it: it has, or is about to have, a replica."""
        self._looked = max(self._looked, (generation, asked_ms))

    def may_go(self, generation: Generation, asked_ms: int) -> bool:
        """Whether a dismissal counts."""
        return (generation, asked_ms) > self._looked
