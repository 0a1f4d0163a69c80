"""What is kept of a queue's tenants that move: a document of the topology."""

from __future__ import annotations

from dataclasses import dataclass

from pxrs_ray.codec import json_codec
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.tenants.migration import Phase
from pxrs_ray.tenants.profile import TenantProfile


@dataclass(frozen=True, slots=True)
class KeptMove:
    """How far one tenant's move is; who follows it is asked anew."""

    phase: Phase
    version: int
    barrier: dict[PartitionId, Offset]
    profile: TenantProfile


TENANTS = json_codec("topology: tenants", dict[str, KeptMove])
# Who may have messages of them under way.
PRODUCERS = json_codec("topology: producers of tenants", list[str])
