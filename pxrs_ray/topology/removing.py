"""How groups and queues are removed, step by step. Pure.

Rules of this file. The document of tombstones names what is to be removed before any of it is
touched, and until all of it is gone. So a removal that is cut off anywhere, by a death or a buffer
that is away, is finished by the next coordinator; each step may be taken again. The registry goes
before the logs: retention waits until nobody can read. A name is free again when nothing is left of
it; the epochs that were given out under it never are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Generation
from pxrs_ray.steps import Do, Steps, do
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.topology.tombstones import Tombstones


@dataclass(frozen=True, slots=True)
class GivenOut:
    """What a group has given out: no later group of any name gives out the same."""

    epoch: Epoch = 0
    generation: Generation = 0


@dataclass(frozen=True, slots=True)
class CloseGroup(Do[GivenOut]):
    """End a group's consumers and the group: nobody hears it from here on."""

    group: str


@dataclass(frozen=True, slots=True)
class KeepEnds(Do[None]):
    """Have the tombstones durable, then go by them."""

    ends: Tombstones


@dataclass(frozen=True, slots=True)
class NoteLife(Do[None]):
    """Note on this node's disk how many queues of a name are gone."""

    queue: str
    life: int


@dataclass(frozen=True, slots=True)
class Unname(Do[None]):
    """Have a configuration durable that does not name these, unless it is so."""

    groups: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unlist(Do[None]):
    """Have a list of groups durable that does not name this one."""

    group: str


@dataclass(frozen=True, slots=True)
class RemoveRows(Do[None]):
    """Remove a group of the registry, unless somebody newer leads it."""

    group: str


@dataclass(frozen=True, slots=True)
class EndConsumers(Do[None]):
    """End what still runs of a group's consumers."""

    group: str


@dataclass(frozen=True, slots=True)
class DropGroup(Do[None]):
    """Have the logs of a queue forget a group. Raises where a buffer is away."""

    queue: str
    group: str


@dataclass(frozen=True, slots=True)
class ForgetGroup(Do[None]):
    """Forget what this node's disk notes of a group."""

    group: str


@dataclass(frozen=True, slots=True)
class DropTenants(Do[None]):
    """Have nothing kept of tenants that moved from a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class DropQueue(Do[None]):
    """Remove a queue's logs, and those of its feeds. Raises where a buffer is away."""

    queue: str


@dataclass(frozen=True, slots=True)
class ForgetHome(Do[None]):
    """Forget where a queue's logs were at home."""

    queue: str


def begin_group_end(
    ends: Tombstones, group: str, queues: Iterable[str], *, known: bool
) -> Steps[Tombstones]:
    """Let a group go that these queues' logs know; from here on it is as good as gone.

    `known` says whether it is led here.
    """
    given = (yield from do(CloseGroup(group))) if known else GivenOut()
    ends = ends.with_group(group, tuple(sorted(queues)), given.epoch, given.generation)
    yield from do(KeepEnds(ends))
    return ends


def begin_queue_end(ends: Tombstones, queue: str, life: int) -> Steps[Tombstones]:
    """Let a queue go, in its life of this number; nobody reads it any more."""
    ends = ends.with_queue(queue, life)
    yield from do(KeepEnds(ends))
    yield from do(NoteLife(queue, ends.life(queue)))
    return ends


def finish_removals(ends: Tombstones) -> Steps[Tombstones]:
    """Finish all removals. Raises what prevents one, after trying all."""
    left: list[BaseException] = []
    for group in list(ends.groups):
        try:
            ends = yield from _finish_group(ends, group)
        except Exception as error:  # noqa: BLE001 - the others are finished, then it is raised
            left.append(error)
    for queue in list(ends.queues):
        try:
            ends = yield from _finish_queue(ends, queue)
        except Exception as error:  # noqa: BLE001 - the others are finished, then it is raised
            left.append(error)
    if left:
        raise left[0]
    return ends


def is_in_the_way(error: BaseException, ends: Tombstones, before: Collection[str]) -> bool:
    """Whether what kept a removal from its end matters to who wants to use these names now."""
    return not passes(error) or bool({*ends.groups, *ends.queues} & set(before))


def _finish_group(ends: Tombstones, group: str) -> Steps[Tombstones]:
    yield from do(Unname(groups=(group,)))
    yield from do(Unlist(group))
    yield from do(RemoveRows(group))
    yield from do(EndConsumers(group))
    for queue in ends.groups[group]:
        yield from do(DropGroup(queue, group))
    yield from do(ForgetGroup(group))
    ends = ends.without_group(group)
    yield from do(KeepEnds(ends))
    return ends


def _finish_queue(ends: Tombstones, queue: str) -> Steps[Tombstones]:
    yield from do(Unname(queues=(queue,)))
    yield from do(DropTenants(queue))
    # With what is known of its feeds: one that runs again would find itself done.
    yield from do(DropQueue(queue))
    yield from do(ForgetHome(queue))
    ends = ends.without_queue(queue)
    yield from do(KeepEnds(ends))
    return ends
