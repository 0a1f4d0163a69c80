"""Makes the `WorkScheduler` of a partition from its group's configuration."""

from __future__ import annotations

from pxrs_ray.config import ByKey, GroupConfig, Ordered, Packs
from pxrs_ray.config.processing_modes import AnyMode
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


# What goes on from messages that a former mode left done out of order, one at a time as `Ordered`.
_ONE_AT_A_TIME = ByKey(parallelism=1)


def course_for(
    config: GroupConfig, standing: Standing, *, wants_batch: bool = False, dense: bool = True
) -> WorkScheduler | None:
    """What works a partition from `standing` on; None is for one message (or batch) at a time.

    A former configuration may have left messages done out of order: they stay done, but for a
    handler of batches, which takes everything from the checkpoint on.
    """
    match config.processing:
        case Packs():
            return pack_course(config, standing)
        case ByKey():
            return lane_course(config, standing, dense=dense)
        case Ordered():
            gaps = not wants_batch and _has_gaps(standing)
            return lane_course(config, standing, dense=dense) if gaps else None


def _has_gaps(standing: Standing) -> bool:
    return done_to(standing.checkpoint, standing.detail) > standing.checkpoint


def pack_course(config: GroupConfig, standing: Standing) -> PackScheduler:
    """Packs, as the group's strategies say."""
    mode = config.processing
    assert isinstance(mode, Packs)
    policy = FailurePolicy(config.failure_policy)
    return PackScheduler(standing, pack_shape(mode), pack_rules(mode), policy, config.attempts_max)


def pack_shape(mode: Packs) -> PackShape:
    """How packs are made and submitted."""
    return PackShape(SubmitStrategy(mode.submit_strategy), mode.pack_records, mode.batch_records)


def pack_rules(mode: Packs) -> PackRules:
    """How a pack is judged."""
    return PackRules(
        ProcessingStrategy(mode.processing_strategy),
        mode.timeout_ms,
        mode.retries,
        mode.pause_ms,
        mode.pause_ms_max,
        mode.failure_percentage,
    )


def lane_course(config: GroupConfig, standing: Standing, *, dense: bool = True) -> KeyLanes:
    """Key lanes, as the group's options say. Offsets that are not `dense` lie far apart."""
    return KeyLanes(standing, lane_rules(config, dense=dense))


def lane_rules(config: GroupConfig, *, dense: bool = True) -> LaneRules:
    """How key lanes are worked."""
    mode = config.processing if isinstance(config.processing, ByKey) else _ONE_AT_A_TIME
    return LaneRules(
        retry_rules(config),
        mode.handler_timeout_ms,
        mode.lookahead_records,
        mode.lookahead_bytes,
        mode.tenant_weights,
        window=WINDOW_RECORDS_MAX if dense else 1 << 62,
    )


def calls_at_once(mode: AnyMode) -> int:
    """How many messages of one partition may be in work at once."""
    return 1 if isinstance(mode, Ordered) else mode.parallelism


def handler_timeout_ms(mode: AnyMode) -> int | None:
    """How long one call may take; a pack has its own time, which its scheduler counts."""
    return mode.handler_timeout_ms if isinstance(mode, ByKey) else None


def tenant_header(mode: AnyMode) -> str | None:
    """The header that names whose a message is; None where everybody is one tenant."""
    match mode:
        case Packs():
            return mode.tenant_header
        case ByKey():
            return mode.tenant_header if mode.fair_tenants or mode.tenant_weights else None
        case Ordered():
            return None


def item_of(message: Message, of_tenant: str | None) -> Item:
    """A message as courses see it. Without a header `of_tenant` everybody is one tenant."""
    tenant = ""
    if of_tenant is not None:
        tenant = tenant_of(message, of_tenant)
    size_bytes = ITEM_OVERHEAD_BYTES + len(message.payload) + len(message.key or b"")
    return Item(message.offset, message.key, tenant, message, size_bytes)


def tenant_of(message: Message, header: str) -> str:
    """Whose a message is, by its header of that name; '' is nobody's in particular."""
    for name, value in message.headers:
        if name == header:
            return value.decode(errors="replace")
    return ""
