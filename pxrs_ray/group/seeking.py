"""How a running group is sought, step by step. Pure.

Rules of this file. What is asked again moves nothing further: a shift counts from the checkpoints
that its caller was shown, wherever the group has come since. A plan reads the checkpoints before
the logs, so that no message is in neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.errors import DeadlineExceeded, NotFound
from pxrs_ray.group.seek_plan import LogBounds, PartitionSeek, SeekPlan, Sought, seek_offset
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.steps import Do, Steps, do


@dataclass(frozen=True, slots=True)
class SoughtGroup:
    """A group by its full name, of a queue with so many partitions."""

    group: str
    queue: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ReadCheckpoints(Do[Mapping[PartitionId, Offset]]):
    """Read the checkpoint of each partition."""


@dataclass(frozen=True, slots=True)
class ReadBounds(Do[Mapping[PartitionId, LogBounds]]):
    """Read where the logs begin and end, of those that tell."""


@dataclass(frozen=True, slots=True)
class ReadTimes(Do[Mapping[PartitionId, Offset]]):
    """Read the first offset of each log that is not older than this."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class MoveCheckpoints(Do[None]):
    """Have these decided and durable; `told` says why, in the history."""

    offsets: Mapping[PartitionId, Offset]
    told: str


@dataclass(frozen=True, slots=True)
class AwaitMoved(Do[None]):
    """Return when running partitions are handed back and moved. Raises DeadlineExceeded."""

    offsets: Mapping[PartitionId, Offset]


def plan_steps(of: SoughtGroup, sought: Sought) -> Steps[SeekPlan]:
    """What a seek would do now. Raises NotFound, UsageError, and DeadlineExceeded while a buffer
    that must say where its log ends is away."""
    checkpoints = yield from do(ReadCheckpoints())
    bounds = yield from do(ReadBounds())
    wanted = sought.wanted(of.partitions)
    for partition in wanted:
        if not 0 <= partition < of.partitions:
            raise NotFound(
                f"queue {of.queue} has partitions 0 to {of.partitions - 1}, not {partition}"
            )
        if partition not in bounds:
            raise DeadlineExceeded(f"the buffer of partition {partition} does not answer now")
    times = (yield from do(ReadTimes(sought.value))) if sought.kind == "time" else {}
    rows = []
    for partition in wanted:
        checkpoint = checkpoints[partition]
        begins = (sought.begins or checkpoints).get(partition, checkpoint)
        offset = seek_offset(sought, partition, bounds[partition], begins, times)
        rows.append(PartitionSeek(partition, checkpoint, offset))
    return SeekPlan(of.group, tuple(rows))


def seek_steps(of: SoughtGroup, sought: Sought) -> Steps[dict[PartitionId, Offset]]:
    """Move checkpoints while running; answers the position of each partition afterwards."""
    plan = yield from plan_steps(of, sought)
    offsets = {row.partition: row.offset for row in plan.rows}
    yield from do(MoveCheckpoints(offsets, sought.told()))
    yield from do(AwaitMoved(offsets))
    return offsets
