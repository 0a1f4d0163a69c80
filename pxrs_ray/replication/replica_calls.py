"""What a coordinator and the process of a replica say to each other.

Rules of this file. A coordinator asks; a replica answers at once, or holds the question until it
has something to ask itself. What an older coordinator says means nothing to who has heard a newer
one. A replica is whole while it has, open, every log of the queues that it was told of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pxrs_ray.data.protocol import BufferInfo
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.identity import Identity
from pxrs_ray.model import Epoch, Generation, Offset, PartitionId
from pxrs_ray.replication.placement import Disk, IsrChange, LeaderEpoch, Placement, ReplicaSeen


@dataclass(frozen=True, slots=True)
class ReplicaRules:
    """How the logs of a topology are replicated: see `leader_effects.ReplicationSettings`."""

    min_isr: int = 1
    synced_only: bool = False
    lag_max_ms: int = 1_000
    catch_up_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaTold:
    """What a coordinator tells a replica with each look at it.

    `placement` stands in the registry; None while the slot has none. `absent` are the replicas that
    are away, None while that is not known. `peers` are the handles of the others' processes.
    `queues` are those whose logs the slot has, by name, with their ids. Under `settled` the leader
    knows of every group what it has to know: it serves. The question may be held for `hold_ms`; it
    was asked at `asked_ms`, by the coordinator's steady clock. `min_isr` and `catch_up_bytes_per_s`
    are what the topology's configuration says now.
    """

    generation: Generation
    placement: Placement | None = None
    absent: frozenset[Disk] | None = None
    peers: Mapping[Disk, Any] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)
    settled: LeaderEpoch = 0
    hold_ms: int = 0
    asked_ms: int = 0
    min_isr: int = 1
    catch_up_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaAnswer:
    """What a replica answers: how it is, the epoch under which it leads (0: it does not), the
    queues of which it lacks a log, and the in-sync set that it asks for."""

    seen: ReplicaSeen
    leads: LeaderEpoch = 0
    missing: tuple[str, ...] = ()
    asks: IsrChange | None = None


@dataclass(frozen=True, slots=True)
class LeadFound:
    """What a coordinator has to know of a replica that is to serve: what its folder had noted, who
    it is, and, by queue and group, the highest epoch of a reader that each partition has seen."""

    noted: Identity
    info: BufferInfo
    fences: Mapping[tuple[str, str], Mapping[PartitionId, Epoch]]


@dataclass(frozen=True, slots=True)
class GroupKnown:
    """What a leader has to know of a group: which epochs its readers have, and how far it has
    come."""

    queue: str
    group: str
    epochs: Mapping[PartitionId, Epoch]
    checkpoints: Mapping[PartitionId, Offset]
