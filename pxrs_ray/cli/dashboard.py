"""`pxrs dashboard`: the live page."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import TopologyName
from pxrs_ray.errors import NotFound, UsageError

# How long pages that are open may take to hear that the server ends.
END_WAIT_S = 0.5


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
    """Serve a live page of every topology that runs, or of one: partitions, lag, rates, rebalances,
    and buttons to act."""
    import secrets
    import socket

    from pxrs_ray.cli._page_source import RaySources
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import say
    from pxrs_ray.extras import extra

    with extra("default", "the live page"):
        from aiohttp import web

        from pxrs_ray.dashboard.server import Server

    connect()
    sources = RaySources(topology)
    names = [] if topology is not None else sources.names()
    if topology is not None:
        sources.of(topology).check()
    elif not names:
        raise NotFound("no topology runs in this cluster: `pxrs up FILE` starts one")
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
    shows = topology or ", ".join(names)
    told = "..." if token else (token := secrets.token_urlsafe(24))
    say(f"http://{shown}:{port}/?token={told} shows {shows}; Ctrl-C ends", flush=True)
    web.run_app(
        Server(sources, token, interval_s).app(),
        sock=listening,
        print=None,
        access_log=None,
        shutdown_timeout=END_WAIT_S,
    )
