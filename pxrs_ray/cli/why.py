"""`pxrs why`: the chain of causes that led to a partition's present owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson, Partition, TopologyName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pxrs_ray.model import Change
    from pxrs_ray.status.answers import GroupStatus, PartitionStatus

LOOK_BACK = 10_000


def command(
    partition: Partition,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="The consumer group; needed where there are several."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show this many of the newest changes.")
    ] = 10,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show who owns a partition now, since when, and the causes of every change before."""
    from pxrs_ray.cli._ray import only_group, running
    from pxrs_ray.cli._show import answer
    from pxrs_ray.errors import NotFound

    found = running(topology)
    name = only_group(found, group)
    status = found.group(name).status()
    if partition >= len(status.partitions):
        raise NotFound(f"{name} has partitions 0 to {len(status.partitions) - 1}, not {partition}")
    changes = found.group(name).history(max(0, status.version - LOOK_BACK), LOOK_BACK)
    chain = chain_of(partition, changes)[-limit:]
    now = status.partitions[partition]
    answer(
        {"group": name, "now": now, "changes": chain},
        as_json,
        lambda: "\n".join([now_line(status, now), *map(change_line, chain)]),
    )


def chain_of(partition: int, changes: Iterable[Change]) -> list[Change]:
    """The partition's changes, and those of the members that had it, oldest first."""
    every = list(changes)
    owners = {c.owner for c in every if c.partition == partition and c.owner}
    return [
        c
        for c in every
        if c.partition == partition or (c.partition < 0 and (c.owner in owners or c.kind == "led"))
    ]


def now_line(group: GroupStatus, now: PartitionStatus) -> str:
    """Where the partition is now."""
    from pxrs_ray.status.problems import partition_problem

    held = f"is owned by {now.owner}" if now.owner else "has no owner"
    lag = "an unknown lag" if now.lag is None else f"a lag of {now.lag:,}"
    wrong = partition_problem(group, now)
    problem = f"; {wrong.severity.upper()}: {wrong.text}" if wrong else ""
    return (
        f"P{now.partition} of {group.group} {held} ({now.phase}), epoch {now.epoch}, checkpoint "
        f"{now.checkpoint}, {lag}{problem}"
    )


def change_line(change: Change) -> str:
    """One change as a sentence."""
    from pxrs_ray.status.units import clock_text

    who = f"{change.owner}#{change.incarnation}"
    what = {
        "claim": f"given to {who} at offset {change.checkpoint}, under epoch {change.epoch}",
        "release": f"taken from {who} at offset {change.checkpoint}, epoch is now {change.epoch}",
        "reset": f"moved to offset {change.checkpoint}, epoch is now {change.epoch}",
        "joined": f"{who} joined",
        "left": f"{who} is no member any more",
        "led": f"a coordinator took over (generation {change.epoch})",
    }.get(change.kind, change.kind)
    because = f", because: {change.cause}" if change.cause else ""
    return f"  {clock_text(change.at_ms)}  v{change.version}  {what}{because}"
