"""`pxrs config`: commands on topology files. No Ray is needed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson, File

if TYPE_CHECKING:
    from pxrs_ray.config import PxrsConfig
    from pxrs_ray.status.rendering import View

app = typer.Typer(
    help="Check topology files. Ray is not needed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def config_() -> None:
    """Check topology files. Ray is not needed."""


@app.command()
def check(
    file: File,
    handlers: Annotated[
        bool,
        typer.Option(
            "--handlers/--no-handlers", help="Import the handlers too, and look at what they take."
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check FILE as `pxrs up` would, and show what it makes. Nothing is started or asked.

    Exit status 1: something is wrong with it, and one line says what and where.
    """
    from pxrs_ray.cli._show import answer
    from pxrs_ray.config import PxrsConfig
    from pxrs_ray.store import check_url

    config = PxrsConfig.from_toml(file)
    check_url(config.store_url)
    if handlers:
        _import_handlers(config)
    told = {
        "topology": config.name,
        "fingerprint": config.fingerprint(),
        "queues": {name: config.resolved_queue(name).partitions for name in config.queues},
        "groups": {name: config.resolved_group(name).queue for name in config.groups},
    }
    answer(told, as_json, lambda: _view(config, file))


def _import_handlers(config: PxrsConfig) -> None:
    """Raise HandlerError for a handler that consumers could not import, or not use."""
    from pxrs_ray.consumer.handler_shape import (
        check_fits,
        check_settings,
        check_shape,
        import_handler,
        wants_batches,
    )
    from pxrs_ray.errors import HandlerError

    if "" not in sys.path:
        sys.path.insert(0, "")  # as consumers do, whose working directory is the job's
    for name in config.groups:
        group = config.resolved_group(name)
        if group.handler is not None:
            try:
                found = import_handler(group.handler)
                check_shape(found)
                check_settings(found, group.settings, group.handler)
                check_fits(group.handler, wants_batches(found), group.processing.mode, name)
            except HandlerError as error:
                raise HandlerError(f"groups.{name}.handler: {error}") from error


def _view(config: PxrsConfig, file: str) -> View:
    from pxrs_ray.status.rendering import Line, Table, Tone, View

    queues = [(name, config.resolved_queue(name)) for name in config.queues]
    groups = [(name, config.resolved_group(name)) for name in config.groups]
    queue_rows = [(n, q.partitions, q.durability, q.source or "-") for n, q in queues]
    group_rows = [(n, g.queue, g.handler or "-", g.consumers, g.failure_policy) for n, g in groups]
    return View(
        [
            Table(("queue", "partitions", "durability", "source"), queue_rows),
            Table(("group", "queue", "handler", "consumers", "failure policy"), group_rows),
            Line(f"{file} is a sound topology: {config.name}", Tone.GOOD),
        ]
    )
