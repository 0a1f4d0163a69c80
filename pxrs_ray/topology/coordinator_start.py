"""How a coordinator begins: in which order it leads, looks, opens and goes on. Pure: see
`pxrs_ray.steps`.

Rules of this file. It leads before it reads, so nobody else writes what it goes by. Nothing is
served, and no group is led, before it is known that the logs and homes are those of this registry.
Groups are led before their logs are opened, for how far they have come says how far a log must
reach; they go on when the logs are open. What is being removed is led no more. A loss that was
accepted is settled last: a start that is cut off goes on with it.
"""

from __future__ import annotations

from collections.abc import Collection

from pxrs_ray.errors import NotFound
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Generation, Snapshot
from pxrs_ray.steps import Do, Steps, do


@dataclass(frozen=True, slots=True)
class OpenRegistry(Do[Generation]):
    """Open the registry, and what is known of it beside it; above which generation to lead.

    Raises where it may be another one than this topology's, or is away.
    """


@dataclass(frozen=True, slots=True)
class LeadTopology(Do[None]):
    """Take the next generation of the topology above this one."""

    over: Generation


@dataclass(frozen=True, slots=True)
class FoundTopology:
    """What the registry holds: the groups that its list names, and what is being removed."""

    groups: Collection[str]
    going: Collection[str] = ()
    is_going: bool = False


@dataclass(frozen=True, slots=True)
class ReadTopology(Do[FoundTopology]):
    """Go on with what the registry holds, less what is being removed."""


@dataclass(frozen=True, slots=True)
class FindHomes(Do[None]):
    """Find where the logs are at home, and the buffers that are there."""


@dataclass(frozen=True, slots=True)
class CheckIdentity(Do[None]):
    """Raise StoreCorrupted where the logs know of more than this registry, unless that loss was
    accepted: then it goes on above what they know."""


@dataclass(frozen=True, slots=True)
class GrantLeases(Do[None]):
    """Let the buffers serve, from now on again and again."""


@dataclass(frozen=True, slots=True)
class LeadListed(Do[None]):
    """Lead a group that the list names: go on from what the registry holds of it."""

    group: str


@dataclass(frozen=True, slots=True)
class OpenQueues(Do[None]):
    """Open the logs of every queue, wherever a buffer is for them."""


@dataclass(frozen=True, slots=True)
class GoOnWith(Do[None]):
    """Register a group with the logs, compare it with them, and find its consumers."""

    group: str


@dataclass(frozen=True, slots=True)
class SettleStart(Do[None]):
    """Look after the buffers that were met, and finish what was being removed."""


@dataclass(frozen=True, slots=True)
class SettleAcceptance(Do[None]):
    """What was accepted is dealt with: the next loss is another one."""


@dataclass(frozen=True, slots=True)
class KeepWatch(Do[None]):
    """From here on by itself: what is away comes back, what drains is left."""


def begin_coordinator(name: str) -> Steps[None]:
    """Begin as the coordinator of a topology. Raises what prevents it; then it begins anew."""
    over = yield from do(OpenRegistry())
    yield from do(LeadTopology(over))
    found = yield from do(ReadTopology())
    yield from do(FindHomes())
    if found.is_going:
        raise NotFound(
            f"topology {name} is being deleted, and nothing of it runs any more: "
            f"`pxrs down {name} --delete` finishes it"
        )
    yield from do(CheckIdentity())
    yield from do(GrantLeases())
    groups = sorted(set(found.groups) - set(found.going))
    for group in groups:
        yield from do(LeadListed(group))
    yield from do(OpenQueues())
    for group in groups:
        yield from do(GoOnWith(group))
    yield from do(SettleStart())
    yield from do(SettleAcceptance())
    yield from do(KeepWatch())


@dataclass(frozen=True, slots=True)
class LeadOnce(Do[Snapshot]):
    """Take the next generation, whatever it is."""


def lead_above(over: Generation) -> Steps[Snapshot]:
    """Take a generation above `over`: a registry that went back has given those out before."""
    while True:
        snapshot = yield from do(LeadOnce())
        if snapshot.generation > over:
            return snapshot
