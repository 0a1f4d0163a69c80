"""`pxrs group`: commands on whole consumer groups."""

from __future__ import annotations

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName
from pxrs_ray.cli._removal import Force, Yes, remove

app = typer.Typer(
    help="Commands on whole consumer groups.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.callback()
def group_() -> None:
    """Commands on whole consumer groups."""


@app.command()
def delete(
    group: GroupName,
    yes: Yes = False,
    force: Force = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Remove GROUP with its checkpoints and history. Retention no longer waits for it.

    With --force also while consumers run: they are ended first.
    """
    from pxrs_ray.cli._ray import steady

    found = steady(topology)
    removal = found.plan_group_removal(group)
    carry_out = lambda: found.delete_group(group, force=force)  # noqa: E731
    remove(removal, carry_out, yes=yes, force=force, as_json=as_json)
