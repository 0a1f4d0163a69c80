"""PXRS: a partitioned, consumer-group message queue inside a Ray cluster.

Rules of this file: it is the public surface of the core, and importing it is cheap. What costs
time to import (validation, Arrow, Ray) is loaded when its name is first used (PEP 562): `import
pxrs_ray` loads neither Ray nor Spark; `deploy` and `attach`, which live in `pxrs_ray.actors`, do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pxrs_ray.actors.client.group import Group as Group
    from pxrs_ray.actors.client.notifications import Notifications as Notifications
    from pxrs_ray.actors.client.notifications import partition_changes as partition_changes
    from pxrs_ray.actors.client.producer import Producer as Producer
    from pxrs_ray.actors.client.pull_consumer import PullConsumer as PullConsumer
    from pxrs_ray.actors.client.queue_reader import QueueReader as QueueReader
    from pxrs_ray.actors.client.replies import Replies as Replies
    from pxrs_ray.actors.client.topology import Topology as Topology
    from pxrs_ray.actors.client.topology import attach as attach
    from pxrs_ray.actors.client.topology import deploy as deploy
    from pxrs_ray.config import ByKey as ByKey
    from pxrs_ray.config import GroupConfig as GroupConfig
    from pxrs_ray.config import Ordered as Ordered
    from pxrs_ray.config import Packs as Packs
    from pxrs_ray.config import PxrsConfig as PxrsConfig
    from pxrs_ray.config import QueueConfig as QueueConfig
    from pxrs_ray.config.options import ScalingConfig as ScalingConfig
    from pxrs_ray.consumer.dead_letter import Letter as Letter
    from pxrs_ray.consumer.delivery import Context as Context
    from pxrs_ray.consumer.delivery import DeliveredBatch as DeliveredBatch
    from pxrs_ray.consumer.delivery import Delivery as Delivery
    from pxrs_ray.data.reply import Reply as Reply
    from pxrs_ray.errors import ConfigError as ConfigError
    from pxrs_ray.errors import DeadlineExceeded as DeadlineExceeded
    from pxrs_ray.errors import Fenced as Fenced
    from pxrs_ray.errors import HandlerError as HandlerError
    from pxrs_ray.errors import MessageTooLarge as MessageTooLarge
    from pxrs_ray.errors import NotFound as NotFound
    from pxrs_ray.errors import NotHeld as NotHeld
    from pxrs_ray.errors import PartitionFull as PartitionFull
    from pxrs_ray.errors import ProducerFenced as ProducerFenced
    from pxrs_ray.errors import PxrsError as PxrsError
    from pxrs_ray.errors import RegistryAway as RegistryAway
    from pxrs_ray.errors import RetryAfter as RetryAfter
    from pxrs_ray.errors import SinkConflict as SinkConflict
    from pxrs_ray.errors import StoreUnavailable as StoreUnavailable
    from pxrs_ray.errors import UsageError as UsageError
    from pxrs_ray.model import Message as Message
    from pxrs_ray.partitioning import quality as quality
    from pxrs_ray.producer.receipt import BatchReceipt as BatchReceipt
    from pxrs_ray.producer.receipt import Receipt as Receipt
    from pxrs_ray.sink import AsyncSinkCursor as AsyncSinkCursor
    from pxrs_ray.sink import SinkCursor as SinkCursor
    from pxrs_ray.status.answers import GroupStatus as GroupStatus
    from pxrs_ray.status.answers import TopologyStatus as TopologyStatus
    from pxrs_ray.status.problem import Problem as Problem

__version__ = "0.1.0"

_HOMES = {
    "AsyncSinkCursor": "pxrs_ray.sink",
    "BatchReceipt": "pxrs_ray.producer.receipt",
    "ByKey": "pxrs_ray.config",
    "ConfigError": "pxrs_ray.errors",
    "Context": "pxrs_ray.consumer.delivery",
    "DeadlineExceeded": "pxrs_ray.errors",
    "DeliveredBatch": "pxrs_ray.consumer.delivery",
    "Delivery": "pxrs_ray.consumer.delivery",
    "Fenced": "pxrs_ray.errors",
    "Group": "pxrs_ray.actors.client.group",
    "GroupConfig": "pxrs_ray.config",
    "GroupStatus": "pxrs_ray.status.answers",
    "HandlerError": "pxrs_ray.errors",
    "Letter": "pxrs_ray.consumer.dead_letter",
    "Message": "pxrs_ray.model",
    "MessageTooLarge": "pxrs_ray.errors",
    "NotFound": "pxrs_ray.errors",
    "NotHeld": "pxrs_ray.errors",
    "Notifications": "pxrs_ray.actors.client.notifications",
    "Ordered": "pxrs_ray.config",
    "Packs": "pxrs_ray.config",
    "PartitionFull": "pxrs_ray.errors",
    "Problem": "pxrs_ray.status.problem",
    "Producer": "pxrs_ray.actors.client.producer",
    "ProducerFenced": "pxrs_ray.errors",
    "PullConsumer": "pxrs_ray.actors.client.pull_consumer",
    "PxrsConfig": "pxrs_ray.config",
    "PxrsError": "pxrs_ray.errors",
    "QueueConfig": "pxrs_ray.config",
    "QueueReader": "pxrs_ray.actors.client.queue_reader",
    "Receipt": "pxrs_ray.producer.receipt",
    "RegistryAway": "pxrs_ray.errors",
    "Replies": "pxrs_ray.actors.client.replies",
    "Reply": "pxrs_ray.data.reply",
    "RetryAfter": "pxrs_ray.errors",
    "ScalingConfig": "pxrs_ray.config.options",
    "SinkConflict": "pxrs_ray.errors",
    "SinkCursor": "pxrs_ray.sink",
    "StoreUnavailable": "pxrs_ray.errors",
    "Topology": "pxrs_ray.actors.client.topology",
    "TopologyStatus": "pxrs_ray.status.answers",
    "UsageError": "pxrs_ray.errors",
    "attach": "pxrs_ray.actors.client.topology",
    "deploy": "pxrs_ray.actors.client.topology",
    "partition_changes": "pxrs_ray.actors.client.notifications",
    "quality": "pxrs_ray.partitioning",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pxrs_ray' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
