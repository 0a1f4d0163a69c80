"""`pxrs recover`: ways on after a loss that somebody has to accept."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, File

app = typer.Typer(
    help="Go on after a loss that somebody has to accept.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def recover() -> None:
    """Go on after a loss that somebody has to accept."""


@app.command()
def registry(
    file: File,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Yes: messages may be delivered again.")
    ] = False,
    host: Annotated[
        str,
        typer.Option(
            help="Where several hosts have one: go on with that of the host of this address. The "
            "files of the others are given other names.",
            show_default=False,
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Let the topology of FILE go on with a registry that has lost accepted writes.

    For a registry that was restored from a backup, emptied, or whose server forgot its last
    second. Checkpoints stay as the registry has them: what came after is delivered again. Epochs
    are raised above every one that was ever given out, so no late worker of the lost time counts.
    """
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import answer, table
    from pxrs_ray.config import PxrsConfig

    config = PxrsConfig.from_toml(file)
    connect()
    from pxrs_ray.actors.client.topology import recover_registry

    found = recover_registry(config, accept_loss=accept_loss, host=host)
    rows = [(n, len(one.epochs), sum(one.repeated.values())) for n, one in sorted(found.items())]
    head = ("group", "partitions granted above lost epochs", "messages delivered again, at least")
    answer(found, as_json, lambda: table(head, rows))
