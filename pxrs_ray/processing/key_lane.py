"""`KeyLane`: the messages of one key of a partition that are not done, in order."""

from __future__ import annotations

from collections.abc import Hashable

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.processing.scheduler import Item, Work


@dataclass(eq=False, slots=True)
class KeyLane:
    """The messages of one key that are not done, from `first` to `last`: there is one at least."""

    name: Hashable
    tenant: str
    first: Item
    last: Item
    work: Work = Work.HANDLE
    busy: bool = False
    ready: bool = False
    trouble: int = 0

    def items(self, most: int) -> tuple[Item, ...]:
        """So many of its messages, in order."""
        found = [self.first]
        while len(found) < most and (behind := found[-1].behind) is not None:
            found.append(behind)
        return tuple(found)
