"""What a queue has beside it: the tiers of its `delays`, and who moves them; its `replies`; the gap
maps of its groups.

Rules of this file. All of it is made of the queue's own options, and can be written out in the file
like any other queue: what stands there is not made here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pxrs_ray.config.declare import HOUR_MS
from pxrs_ray.config.options import GroupConfig
from pxrs_ray.config.processing_modes import ByKey
from pxrs_ray.config.queue_options import QueueConfig
from pxrs_ray.data.delay import DELAYED_SUFFIX, TIERS
from pxrs_ray.data.log_limits import MIB
from pxrs_ray.data.reply import REPLIES_SUFFIX
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Strategy

MOVER = "pxrs_ray.actors.consumer.delay_mover:DelayMover"
# What has waited is dropped segment by segment, and there are many tiers.
SEGMENT_BYTES_MAX = 8 * MIB
REPLIES_KEPT_MS = 24 * HOUR_MS
REPLIES_BYTES_MAX = 256 * MIB  # of each partition

# What is beside a queue has nothing beside itself.
NOTHING: dict[str, object] = {"delays": False, "replies": False}

# The queue of a group's gap maps: '<queue>.gaps.<group>'.
GAPS_INFIX = ".gaps."
GAPS_BYTES_MAX = 32 * MIB  # of each partition

# What is put aside stays until somebody decides.
SET_ASIDE: dict[str, object] = {
    **NOTHING,
    "retention_ms": None,
    "retention_bytes": None,
    "retention_passed": False,
}


def tier_options(queue: QueueConfig) -> dict[str, object]:
    """In what the queue of the tiers differs from the queue that it belongs to."""
    return {
        **NOTHING,
        "partitions": TIERS,
        "strategy": Strategy.LABEL.value,
        "labels": {str(tier): 1 for tier in range(TIERS)},
        "segment_bytes_max": min(queue.segment_bytes_max, SEGMENT_BYTES_MAX),
        "retention_ms": None,
        "retention_bytes": None,
        "retention_passed": True,
        "drop_unread": False,
    }


def reply_options(queue: QueueConfig) -> dict[str, object]:
    """In what the queue of the replies differs: it is bounded by age and size, and no group reads
    it."""
    return {
        **NOTHING,
        "strategy": Strategy.MODULO.value,
        "tenant_span": 1,
        "labels": None,
        "segment_bytes_max": min(queue.segment_bytes_max, SEGMENT_BYTES_MAX),
        "retention_ms": REPLIES_KEPT_MS,
        "retention_bytes": REPLIES_BYTES_MAX,
        "retention_passed": False,
    }


def gaps_queue(queue: str, group: str) -> str:
    """The queue of the gap maps of a group that works `queue`."""
    return f"{queue}{GAPS_INFIX}{group}"


def keeps_gaps(group: GroupConfig) -> bool:
    """Whether a group has a queue for gap maps: what is done out of order, beyond what rows
    hold."""
    return isinstance(group.processing, ByKey) and group.processing.gap_log


def gap_options(queue: QueueConfig) -> dict[str, object]:
    """In what a queue of gap maps differs: it is bounded by its size, and no group reads it."""
    return {
        **NOTHING,
        "strategy": Strategy.MODULO.value,
        "tenant_span": 1,
        "labels": None,
        "segment_bytes_max": min(queue.segment_bytes_max, SEGMENT_BYTES_MAX),
        "retention_ms": None,
        "retention_bytes": GAPS_BYTES_MAX,
        "retention_passed": False,
    }


@dataclass(frozen=True, slots=True)
class BesideQueue:
    """What a queue has beside itself: other queues, and the group that moves delayed messages."""

    queues: tuple[str, ...] = ()
    mover: str | None = None


def beside(
    name: str,
    queues: Mapping[str, QueueConfig],
    groups: Mapping[str, GroupConfig],
    in_file: Collection[str] = (),
) -> BesideQueue:
    """What goes with a queue when it is removed.

    A queue of such a name that the topology's file names itself, while the option that would make
    it is off, is another one.
    """
    queue = queues[name]
    found = [
        f"{name}{suffix}"
        for suffix, is_on in ((DELAYED_SUFFIX, queue.delays), (REPLIES_SUFFIX, queue.replies))
        if is_on or f"{name}{suffix}" not in in_file
    ]
    found += [gaps_queue(name, group) for group, one in groups.items() if one.queue == name]
    delayed = groups.get(f"{name}{DELAYED_SUFFIX}")
    is_mover = delayed is not None and delayed.handler == MOVER
    return BesideQueue(
        tuple(each for each in found if each in queues),
        f"{name}{DELAYED_SUFFIX}" if is_mover else None,
    )


def belongs_to(
    name: str, queues: Mapping[str, QueueConfig], groups: Mapping[str, GroupConfig]
) -> str | None:
    """Why a queue cannot go alone: whose part it is. None where it can."""
    for group, one in groups.items():
        if name == gaps_queue(one.queue, group) and keeps_gaps(one):
            return (
                f"group {group} keeps in it what is done out of order: `pxrs group delete {group}`"
                f", or write `gap_log = false` below [groups.{group}.processing], then `pxrs up`"
            )
    for suffix, option in ((DELAYED_SUFFIX, "delays"), (REPLIES_SUFFIX, "replies")):
        queue = queues.get(name.removesuffix(suffix))
        if name.endswith(suffix) and queue is not None and getattr(queue, option):
            owner = name.removesuffix(suffix)
            return (
                f"queue {owner} has {option} = true: `pxrs queue delete {owner}` removes both, or "
                f"write `{option} = false` below [queues.{owner}], then `pxrs up`"
            )
    return None


def mover(topology: str, queue: str) -> GroupConfig:
    """The group that moves them: it gives up nothing, and needs no CPU of its own."""
    return GroupConfig(
        queue=queue + DELAYED_SUFFIX,
        handler=MOVER,
        settings={"topology": topology, "queue": queue},
        attempts_max=0,
        ray_options={"num_cpus": 0},
    )
