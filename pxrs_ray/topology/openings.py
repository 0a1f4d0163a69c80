"""What a coordinator has its buffers make and open, and whether it may begin a registry. Pure: see
`pxrs_ray.steps`.

Rules of this file. What was never made is made once, and that it was made is durable before it is
served: so a log that is not there later is lost, and never new. A registry that is not here is an
error, and never a reason to create one: it is begun by the one command that does, and only when no
node of the cluster has a trace of the topology.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Generation, Slot
from pxrs_ray.steps import Do, Steps
from pxrs_ray.topology.disk_survey import SurveyedNode, check_unknown, not_here
from pxrs_ray.topology.homes import Homes, RegistryHome

SlotQueue = tuple[Slot, str]
"""A slot, and a queue of which it has logs."""


@dataclass(frozen=True, slots=True)
class OpenAll(Do[Any]):
    """Open these queues on these slots, all at once; answers what failed, by place.

    With `make`, the logs are nowhere yet, and are to be made.
    """

    pairs: tuple[tuple[Slot, QueueSpec], ...]
    make: bool


@dataclass(frozen=True, slots=True)
class NoteMade(Do[Any]):
    """Have it durable that these places have their logs."""

    places: tuple[SlotQueue, ...]


def open_on(
    homes: Homes, indexes: Iterable[Slot], specs: Sequence[QueueSpec]
) -> Steps[list[BaseException]]:
    """Make what was never made, have that durable, then open all; answers what failed.

    `specs` have their ids, which `homes` knows.
    """
    pairs = [(index, spec) for spec in specs for index in indexes]
    to_make = [(i, s) for i, s in pairs if not s.external and not homes.is_made(s.queue, i)]
    failed: Mapping[SlotQueue, BaseException] = yield OpenAll(tuple(to_make), make=True)
    made = [(i, spec.queue) for i, spec in to_make if (i, spec.queue) not in failed]
    yield NoteMade(tuple(made))
    left = [(i, spec) for i, spec in pairs if (i, spec.queue) not in failed]
    worse: Mapping[SlotQueue, BaseException] = yield OpenAll(tuple(left), make=False)
    return [*failed.values(), *worse.values()]


def queues_to_name(kept: Iterable[str], homes: Homes, known: Mapping[str, str]) -> list[str]:
    """The queues that are to get an id: those that have none, and those whose logs, in a registry
    that has lost writes, have `known` ids of their own.

    Made anew since the registry was: what lies on the disks is what there is.
    """
    has = homes.queues
    new = [queue for queue in kept if queue not in has]
    other = [q for q in kept if q in has and known.get(q, has[q].queue_id) != has[q].queue_id]
    return [*new, *other]


def newest_on_disks(places: Iterable[SurveyedNode]) -> Generation:
    """The latest coordinator that any disk tells of: one that begins a lost registry again leads
    above it from its first write on. A backup that is restored meanwhile takes none of it."""
    traces = [trace for place in places for trace in place.looked.traces]
    return max((trace.identity.generation for trace in traces), default=0)


def ids_on_disks(places: Iterable[SurveyedNode]) -> dict[str, str]:
    """The ids that queues have on the disks, for a registry that has lost them: the newest that
    each slot's folder has noted."""
    traces = [trace for place in places for trace in place.looked.traces]
    found: dict[str, str] = {}
    for trace in sorted(traces, key=lambda trace: trace.identity.age):
        found.update({queue: each for queue, each in trace.queues.items() if each})
    return found


def out_of_sight(homes: Homes, disks: Collection[str]) -> list[Slot]:
    """The slots whose logs are on none of these disks, as far as it is known: they may have logs
    that a registry which has lost writes does not know of."""
    return [slot for slot, home in homes.slots.items() if home.disk not in disks]


def with_ids(
    homes: Homes,
    queues: Mapping[str, str],
    known: Mapping[str, str],
    slots: int,
    away: Iterable[Slot] = (),
) -> Homes:
    """`homes` with each of `queues` under its id: the one that its logs bear, where that is
    `known`, and then every slot is taken to have made them. So are those that are `away`, or at
    home nobody knows where: what they bring back is lost, and told, where it is of another queue.
    """
    unknown = [slot for slot, home in homes.slots.items() if not home.disk]
    may_have = [*unknown, *away]
    for queue, queue_id in queues.items():
        if known.get(queue):
            homes = homes.without_queue(queue)
        homes = homes.with_queue(queue, queue_id)
        homes = homes.with_made(queue, range(slots) if known.get(queue) else may_have)
    return homes


def check_may_begin(
    topology: str,
    places: Sequence[SurveyedNode],
    here: RegistryHome | None,
    *,
    may_begin: bool,
) -> None:
    """Raise RegistryNotHere unless a registry that knows nothing of the topology may be begun.

    `may_begin` says that it is deployed now; `here` is where the registry should be, when that is a
    file. `places` is what every living node tells.
    """
    check_unknown(topology, places)
    if not may_begin:
        raise not_here(topology, here, is_away=False)
