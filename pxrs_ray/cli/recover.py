"""`pxrs recover`: continues after a loss that an operator has to accept."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, File
from pxrs_ray.errors import UsageError

app = typer.Typer(
    help="Continue after a loss that an operator has to accept.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def recover() -> None:
    """Continue after a loss that an operator has to accept."""


@app.command()
def registry(
    file: File,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Accept the loss: messages may be delivered again."),
    ] = False,
    host: Annotated[
        str,
        typer.Option(
            help="Where several hosts have a registry: use that of the host with this address. "
            "The files of the others are renamed.",
            show_default=False,
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Let the topology of FILE continue with a registry that has lost accepted writes.

    For a registry that was restored from a backup or emptied, or whose server
    lost its last second. Checkpoints stay as the registry has them: messages
    after them are delivered again. Epochs are raised above every one that was
    ever given out, so that consumers from before the loss are refused.
    """
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import answer
    from pxrs_ray.config import PxrsConfig
    from pxrs_ray.status.rendering import Table

    config = PxrsConfig.from_toml(file)
    if not accept_loss:
        raise UsageError(
            "messages are delivered again from the registry's older checkpoints, and groups that "
            "it does not know begin anew: say --accept-loss, and it is done"
        )
    connect()
    from pxrs_ray.actors.client.topology import recover_registry

    found = recover_registry(config, accept_loss=accept_loss, host=host)
    rows = [(n, len(one.epochs), sum(one.repeated.values())) for n, one in sorted(found.items())]
    head = ("group", "partitions granted above lost epochs", "messages delivered again, at least")
    answer(found, as_json, lambda: Table(head, rows))
