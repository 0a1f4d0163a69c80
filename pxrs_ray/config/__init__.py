"""Every option of a topology, in one place, checked when it is made.

    PxrsConfig(name="payments", queues={"payments": QueueConfig(partitions=8)})
    PxrsConfig.from_toml("payments.toml", num_partitions=32)

Keyword arguments go before `PXRS_` environment variables, those before the TOML file, and that
before the defaults. A wrong value or an unknown name raises ConfigError with every problem at
once; nothing half-right is ever made. Configurations are frozen, picklable and comparable.
"""

from __future__ import annotations

from pxrs_ray.config.diff import Difference as Difference
from pxrs_ray.config.options import GroupConfig as GroupConfig
from pxrs_ray.config.processing_modes import ByKey as ByKey
from pxrs_ray.config.processing_modes import Ordered as Ordered
from pxrs_ray.config.processing_modes import Packs as Packs
from pxrs_ray.config.queue_options import QueueConfig as QueueConfig
from pxrs_ray.config.topology import PxrsConfig as PxrsConfig

__all__ = [
    "ByKey",
    "Difference",
    "GroupConfig",
    "Ordered",
    "Packs",
    "PxrsConfig",
    "QueueConfig",
]
