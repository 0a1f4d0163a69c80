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

    connect()
    name = name_of(topology)
    if not actors_of(name):
        raise not_running(name)
    kind, _, which = part.partition("/")
    if part == "coordinator":
        actor = names.coordinator(name)
    elif kind == "buffer" and which.isdigit():
        actor = names.buffer(name, int(which))
    elif which:
        _restart_consumer(name, kind, which)
        answer({"restarted": part}, as_json, lambda: f"{part} is started anew")
        return
    else:
        raise UsageError(
            f"restart what? coordinator, buffer/NUMBER or GROUP/CONSUMER, not {part!r}"
        )
    before = end_actor(actor)
    after = wait_for_another(actor, before)
    told = {"restarted": part, "ended_pid": before.pid, "pid": after.pid, "node": after.node}
    answer(told, as_json, lambda: f"{part}: {before} is ended, it runs as {after}")


def _restart_consumer(topology: str, group: str, member: str) -> None:
    from pxrs_ray.actors.client.topology import attach
    from pxrs_ray.cli._ray import ALIVE_WAIT_S

    attach(topology, timeout_s=ALIVE_WAIT_S).group(group).restart_consumer(member)
