"""`pxrs restart`: replaces a process."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, TopologyName


def command(
    part: Annotated[
        str,
        typer.Argument(
            help="coordinator, buffer/NUMBER or GROUP/CONSUMER, as `pxrs doctor` names it.",
            show_default=False,
        ),
    ],
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """End the process of PART, frozen or not, and start it anew. Nothing is lost."""
    from pxrs_ray.actors import names
    from pxrs_ray.actors.cluster.actor_process import end_actor, wait_for_another
    from pxrs_ray.actors.cluster.named_actors import actors_of, not_running
    from pxrs_ray.cli._ray import connect, name_of
    from pxrs_ray.cli._show import answer
    from pxrs_ray.errors import UsageError

    kind, _, which = part.partition("/")
    if part != "coordinator" and not which:
        raise UsageError(
            f"restart what? coordinator, buffer/NUMBER or GROUP/CONSUMER, not {part!r}"
        )
    connect()
    name = name_of(topology)
    if not actors_of(name):
        raise not_running(name)
    if part == "coordinator":
        actor = names.coordinator(name)
    elif kind == "buffer" and which.isdigit():
        actor = _buffer(name, int(which))
    else:
        _restart_consumer(name, kind, which)
        answer({"restarted": part}, as_json, lambda: f"{part} is started anew")
        return
    before = end_actor(actor)
    after = wait_for_another(actor, before)
    told = {"restarted": part, "ended_pid": before.pid, "pid": after.pid, "node": after.node}
    answer(told, as_json, lambda: f"{part}: {before} is ended, it runs as {after}")


def _buffer(topology: str, index: int) -> str:
    """The actor that serves a buffer. Where it has replicas, another one leads first, if it can:
    then nobody waits for this one."""
    from pxrs_ray.actors import names
    from pxrs_ray.actors.client.topology import attach
    from pxrs_ray.actors.cluster.named_actors import find_actor
    from pxrs_ray.cli._ray import ALIVE_WAIT_S
    from pxrs_ray.errors import NotFound, UsageError

    alone = names.buffer(topology, index)
    if find_actor(alone) is not None:
        return alone
    found = attach(topology, timeout_s=ALIVE_WAIT_S)
    place = next((each for each in found.status().places if each.buffer == index), None)
    if place is None:
        raise NotFound(f"there is no buffer {index}: `pxrs status` lists those that there are")
    if not place.replicas:
        return alone
    try:
        return found.hand_over(index)
    except UsageError:
        return names.replica(topology, index, place.disk)


def _restart_consumer(topology: str, group: str, member: str) -> None:
    from pxrs_ray.actors.client.topology import attach
    from pxrs_ray.cli._ray import ALIVE_WAIT_S

    attach(topology, timeout_s=ALIVE_WAIT_S).group(group).restart_consumer(member)
