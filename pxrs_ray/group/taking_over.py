"""How running consumers take another configuration over. Pure: see `pxrs_ray.steps`.

Rules of this file. A consumer that takes it keeps its process, its membership and its partitions.
One that cannot (an option that only a new process can have), or does not answer, is replaced: by
whoever asked. One that is not up yet was perhaps made of an older configuration: it is offered the
newest when it begins, by `ReplicaLives`, which makes it anew where it has no place yet: it may
never get one with what it asked for.
"""

from __future__ import annotations

from enum import Enum

from pxrs_ray.group.replica_life import ReplicaLife
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.steps import Do, Steps, do

CAUSE = "replaced for another configuration"


class Offered(Enum):
    """What a consumer made of a configuration that it was offered."""

    TAKEN = "taken"
    REFUSED = "only a new process can have it"
    GONE = "it is dead: who comes in its place is made of it"
    SILENT = "it does not answer, and may live"


@dataclass(frozen=True, slots=True)
class HasNewest(Do[bool]):
    """Whether it is known to work by the newest configuration."""

    life: ReplicaLife


@dataclass(frozen=True, slots=True)
class OfferConfig(Do[Offered]):
    """Offer it the newest configuration. Raises HandlerError when its handler cannot serve that."""

    life: ReplicaLife


def taken_over(life: ReplicaLife) -> Steps[bool]:
    """Have one consumer take the newest configuration over; False when another must take its place.

    Raises HandlerError when its handler cannot serve these options: then nothing has changed.
    """
    if (yield from do(HasNewest(life))):
        return True
    if life.state == "failed":
        return False
    if life.state in ("starting", "pending", "leaving"):
        return True
    offered = yield from do(OfferConfig(life))
    return offered in (Offered.TAKEN, Offered.GONE)
