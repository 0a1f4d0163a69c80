"""Remembers which incarnations of which members were given out, in bounded space, so that none
comes twice.

Rules of this file. The numbers of a member only rise. What is forgotten of members that are gone is
kept as one floor for all names: an unknown name begins above it, so a former incarnation of a
forgotten name is still older than a new one. Names that come once (every consumer that pulls may
have one of its own) take no space for ever.
"""

from __future__ import annotations

from collections.abc import Collection

from pxrs_ray.model import Incarnation, MemberId

KEPT_MAX = 1_000
# No member has this name: the highest incarnation of all that were forgotten.
FLOOR = ""


def next_above(
    given: dict[MemberId, Incarnation], member: MemberId, seen: Incarnation
) -> Incarnation:
    """A number above every incarnation of `member` that anybody was given or has `seen`."""
    known = given.pop(member, None)
    number = max(seen, given.get(FLOOR, 0) if known is None else known) + 1
    given[member] = number  # behind all others: the last to be forgotten
    return number


def forget(given: dict[MemberId, Incarnation], living: Collection[MemberId]) -> None:
    """Forget the oldest of those that are not `living`, beyond as many as are kept."""
    gone = [name for name in given if name != FLOOR and name not in living]
    for name in gone[: max(0, len(gone) - KEPT_MAX)]:
        given[FLOOR] = max(given.get(FLOOR, 0), given.pop(name))
