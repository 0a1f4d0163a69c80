"""Makes the `WorkScheduler` of a partition from its group's configuration."""

from __future__ import annotations

from collections.abc import Iterable

from pxrs_ray.config import ByKey, GroupConfig, Ordered, Packs
from pxrs_ray.config.beside import keeps_gaps
from pxrs_ray.config.processing_modes import AnyMode
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Message, PartitionId, Progress
from pxrs_ray.processing.done_ranges import done_to
from pxrs_ray.processing.key_ordered import WINDOW_RECORDS_MAX, KeyLanes, LaneRules
from pxrs_ray.processing.pack_rules import PackRules, ProcessingStrategy, SubmitStrategy
from pxrs_ray.processing.packs import PackScheduler, PackShape
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.scheduler import Item, WorkScheduler

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


def scheduler_for(
    config: GroupConfig, progress: Progress, *, wants_batch: bool = False, dense: bool = True
) -> WorkScheduler | None:
    """What works a partition from `progress` on; None is for one message (or batch) at a time.

    A former configuration may have left messages done out of order: they stay done, but for a
    handler of batches, which takes everything from the checkpoint on.
    """
    match config.processing:
        case Packs():
            return pack_scheduler(config, progress)
        case ByKey():
            return lane_scheduler(config, progress, dense=dense)
        case Ordered():
            gaps = not wants_batch and _has_gaps(progress)
            return lane_scheduler(config, progress, dense=dense) if gaps else None


def _has_gaps(progress: Progress) -> bool:
    return done_to(progress.checkpoint, progress.detail) > progress.checkpoint


def pack_scheduler(config: GroupConfig, progress: Progress) -> PackScheduler:
    """Packs, as the group's strategies say."""
    mode = config.processing
    assert isinstance(mode, Packs)
    policy = FailurePolicy(config.failure_policy)
    return PackScheduler(progress, pack_shape(mode), pack_rules(mode), policy, config.attempts_max)


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


def lane_scheduler(config: GroupConfig, progress: Progress, *, dense: bool = True) -> KeyLanes:
    """Key lanes, as the group's options say. Offsets that are not `dense` lie far apart."""
    return KeyLanes(progress, lane_rules(config, dense=dense))


def lane_rules(config: GroupConfig, *, dense: bool = True) -> LaneRules:
    """How key lanes are worked."""
    mode = config.processing if isinstance(config.processing, ByKey) else _ONE_AT_A_TIME
    return LaneRules(
        retry_rules(config),
        mode.handler_timeout_ms,
        mode.lookahead_records,
        mode.lookahead_bytes,
        mode.tenant_weights,
        mode.fair_tenants,
        window=WINDOW_RECORDS_MAX if dense else 1 << 62,
        gap_log=dense and keeps_gaps(config),
    )


def calls_at_once(mode: AnyMode) -> int:
    """How many messages of one partition may be in work at once."""
    return 1 if isinstance(mode, Ordered) else mode.parallelism


def handler_timeout_ms(mode: AnyMode) -> int | None:
    """How long one call may take; a pack has its own time, which its scheduler counts."""
    return mode.handler_timeout_ms if isinstance(mode, ByKey) else None


def may_leave_calls_alone(mode: AnyMode) -> bool:
    """Whether a call that takes too long is no longer waited for."""
    if isinstance(mode, Packs):
        return not pack_rules(mode).waits_for_late()
    return handler_timeout_ms(mode) is not None


def tenant_header(mode: AnyMode) -> str | None:
    """The header that names whose a message is; None where everybody is one tenant."""
    match mode:
        case Packs():
            return mode.tenant_header
        case ByKey():
            return mode.tenant_header if mode.fair_tenants or mode.tenant_weights else None
        case Ordered():
            return None


def items_of(batch: Batch, of_tenant: str | None) -> list[Item]:
    """The messages as schedulers see them: `message` is what they are made of, no object yet.

    Without a header `of_tenant` everybody is one tenant.
    """
    found = []
    for fields in batch.fields():
        offset, key, payload, _, headers, _ = fields
        tenant = tenant_of(headers, of_tenant) if headers and of_tenant is not None else ""
        size_bytes = ITEM_OVERHEAD_BYTES + len(payload) + (0 if key is None else len(key))
        found.append(Item(offset, key, tenant, fields, size_bytes))
    return found


def message_of(item: Item, partition: PartitionId) -> Message:
    """The message of an item that `items_of` has made."""
    return Message(partition, *item.message)


def tenant_of(headers: Iterable[tuple[str, bytes]], header: str) -> str:
    """Whose a message is, by its header of that name; '' is nobody's in particular."""
    for name, value in headers:
        if name == header:
            return value.decode(errors="replace")
    return ""
