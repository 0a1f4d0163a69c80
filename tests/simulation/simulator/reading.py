"""What a fetch has brought, as the member's machine takes it: see `Fetcher`."""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.consumer.member_effects import PartRead, PartRefused
from pxrs_ray.data.protocol import Fetched, ReadPosition, Refused
from pxrs_ray.errors import BufferAway, LeaseOver
from pxrs_ray.model import PartitionId
from tests.simulation.simulator.frames import lines_in, rows_of


def part_of(
    part: Fetched | Refused, positions: Mapping[PartitionId, ReadPosition]
) -> PartRead | PartRefused:
    """What came of one partition, decoded."""
    if isinstance(part, Refused):
        away = isinstance(part.error, BufferAway | LeaseOver)
        return PartRefused(part.partition, part.error, away, part.start_offset)
    rows = rows_of(lines_in(part.chunks, positions[part.partition][1]))
    return PartRead(part.partition, rows, part.next_offset, sum(map(len, rows)))
