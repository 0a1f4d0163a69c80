"""What a coordinator has told the logs of a group's checkpoints: a log may drop only what every
group has passed. Pure.

Rules of this file. What has moved since it was last told is told in the next round, in either
direction: a seek goes back. What no log has answered for is told again. A log that was away hears
all of it from who meets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pxrs_ray.model import Change, Offset, PartitionId

Checkpoints = Mapping[PartitionId, Offset]


class ToldCheckpoints:
    """Of one group."""

    def __init__(self) -> None:
        self._told: Checkpoints = {}

    def untold(self, stands: Checkpoints) -> dict[PartitionId, Offset]:
        """What the logs are to hear now."""
        return {p: offset for p, offset in stands.items() if self._told.get(p) != offset}

    def heard(self, stands: Checkpoints) -> None:
        """They have all heard where it stood then."""
        self._told = dict(stands)


def last_used_ms(changes: Iterable[Change], now_ms: int) -> int:
    """When anybody was last a member, as the history tells; coordinators come and go."""
    known = list(changes)
    used = [change.at_ms for change in known if change.kind != "led"]
    return max(used) if used else min((change.at_ms for change in known), default=now_ms)
