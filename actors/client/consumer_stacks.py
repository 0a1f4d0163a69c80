"""Asks a consumer where its threads are: `pxrs stack`. The coordinator is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster.actor_process import Whereabouts, whereabouts
from pxrs_ray.actors.cluster.named_actors import actors_named, find_actor
from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.status.stacks import ConsumerStacks, stacks_of_text
from pxrs_ray.suggest import did_you_mean
from pxrs_ray.supervision.restart_rules import first_line

if TYPE_CHECKING:
    from pxrs_ray.model import MemberId

ANSWER_S = 2.0
OUTSIDE_S = 10.0


def consumer_stacks(topology: str, consumer: str, wait_s: float = ANSWER_S) -> ConsumerStacks:
    """The stacks of `consumer`: GROUP/CONSUMER, or its own name where only one group has it.

    Raises NotFound naming the nearest, UsageError where several have the name.
    """
    group, member, actor = _found(topology, consumer)
    handle, place = find_actor(actor), whereabouts(actor)
    if handle is None or place is None:
        raise NotFound(f"{group}/{member} has just ended: `pxrs status {group}` says more")
    try:
        calls, threads = ray.get(handle.stacks.remote(), timeout=wait_s)
    except GetTimeoutError:
        return _from_outside(topology, group, member, place)
    except RayActorError as error:
        raise NotFound(f"{group}/{member} has just ended: {first_line(error)}") from None
    return ConsumerStacks(topology, group, member, place.pid, place.node, calls, threads)


def ray_page(topology: str, consumer: str) -> str:
    """The page of the consumer in Ray's dashboard, which has its logs; '' where none runs."""
    from ray._private.worker import get_dashboard_url

    handle = find_actor(_found(topology, consumer)[2])
    place = get_dashboard_url()  # type: ignore[no-untyped-call]
    if handle is None or not place:
        return ""
    return f"http://{place.removeprefix('http://')}/#/actors/{handle._actor_id.hex()}"


def _found(topology: str, consumer: str) -> tuple[str, MemberId, str]:
    """The group, the consumer and the actor of its newest incarnation."""
    begin = f"{names.prefix(topology)}consumer/"
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for actor in actors_named(begin):
        group, member, number = actor.removeprefix(begin).split("/")
        newest[group, member] = max(newest.get((group, member), (0, "")), (int(number), actor))
    wanted = [
        (group, member) for group, member in newest if consumer in (member, f"{group}/{member}")
    ]
    if len(wanted) > 1:
        told = ", ".join(f"{group}/{member}" for group, member in wanted)
        raise UsageError(f"several groups have a consumer {consumer!r}: say one of {told}")
    if not wanted:
        known = [f"{group}/{member}" for group, member in newest]
        hint = did_you_mean(consumer, known) if known else "none runs"
        raise NotFound(f"no consumer {consumer!r} of {topology}; {hint}")
    group, member = wanted[0]
    return group, member, newest[group, member][1]


def _from_outside(
    topology: str, group: str, member: MemberId, place: Whereabouts
) -> ConsumerStacks:
    """Have another process of its node look."""
    from pxrs_ray.actors.consumer.stack_teller import stacks_from_outside

    there = NodeAffinitySchedulingStrategy(place.node, soft=False)
    task: Any = ray.remote(stacks_from_outside).options(
        num_cpus=0, max_retries=0, scheduling_strategy=there, runtime_env={}
    )
    try:
        told, text = ray.get(task.remote(place.pid, place.kind), timeout=OUTSIDE_S)
    except RayError as error:
        told, text = f"its node does not answer either: {first_line(error)}", ""
    note = f"it does not answer: {told}; `pxrs restart {group}/{member} -t {topology}` replaces it"
    threads = tuple(stacks_of_text(text))
    return ConsumerStacks(topology, group, member, place.pid, place.node, (), threads, note)
