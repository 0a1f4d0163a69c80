"""Which partition a message belongs to: hash functions and strategies, for keys and columns."""

from __future__ import annotations

from pxrs_ray.partitioning.grouping import HashQuality as HashQuality
from pxrs_ray.partitioning.grouping import group_by_partition as group_by_partition
from pxrs_ray.partitioning.grouping import quality as quality
from pxrs_ray.partitioning.hashes import HASHES as HASHES
from pxrs_ray.partitioning.hashes import SEED as SEED
from pxrs_ray.partitioning.hashes import Key as Key
from pxrs_ray.partitioning.hashes import hash_column as hash_column
from pxrs_ray.partitioning.hashes import hash_key as hash_key
from pxrs_ray.partitioning.hashes import key_bytes as key_bytes
from pxrs_ray.partitioning.partitioner import STRATEGIES as STRATEGIES
from pxrs_ray.partitioning.partitioner import Partitioner as Partitioner
from pxrs_ray.partitioning.spec import PartitioningSpec as PartitioningSpec
