"""`PartitioningSpec`: how a queue spreads its messages over its partitions, as plain data.

A `Partitioner` counts turns and belongs to one producer; a spec says how to make one in any
process.
"""

from __future__ import annotations

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Strategy
from pxrs_ray.partitioning.hashes import SEED
from pxrs_ray.partitioning.partitioner import Partitioner


@dataclass(frozen=True, slots=True)
class PartitioningSpec:
    """What `Partitioner` takes; `labels` are pairs of a label and its number of partitions."""

    partitions: int
    strategy: str = Strategy.MODULO
    hash_name: str = "xxh64"
    seed: int = SEED
    tenant_span: int = 1
    labels: tuple[tuple[str, int], ...] = ()

    def partitioner(self, turn: int = 0) -> Partitioner:
        """A partitioner whose keyless messages begin at `turn`. Raises UsageError, as that does."""
        return Partitioner(
            self.partitions,
            self.strategy,
            self.hash_name,
            self.seed,
            tenant_span=self.tenant_span,
            labels=dict(self.labels) or None,
            turn=turn,
        )
