"""The document of the topology that keeps how far the moves of a queue's tenants are."""

from __future__ import annotations

from pxrs_ray.codec import json_codec
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.tenants.migration import Phase
from pxrs_ray.tenants.profile import TenantProfile


@dataclass(frozen=True, slots=True)
class KeptMove:
    """How far one tenant's move is. Which producers follow it is not kept, but asked anew."""

    phase: Phase
    version: int
    barrier: dict[PartitionId, Offset]
    profile: TenantProfile


TENANTS = json_codec("topology: tenants", dict[str, KeptMove])
# Who may have messages of them under way.
PRODUCERS = json_codec("topology: producers of tenants", list[str])
