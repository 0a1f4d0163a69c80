"""Decides which of a log's oldest parts may be dropped. Pure: takes the time, answers a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.model import Offset


class Part(NamedTuple):
    """A droppable unit of a log: a sealed segment, or a frame in memory."""

    end_offset: Offset
    bytes: int
    timestamp_max_ms: int


def droppable(
    parts: Sequence[Part],
    total_bytes: int,
    room_bytes: int,
    limits: LogLimits,
    passed: Offset | None,
    now_ms: int,
) -> int:
    """How many of `parts`, from the oldest on, retention lets go.

    `total_bytes` is what the log holds, `room_bytes` what is about to be added. `passed` is the
    lowest checkpoint of all known groups; None when no group is known, and then nothing is
    unread, but `retention_passed` and a full partition drop nothing either.
    """
    count = 0
    for part in parts:
        all_passed = passed is not None and part.end_offset <= passed
        full = total_bytes + room_bytes > limits.passed_bytes_max
        too_old = (
            limits.retention_ms is not None and part.timestamp_max_ms < now_ms - limits.retention_ms
        )
        too_much = limits.retention_bytes is not None and total_bytes > limits.retention_bytes
        unneeded = all_passed and (limits.retention_passed or full)
        may_go = passed is None or all_passed or limits.drop_unread
        if not (unneeded or ((too_old or too_much) and may_go)):
            break
        count += 1
        total_bytes -= part.bytes
    return count
