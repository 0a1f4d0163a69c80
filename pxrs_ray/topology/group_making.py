"""How a new group is made: its rows, where it begins, its first epochs, step by step. Pure.

Rules of this file. A group is new until the topology's list of groups names it; until then nobody
can be a member of it. A creation that was cut off leaves records in the registry; the next one sets
them to where the group shall begin now. So creating it again is creating it once. No epoch that a
log has seen, and none of a removed group, is given out again. The configuration that names the
group is durable before the list does.
"""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Generation, Offset, PartitionId, PartitionRow
from pxrs_ray.steps import Do, Steps, do

# States of a log in which its end is what it says.
KNOWN = ("open", "lost")


@dataclass(frozen=True, slots=True)
class Floor:
    """Epochs and generations up to these were given out under names of groups that are gone."""

    epoch: Epoch = 0
    generation: Generation = 0


@dataclass(frozen=True, slots=True)
class NewGroup:
    """What is to be made: a group by its full name, of a queue with so many partitions."""

    group: str
    queue: str
    partitions: int
    at_end: bool
    floor: Floor


@dataclass(frozen=True, slots=True)
class ReadEnds(Do[Mapping[PartitionId, LogEnds]]):
    """Read where the logs of the queue end, of those that tell."""


@dataclass(frozen=True, slots=True)
class ReadFences(Do[Mapping[PartitionId, Epoch]]):
    """Read the highest epochs of this group that the logs have seen. Raises where one is away."""


@dataclass(frozen=True, slots=True)
class MakeRows(Do[None]):
    """Write the rows of the group, all or none; what is there already stays."""

    rows: Mapping[PartitionId, PartitionRow]
    generation: Generation


@dataclass(frozen=True, slots=True)
class Found:
    """A group as it is led: its rows, and whether it has members."""

    rows: tuple[PartitionRow, ...]
    has_members: bool


@dataclass(frozen=True, slots=True)
class LeadGroup(Do[Found]):
    """Take the group's next generation, and go on from what the registry holds."""


@dataclass(frozen=True, slots=True)
class MoveTo(Do[None]):
    """Set the checkpoints of the group, durably."""

    offsets: Mapping[PartitionId, Offset]


@dataclass(frozen=True, slots=True)
class RaiseTo(Do[None]):
    """Raise the epochs of the group, durably."""

    epochs: Mapping[PartitionId, Epoch]


@dataclass(frozen=True, slots=True)
class KeepConfig(Do[None]):
    """Have the configuration durable that names the group."""


@dataclass(frozen=True, slots=True)
class ListGroup(Do[None]):
    """Have the list of groups durable that names the group: it is there from now on."""


@dataclass(frozen=True, slots=True)
class GoOn(Do[None]):
    """Register the group with the logs, and begin what it does on the side."""


def make_group(new: NewGroup) -> Steps[None]:
    """Make a group that the topology's list does not name. Raises DeadlineExceeded when a buffer
    does not tell what is needed: half a start position is none."""
    starts = _starts(new, (yield from do(ReadEnds()))) if new.at_end else {}
    fences = yield from do(ReadFences())
    rows = first_rows(new, starts, fences)
    yield from do(MakeRows(rows, new.floor.generation))
    found = yield from do(LeadGroup())
    yield from _settle(rows, found)
    yield from do(KeepConfig())
    yield from do(ListGroup())
    yield from do(GoOn())


def first_rows(
    new: NewGroup, starts: Mapping[PartitionId, Offset], fences: Mapping[PartitionId, Epoch]
) -> dict[PartitionId, PartitionRow]:
    """The rows that a new group begins with."""
    rows = {}
    for partition in range(new.partitions):
        checkpoint = starts.get(partition, 0)
        over = max(new.floor.epoch, fences.get(partition, 0))
        epoch = over + 1 if over or checkpoint else 0
        rows[partition] = PartitionRow(partition, epoch=epoch, checkpoint=checkpoint)
    return rows


def _starts(new: NewGroup, ends: Mapping[PartitionId, LogEnds]) -> dict[PartitionId, Offset]:
    missing = [p for p in range(new.partitions) if p not in ends or ends[p].state not in KNOWN]
    if missing:
        raise DeadlineExceeded(
            f"group {new.group} begins at the end of {new.queue}, and the log of partition "
            f"{missing[0]} does not tell where that is; nothing was made: try again"
        )
    return {p: end.end_offset for p, end in ends.items()}


def _settle(rows: Mapping[PartitionId, PartitionRow], found: Found) -> Steps[None]:
    """Bring what a former try left to where the group begins now.

    A group that has members is none of those: it was begun by another coordinator, and stays.
    """
    if found.has_members or any(row.owner is not None for row in found.rows):
        return
    there = {row.partition: row for row in found.rows}
    moved = {p: r.checkpoint for p, r in rows.items() if there[p].checkpoint != r.checkpoint}
    if moved:
        yield from do(MoveTo(moved))
    low = {p: row.epoch for p, row in rows.items() if there[p].epoch < row.epoch}
    if low:
        yield from do(RaiseTo(low))
