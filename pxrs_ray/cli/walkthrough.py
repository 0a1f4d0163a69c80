"""`pxrs walkthrough`: what PXRS is, in ten steps that can be watched."""

from __future__ import annotations

import logging
import tempfile
import uuid
from pathlib import Path
from typing import Annotated

import typer

from pxrs_ray.errors import UsageError

QUIET = logging.ERROR
LOCAL_ETCD = "etcd://localhost:2379/"


def command(
    partitions: Annotated[int, typer.Argument(min=1, max=1_024)] = 8,
    etcd: Annotated[
        bool, typer.Option("--etcd", help=f"Keep the registry in {LOCAL_ETCD}.")
    ] = False,
    store: Annotated[str, typer.Option(help="Keep the registry here.")] = "",
) -> None:
    """Watch three consumers share partitions, one leave, and the others go on where it was."""
    import ray

    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import console

    try:
        connect()
    except UsageError:
        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )
    from pxrs_ray.actors.walkthrough import walk_through

    name = f"walkthrough-{uuid.uuid4().hex[:6]}"
    chosen = store or (LOCAL_ETCD if etcd else "")
    out = console()
    with tempfile.TemporaryDirectory(prefix="pxrs-") as folder:
        walk_through(
            name, partitions, chosen, Path(folder), lambda what: out.print(str(what), markup=False)
        )
