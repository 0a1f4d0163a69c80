"""`pxrs up`: makes the cluster match a topology file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson, File
from pxrs_ray.errors import UsageError

if TYPE_CHECKING:
    from pxrs_ray.config import PxrsConfig


def command(
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the changes.")] = False,
    working_dir: Annotated[
        str | None,
        typer.Option(
            help="The folder that handlers are imported from; it is copied to every node. Default: "
            "this folder, when a handler is in it. A submitted job brings its own.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the topology of FILE, or change the running one to match FILE.

    It lists the changes before it makes them. Repeating it changes nothing.
    """
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import console, print_json
    from pxrs_ray.config import PxrsConfig
    from pxrs_ray.store import check_url

    config = PxrsConfig.from_toml(file)
    check_url(config.store_url)
    connect(_there(working_dir) or folder_of_handlers(config))
    from pxrs_ray.actors.client.deployment import Deployment

    deployment = Deployment.of(file)
    changes, stays = deployment.changes(), deployment.stays()
    out = console()
    if not as_json:
        for line in changes:
            out.print(("would " if dry_run else "") + line, markup=False)
        for line in stays:
            out.print(line, markup=False)
    if not dry_run:
        deployment.carry_out()
    if as_json:
        print_json(
            {
                "topology": config.name,
                "changes": changes,
                "stays": stays,
                "dry_run": dry_run,
                "not_started": deployment.late,
                "fingerprint": config.fingerprint(),
                "sha256": deployment.sha256,
            }
        )
        return
    if not dry_run and (remark := deployment.single_point()):
        out.print(remark, markup=False)
    for line in deployment.late:
        out.print(f"not started yet: {line}", markup=False)
    if not changes:
        out.print(f"{config.name} is as {file} says", markup=False)
    elif not dry_run:
        does = "is starting" if deployment.late else "runs"
        told = f"{config.name} {does}; see it with: pxrs status -t {config.name}"
        out.print(told, markup=False)


def _there(folder: str | None) -> str | None:
    """The same. Raises UsageError where it is no folder of this machine, nor one elsewhere."""
    if folder and "://" not in folder and not Path(folder).is_dir():
        raise UsageError(f"--working-dir {folder}: there is no such folder")
    return folder


def folder_of_handlers(config: PxrsConfig) -> str | None:
    """The present folder, when the module of a handler is in it."""
    here = Path.cwd()
    for group in config.groups.values():
        if group.handler is not None:
            top = group.handler.partition(":")[0].split(".")[0]
            if (here / f"{top}.py").is_file() or (here / top).is_dir():
                return str(here)
    return None
