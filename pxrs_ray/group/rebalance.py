"""Rebalancing: from members to a target, and from a target to the partitions that must move.

Rules of this file. The target (what should be) and the rows (what is) are two values. A partition
is claimed only while nobody owns it; one that another member owns is asked back first. What already
is where it should be is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pxrs_ray.errors import NotFound
from pxrs_ray.group.assignors import assign
from pxrs_ray.group.decision import DecisionBuilder
from pxrs_ray.group.events import Move, Plan
from pxrs_ray.group.group_state import GroupSettings, GroupState
from pxrs_ray.group.transitions import MemberPhase, PartitionPhase
from pxrs_ray.model import Epoch, Member, MemberId, PartitionId, PartitionRow


def sharing_members(state: GroupState) -> list[Member]:
    """Who has a share: active members, and those that are away and have one kept for them."""
    return [
        known.member
        for known in state.members.values()
        if known.phase in (MemberPhase.ACTIVE, MemberPhase.AWAY)
    ]


def make_target(
    state: GroupState, settings: GroupSettings, members: Sequence[Member]
) -> dict[PartitionId, MemberId]:
    """Who should own each partition if `members` share them."""
    current: dict[PartitionId, MemberId] = {}
    for row in state.rows:
        # A partition on its way counts for where it goes: what was begun is not undone.
        moving = row.partition in state.revoking or row.partition in state.preparing
        settled = row.owner is not None and not moving
        holder = row.owner if settled else state.target.get(row.partition)
        if holder is not None:
            current[row.partition] = holder
    return assign(
        settings.assignor,
        members,
        len(state.rows),
        current,
        static_map=settings.static_map,
        tenant=settings.tenant,
    )


def retarget(builder: DecisionBuilder) -> None:
    """Make a new target, ask back what is not where it should be, grant what is free."""
    state = builder.state
    state.target = make_target(state, builder.settings, sharing_members(state))
    for partition, preparation in list(state.preparing.items()):
        known = state.members.get(preparation.member)
        gone = known is None or known.member.incarnation != preparation.incarnation
        if gone or state.target.get(partition) != preparation.member:
            builder.unprepare(partition)
    for row in state.rows:
        if row.owner is None or row.partition in state.revoking:
            continue
        wanted = state.target.get(row.partition)
        if wanted == row.owner:
            builder.unprepare(row.partition)
            continue
        successor = state.members.get(wanted or "")
        ready_to_load = successor is not None and successor.phase is MemberPhase.ACTIVE
        if successor is not None and ready_to_load and builder.settings.prepare_ms > 0:
            builder.prepare(row.partition, successor.member)
        else:
            builder.revoke(row.partition)
    grant(builder)


def begin_move(builder: DecisionBuilder, partition: PartitionId) -> None:
    """The successor is ready, or has taken too long: ask the owner for the partition."""
    builder.state.preparing[partition].ready = True
    if builder.state.phase(partition) is PartitionPhase.OWNED:
        builder.revoke(partition)


def grant(builder: DecisionBuilder) -> None:
    """Claim every unowned partition for its target, if that is an active member."""
    state = builder.state
    for row in state.rows:
        if row.owner is not None:
            continue
        partition = row.partition
        if partition in state.seeks:
            offset, cause = state.seeks.pop(partition)
            builder.reset(partition, offset, cause)
        known = state.members.get(state.target.get(partition, ""))
        if known is not None and known.phase is MemberPhase.ACTIVE:
            builder.claim(partition, known.member)


def raise_epochs(builder: DecisionBuilder, epochs: Mapping[PartitionId, Epoch]) -> None:
    """Take partitions from whoever has them, and grant them anew above `epochs`.

    Raises NotFound for a partition that there is not, and then nothing has changed.
    """
    rows = builder.state.rows
    unknown = [p for p in epochs if not 0 <= p < len(rows)]
    if unknown:
        raise NotFound(f"group {builder.state.group} has no partition {unknown[0]}")
    for partition, epoch in epochs.items():
        if rows[partition].owner is not None:
            builder.release(partition, builder.cause)
        row = rows[partition]
        # A claim raises it once more: what is given out next is above `epoch`.
        if row.epoch < epoch:
            builder.reset(partition, row.checkpoint, builder.cause, epoch)
    builder.finish_leaving()
    grant(builder)


def plan(
    state: GroupState,
    settings: GroupSettings,
    cause: str,
    add: Sequence[Member],
    remove: Iterable[MemberId],
) -> Plan:
    """What this change of members would move, and why; nothing is changed.

    Raises NotFound when a member to remove is not there.
    """
    gone = set(remove)
    unknown = gone - state.members.keys()
    if unknown:
        raise NotFound(f"no member {sorted(unknown)[0]!r} in group {state.group}")
    replaced = gone | {member.member for member in add}
    members = [m for m in sharing_members(state) if m.member not in replaced] + list(add)
    target = make_target(state, settings, members)
    counts = {m.member: 0 for m in members}
    for owner in target.values():
        counts[owner] += 1
    moves = tuple(
        Move(row.partition, row.owner, target.get(row.partition), _reason(state, row, gone))
        for row in state.rows
        if target.get(row.partition) != row.owner
    )
    return Plan(cause, moves, counts)


def _reason(state: GroupState, row: PartitionRow, gone: set[MemberId]) -> str:
    if row.owner is None:
        return "has no owner"
    if row.owner in gone or row.owner not in state.members:
        return f"{row.owner} goes"
    return f"{row.owner} has more than its share"
