"""Makes the inner settings of logs, producers and groups of the configuration, which alone has
their defaults."""

from __future__ import annotations

from pxrs_ray.config.options import GroupConfig
from pxrs_ray.config.queue_options import QueueConfig
from pxrs_ray.config.topology import PxrsConfig
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.producer.accumulator import ProducerLimits
from pxrs_ray.producer.in_flight import SenderLimits


def sender_limits(config: PxrsConfig) -> SenderLimits:
    """How much a producer may have under way."""
    return SenderLimits(
        inflight_appends_max=config.inflight_appends_max,
        append_timeout_ms=config.append_timeout_ms,
    )


def producer_limits(config: PxrsConfig, queue: QueueConfig) -> ProducerLimits:
    """The bounds of a producer of a queue."""
    logs = queue.log_limits()
    return ProducerLimits(
        linger_ms=config.linger_ms,
        batch_records_max=config.batch_records_max,
        batch_bytes_max=config.batch_bytes_max,
        message_bytes_max=queue.message_bytes_max,
        frame_bytes_max=min(logs.frame_bytes_max, logs.bytes_max),
        sender=sender_limits(config),
    )


def group_settings(config: GroupConfig, group: str, *, paused: bool = False) -> GroupSettings:
    """How a group shares its partitions."""
    return GroupSettings(
        assignor=config.assignor,
        static_map=config.static_owners,
        tenant=config.tenant or group,
        lease_ms=config.lease_ms,
        revoke_deadline_ms=config.revoke_deadline_ms,
        prepare_ms=config.prepare_ms,
        paused=paused,
    )
