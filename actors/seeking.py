"""What offset a seek means for one partition."""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.errors import UsageError
from pxrs_ray.log.wire import LogEnds
from pxrs_ray.model import Offset, PartitionId


def seek_offset(kind: str, value: int, end: LogEnds, times: Mapping[PartitionId, Offset]) -> Offset:
    """The offset that seeking to `kind` and `value` leads to; UsageError outside of the log."""
    match kind:
        case "start":
            return end.start_offset
        case "end":
            return end.end_offset
        case "time":
            return times[end.partition]
        case "offset" if end.start_offset <= value <= end.end_offset:
            return value
        case "offset":
            raise UsageError(
                f"cannot seek partition {end.partition} to offset {value}: its log holds "
                f"{end.start_offset} to {end.end_offset}"
            )
        case _:
            raise UsageError(f"seek to 'start', 'end', 'time' or 'offset', not {kind!r}")
