"""`pxrs accept-loss`: resumes logs after a loss."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, PartitionsOption, TopologyName
from pxrs_ray.cli._removal import Yes, confirm
from pxrs_ray.errors import UsageError


def command(
    queue: Annotated[
        str | None, typer.Argument(help="The queue whose logs lost data.", show_default=False)
    ] = None,
    partition: PartitionsOption = None,
    buffer: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Give up the disk of this buffer, whose host is away; it starts on another one.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Resume logs of QUEUE that lost data, skipping the lost offsets. This cannot be undone.

    With --buffer, give up a host that does not come back, with its disk: its
    logs are lost, and lost_log_policy says what happens to them.
    """
    if (queue is None) == (buffer is None):
        raise UsageError("say either a QUEUE whose logs are halted, or --buffer N")
    if buffer is not None:
        _give_up(buffer, topology, yes=yes, as_json=as_json)
        return
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.rendering import Table

    found = running(topology)
    from pxrs_ray.actors.client.accept_loss import accept_losses, lost_logs

    lost = lost_logs(found, str(queue), partition or ())
    if lost and not yes:
        those = ", ".join(f"P{each}" for each in lost)
        refused = f"no loss of {queue} was accepted ({those} is halted): say --yes"
        confirm(f"Skip for ever what {those} of {queue} has lost?", refused)
    ends = accept_losses(found, str(queue), partition or ())
    rows = [(f"P{p}", end.state, end.start_offset, end.end_offset) for p, end in ends.items()]
    answer(ends, as_json, lambda: Table(("partition", "state", "begins", "ends"), rows))


def _give_up(buffer: int, topology: str | None, *, yes: bool, as_json: bool) -> None:
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer, say

    found = steady(topology)
    lost = found.plan_buffer_loss(buffer)
    if not yes:
        say(lost, error=True)
        typer.confirm("Give it up?", abort=True, err=True)
    found.accept_buffer_loss(buffer)
    answer(
        {"topology": found.name, "buffer": buffer, "lost": lost},
        as_json,
        lambda: f"buffer {buffer} begins elsewhere as soon as nobody can serve from its old disk",
    )
