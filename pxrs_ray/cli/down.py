"""`pxrs down`: stops a topology, or removes it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, TopologyName
from pxrs_ray.cli._removal import Yes, confirm, remove
from pxrs_ray.errors import NotFound, StoreUnavailable, UsageError


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="The topology, or its file (*.toml); needed where several run."),
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Kill every actor at once, as a power cut would.")
    ] = False,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Remove the topology for ever: messages, checkpoints, folders."
        ),
    ] = False,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Drain and stop a whole topology. Messages and checkpoints stay for the next `pxrs up`.

    In a terminal it asks first, unless it is told which one. With --delete
    nothing stays: it lists what is removed, and always asks.
    """
    from pxrs_ray.cli._ray import connect, running, steady
    from pxrs_ray.cli._show import answer

    if name is not None and name.endswith(".toml"):
        from pxrs_ray.config import PxrsConfig

        name = PxrsConfig.from_toml(name).name
    name = name or topology
    if now and delete:
        raise UsageError(
            "--now keeps everything on disk, --delete removes it: give only one of them"
        )
    if delete:
        _delete(name, yes=yes, as_json=as_json)
        return
    if now and name:
        connect()
        from pxrs_ray.actors.client.topology import Topology, attach
        from pxrs_ray.actors.cluster.named_actors import actors_of

        found = Topology(name) if actors_of(name) else attach(name)
    elif now:
        found = running(name)
    else:
        try:
            found = steady(name)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{error}; `pxrs down --now` works without the registry"
            ) from None
    if name is None and not yes and sys.stdin.isatty():
        confirm(f"Stop topology {found.name}?", "")
    if now:
        found.kill()
    else:
        found.shutdown()
    answer({"topology": found.name, "down": True}, as_json, lambda: f"{found.name} is down")


def _delete(name: str | None, *, yes: bool, as_json: bool) -> None:
    from pxrs_ray.cli._ray import connect, running
    from pxrs_ray.topology.removal import Removal

    connect()
    from pxrs_ray.actors.client.topology import Topology
    from pxrs_ray.actors.cluster.named_actors import actors_of

    found = Topology(name) if name and actors_of(name) else running(name)
    try:
        removal = found.plan_removal()
    except NotFound:  # it was cut off before: what is left of it goes
        removal = Removal("topology", found.name, ("what an earlier --delete left",))
    remove(removal, found.delete, yes=yes, force=True, as_json=as_json)
