"""`pxrs dashboard`: the live page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pxrs_ray.cli._options import TopologyName
from pxrs_ray.errors import UsageError

if TYPE_CHECKING:
    from pxrs_ray.actors.client.topology import Topology
    from pxrs_ray.dashboard.page_state import PageState
    from pxrs_ray.model import Change

# Two rebalances of some thousand partitions: fewer would tell a part of one as the whole.
CHANGES_MAX = 10_000


def command(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; 0 picks a free one.")
    ] = 8268,
    token: Annotated[
        str,
        typer.Option(
            envvar="PXRS_DASHBOARD_TOKEN",
            help="The token that requests must carry; default: a new one, printed with the link.",
        ),
    ] = "",
    interval_s: Annotated[float, typer.Option("--interval", min=0.1)] = 1.0,
    topology: TopologyName = None,
) -> None:
    """Serve a live page of the topology: partitions, lag, rates, rebalances, and buttons to act."""
    import secrets
    import socket

    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import say
    from pxrs_ray.extras import extra

    with extra("default", "the live page"):
        from aiohttp import web

        from pxrs_ray.dashboard.server import Server

    found = running(topology)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error}; choose another --port"
        ) from None
    shown = f"[{host}]" if ":" in host else host
    port = listening.getsockname()[1]
    # One that was given is known to whoever gave it, and may not stand in a log.
    told = "..." if token else (token := secrets.token_urlsafe(24))
    say(f"http://{shown}:{port}/?token={told} shows {found.name}; Ctrl-C ends", flush=True)
    web.run_app(
        Server(RaySource(found), token, interval_s).app(),
        sock=listening,
        print=None,
        access_log=None,
    )


class RaySource:
    """A running topology in the form that the page needs."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._seen: dict[str, int] = {}

    def look(self) -> PageState:
        """The topology now, and what changed since the last look."""
        from pxrs_ray.actors.client.group import Group
        from pxrs_ray.dashboard.page_state import PageState

        status = self._topology.status()
        changes: dict[str, tuple[Change, ...]] = {}
        for group in status.groups:
            seen = self._seen.get(group.group, max(0, group.version - CHANGES_MAX))
            if group.version > seen:
                name = group.group
                changes[name] = Group(status.topology, name).history(seen, CHANGES_MAX).changes
                self._seen[name] = max((c.version for c in changes[name]), default=seen)
        return PageState(status, self._topology.buffer_stats(), changes)

    def act(self, action: str, group: str, value: Any) -> str:
        """Carry out an action on a group."""
        from pxrs_ray.actors.client.group import Group
        from pxrs_ray.cli.seek import place

        found = Group(self._topology.name, group)
        if action == "scale":
            if not isinstance(value, int):
                raise UsageError("scale takes a number of consumers")
            found.scale(value)
            return f"{group} has {value} consumers"
        if action == "seek":
            try:
                moved = found.seek(place(str(value)))
            except typer.BadParameter as error:
                raise UsageError(str(error)) from None
            return f"{len(moved)} partitions of {group} were moved to {value}"
        if action == "pause":
            found.pause()
            return f"{group} is paused"
        found.resume()
        return f"{group} goes on"
