"""`ConsumerInfo`: what a consumer reports of itself when a status is asked for."""

from __future__ import annotations

from dataclasses import field

from pxrs_ray.actors.consumer.worker import Failure
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Incarnation, MemberId, PartitionId
from pxrs_ray.status.answers import CallUnderWay, GivenUp, QuarantineSize


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer at one moment; `aside` is what its partitions have in quarantine."""

    member: MemberId
    incarnation: Incarnation
    pid: int
    node: str
    partitions: tuple[PartitionId, ...]
    processed: int
    failures: tuple[Failure, ...] = field(default=())
    given_up: tuple[GivenUp, ...] = field(default=())
    given_up_count: int = 0
    problem: str = ""
    calls: tuple[CallUnderWay, ...] = field(default=())
    aside: QuarantineSize = field(default_factory=QuarantineSize)
