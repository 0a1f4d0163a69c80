"""Puts together what `status` says of queues and groups, from all who know a part of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pxrs_ray.actors.consumer import ConsumerInfo
from pxrs_ray.log.wire import LogEnds
from pxrs_ray.model import MemberId, Offset, PartitionId, PartitionRow
from pxrs_ray.stats import ConsumerStatus, GroupStatus, PartitionStatus, QueueStatus

if TYPE_CHECKING:
    from pxrs_ray.actors.group_shell import GroupShell


def queue_status(name: str, ends: Mapping[PartitionId, LogEnds]) -> QueueStatus:
    """One queue at this moment, with what is wrong with its logs."""
    problems = [
        f"P{end.partition} {end.state}: {end.problem}" for end in ends.values() if end.problem
    ]
    problems += [
        f"P{end.partition} lost offsets {gap.first} to {gap.end - 1}: {gap.reason}"
        for end in ends.values()
        for gap in end.gaps
    ]
    return QueueStatus(
        name,
        len(ends),
        sum(end.end_offset - end.start_offset for end in ends.values()),
        sum(end.bytes for end in ends.values()),
        tuple(problems),
        sum(end.end_offset for end in ends.values()),
    )


def group_status(
    shell: GroupShell,
    checkpoints: Mapping[PartitionId, Offset],
    ends: Mapping[PartitionId, LogEnds],
    ages: Mapping[PartitionId, int],
    infos: Mapping[MemberId, ConsumerInfo],
) -> GroupStatus:
    """One group at this moment. What could not be asked is None."""
    core = shell.host.core
    failures = {f.context.partition: f.error for info in infos.values() for f in info.failures}
    now_ms = time.time_ns() // 1_000_000

    def partition(row: PartitionRow) -> PartitionStatus:
        end = ends.get(row.partition)
        since = ages.get(row.partition)
        checkpoint = checkpoints[row.partition]
        lag = max(0, end.end_offset - checkpoint) if end is not None else None
        return PartitionStatus(
            row.partition,
            core.state.phase(row.partition).value,
            row.owner,
            row.epoch,
            checkpoint,
            end.end_offset if end is not None else None,
            lag,
            0 if lag == 0 else max(0, now_ms - since) if since is not None else None,
            row.attempts,
            failures.get(row.partition, ""),
        )

    return GroupStatus(
        shell.spec.group,
        shell.spec.queue,
        core.state.generation,
        core.state.version,
        core.settings.assignor,
        core.settings.paused,
        len(shell.staff.hands),
        tuple(partition(row) for row in core.state.rows),
        _consumers(shell, infos),
        str(shell.host.halted) if shell.host.halted is not None else "",
        _scaling(shell),
    )


def _scaling(shell: GroupShell) -> str:
    advice = shell.autoscale.advice
    if advice is None:
        return ""
    hot = "" if advice.skew is None else f"; partition {advice.skew} is late alone (skew)"
    return f"{advice.consumers} consumers: {advice.reason}{hot}"


def _consumers(
    shell: GroupShell, infos: Mapping[MemberId, ConsumerInfo]
) -> tuple[ConsumerStatus, ...]:
    core = shell.host.core
    hands = shell.staff.hands
    now_ms = time.monotonic_ns() // 1_000_000
    found = []
    for member in sorted(hands.keys() | core.state.members.keys()):
        slot, hand, info = core.state.members.get(member), hands.get(member), infos.get(member)
        incarnation = slot.member.incarnation if slot else hand.incarnation if hand else 0
        found.append(
            ConsumerStatus(
                member,
                incarnation,
                hand.state if hand else slot.phase.value if slot else "gone",
                tuple(sorted(core.state.owned.get(member, ()))),
                info.processed if info else None,
                slot.until_ms - now_ms if slot else None,
                info.pid if info else None,
                info.node if info else hand.node if hand else "",
                (hand.reason if hand else "") or (info.problem if info else ""),
            )
        )
    return tuple(found)
