"""Makes the `WorkScheduler` of a partition from its group's configuration."""

from __future__ import annotations

from pxrs_ray.config import GroupConfig
from pxrs_ray.model import Message
from pxrs_ray.processing.done_ranges import done_to
from pxrs_ray.processing.key_ordered import WINDOW_RECORDS_MAX, KeyLanes, LaneRules
from pxrs_ray.processing.pack_rules import PackRules, ProcessingStrategy
from pxrs_ray.processing.packs import PackScheduler, PackShape
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.scheduler import Item, Standing, WorkScheduler
from pxrs_ray.processing.submit_strategy import SubmitStrategy

# What an item weighs beside its key and payload.
ITEM_OVERHEAD_BYTES = 500


def retry_rules(config: GroupConfig) -> RetryRules:
    """How often and how soon a failed message is tried again."""
    return RetryRules(
        config.attempts_max,
        config.backoff_ms,
        config.backoff_ms_max,
        FailurePolicy(config.failure_policy),
    )


def course_for(
    config: GroupConfig, standing: Standing, *, wants_batch: bool = False, dense: bool = True
) -> WorkScheduler | None:
    """What works a partition from `standing` on; None is for one message (or batch) at a time.

    A former configuration may have left messages done out of order: they stay done, but for a
    handler of batches, which takes everything from the checkpoint on.
    """
    if config.by_pack:
        return pack_course(config, standing)
    if config.by_lane or (not wants_batch and _has_gaps(standing)):
        return lane_course(config, standing, dense=dense)
    return None


def _has_gaps(standing: Standing) -> bool:
    return done_to(standing.checkpoint, standing.detail) > standing.checkpoint


def pack_course(config: GroupConfig, standing: Standing) -> PackScheduler:
    """Packs, as the group's strategies say; the one that was left out is the plainest."""
    shape, rules = pack_shape(config), pack_rules(config)
    policy = FailurePolicy(config.failure_policy)
    return PackScheduler(standing, shape, rules, policy, config.attempts_max)


def pack_shape(config: GroupConfig) -> PackShape:
    """How packs are made and submitted."""
    return PackShape(
        SubmitStrategy(config.submit_strategy or "burst"),
        config.pack_records,
        config.submit_batch_records,
    )


def pack_rules(config: GroupConfig) -> PackRules:
    """How a pack is judged."""
    return PackRules(
        ProcessingStrategy(config.processing_strategy or "skip_all_failures"),
        config.pack_timeout_ms,
        config.pack_retries,
        config.pack_pause_ms,
        config.pack_pause_ms_max,
        config.failure_percentage,
    )


def lane_course(config: GroupConfig, standing: Standing, *, dense: bool = True) -> KeyLanes:
    """Key lanes, as the group's options say. Offsets that are not `dense` lie far apart."""
    return KeyLanes(standing, lane_rules(config, dense=dense))


def lane_rules(config: GroupConfig, *, dense: bool = True) -> LaneRules:
    """How key lanes are worked."""
    return LaneRules(
        retry_rules(config),
        config.handler_timeout_ms,
        config.lookahead_records,
        config.lookahead_bytes,
        config.tenant_weights,
        window=WINDOW_RECORDS_MAX if dense else 1 << 62,
    )


def item_of(message: Message, tenant_header: str | None) -> Item:
    """A message as courses see it. Without a `tenant_header` everybody is one tenant."""
    tenant = ""
    if tenant_header is not None:
        tenant = tenant_of(message, tenant_header)
    size_bytes = ITEM_OVERHEAD_BYTES + len(message.payload) + len(message.key or b"")
    return Item(message.offset, message.key, tenant, message, size_bytes)


def tenant_of(message: Message, header: str) -> str:
    """Whose a message is, by its header of that name; '' is nobody's in particular."""
    for name, value in message.headers:
        if name == header:
            return value.decode(errors="replace")
    return ""
