"""`pxrs init`: writes a commented topology file and a handler to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson
from pxrs_ray.errors import AlreadyExists

HANDLERS = "handlers.py"
OPS = ("alerts.yml", "grafana.json", "kuberay.yml")


def command(
    name: Annotated[str, typer.Argument(help="The topology's name.")] = "shop",
    folder: Annotated[Path, typer.Option(help="The folder to write into.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    ops: Annotated[
        bool,
        typer.Option(
            "--ops", help="Write alert rules, a Grafana board and a cluster for KubeRay as well."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write NAME.toml, with a comment on each option, and handlers.py with a handler to change."""
    from importlib.resources import files

    from pxrs_ray.cli._show import answer
    from pxrs_ray.config import PxrsConfig

    PxrsConfig(name=name)
    templates = files("pxrs_ray.cli") / "templates"
    texts = {
        folder / f"{name}.toml": (templates / "topology.toml").read_text().replace("NAME", name),
        folder / HANDLERS: (templates / "handlers.py.txt").read_text(),
    }
    if ops:
        texts |= {folder / each: (templates / "ops" / each).read_text() for each in OPS}
    there = [str(path) for path in texts if path.exists()]
    if there and not force:
        raise AlreadyExists(f"{', '.join(there)}: exists already; --force writes over it")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text)
    told = [str(path) for path in texts]
    # The folder that a command runs in is where handlers are imported from.
    place = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    wrote = f"wrote {', '.join(told[:-1])} and {told[-1]}"
    answer({"written": told}, as_json, lambda: f"{wrote}; next: {place}pxrs up {name}.toml")
