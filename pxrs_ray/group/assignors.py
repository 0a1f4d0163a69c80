"""Which member should hold which partition: pure, deterministic functions.

Rules of this file. Members are taken in the order of their ids, whatever order they come in.
With P partitions and C members of equal weight everybody gets floor(P/C), and P mod C of them
one more; with unequal weights the shares follow the weights by largest remainder, of which the
fair rule is the special case. Members beyond P get nothing: they are warm spares. An assignor
says who *should* hold a partition; handing it over safely is the coordinator's work.

* `sticky`       the fair counts with the least possible movement; from nothing it equals `range`
* `range`        contiguous ranges in member order: 3 members on 8 get [0,1,2] [3,4,5] [6,7]
* `round_robin`  partition p to member p mod C
* `tenant`       partition p to member (hash(tenant) + p) mod C, so that tenants start elsewhere
* `static`       what the given map says; a partition whose member is not there stays unassigned
* `module:function` the user's own: takes an `AssignmentProblem`, answers a `TargetAssignment`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from pxrs_ray.errors import UsageError
from pxrs_ray.group.custom_assignor import is_own, solve_by
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import AssignorName, Member, MemberId, PartitionId
from pxrs_ray.partitioning.hashes import hash_key
from pxrs_ray.suggest import pick

TargetAssignment = dict[PartitionId, MemberId]


@dataclass(frozen=True, slots=True)
class AssignmentProblem:
    """The input of an assignor. `members` is sorted by id, without doubles, and not empty."""

    members: tuple[Member, ...]
    partitions: int
    current: Mapping[PartitionId, MemberId]
    static_map: Mapping[PartitionId, MemberId] | None
    tenant: str


@dataclass(frozen=True, slots=True)
class Shares:
    """How many partitions each member gets: `base`, and one more for `extra` of `contenders`.

    `base` already holds the larger shares that the weights decide. `contenders` are the members
    whose remainders tie, in the order of the members: which of them get one more is free.
    """

    base: dict[MemberId, int]
    contenders: tuple[MemberId, ...]
    extra: int

    def settle(self, first: Iterable[MemberId] = ()) -> dict[MemberId, int]:
        """The count of each member, the free ones given to `first`, then in member order."""
        counts = dict(self.base)
        preferred = set(first)
        ranked = sorted(self.contenders, key=lambda member: member not in preferred)
        for member in ranked[: self.extra]:
            counts[member] += 1
        return counts


def assign(
    assignor: str,
    members: Sequence[Member],
    partitions: int,
    current: Mapping[PartitionId, MemberId],
    *,
    static_map: Mapping[PartitionId, MemberId] | None = None,
    tenant: str = "",
) -> TargetAssignment:
    """The target: partition to member id, for partitions 0 to `partitions` - 1, in that order.

    `current` tells who holds what now; holders that are not among `members` count as gone. A
    partition is absent from the answer only when there are no members, or when `static_map`
    names no member that is there.

    Raises UsageError for an unknown assignor, doubled member ids, a partition out of range,
    a weight that is not finite, or `static` without a map.
    """
    solve = (
        ASSIGNORS[AssignorName.STICKY]
        if is_own(assignor)
        else pick("assignor", assignor, ASSIGNORS)
    )
    _check(members, partitions, current, static_map)
    if assignor == AssignorName.STATIC and static_map is None:
        raise UsageError("assignor 'static' needs static_map: partition -> member id")
    if not members:
        return {}
    ordered = tuple(sorted(members, key=lambda member: member.member))
    problem = AssignmentProblem(ordered, partitions, current, static_map, tenant)
    own = solve_by(assignor, problem) if is_own(assignor) else None
    return solve(problem) if own is None else own


def shares(members: Sequence[Member], partitions: int) -> Shares:
    """The counts that the weights of `members` ask for, by largest remainder, exactly."""
    weights = [Fraction(member.weight) for member in members]
    # Over a common denominator all arithmetic is on whole numbers: equal weights stay equal.
    scale = max(weight.denominator for weight in weights)
    parts = [weight.numerator * (scale // weight.denominator) for weight in weights]
    total = sum(parts)
    base: dict[MemberId, int] = {}
    remainders: list[int] = []
    for member, part in zip(members, parts, strict=True):
        base[member.member], remainder = divmod(partitions * part, total)
        remainders.append(remainder)
    extra = partitions - sum(base.values())
    if extra == 0:
        return Shares(base, (), 0)
    cut = sorted(remainders, reverse=True)[extra - 1]
    contenders = []
    for member, remainder in zip(members, remainders, strict=True):
        if remainder > cut:
            base[member.member] += 1
            extra -= 1
        elif remainder == cut:
            contenders.append(member.member)
    return Shares(base, tuple(contenders), extra)


def _sticky(problem: AssignmentProblem) -> TargetAssignment:
    held = _held(problem.members, problem.current)
    counts = _sticky_counts(shares(problem.members, problem.partitions), held)
    target: dict[PartitionId, MemberId] = {}
    for member, partitions in held.items():
        for partition in partitions[: counts[member]]:
            target[partition] = member
    room = (
        member.member
        for member in problem.members
        for _ in range(counts[member.member] - len(held[member.member]))
    )
    for partition in range(problem.partitions):
        if partition not in target:
            target[partition] = next(room)
    return dict(sorted(target.items()))


def _range(problem: AssignmentProblem) -> TargetAssignment:
    counts = shares(problem.members, problem.partitions).settle()
    owners = (member for member, count in counts.items() for _ in range(count))
    return dict(enumerate(owners))


def _round_robin(problem: AssignmentProblem) -> TargetAssignment:
    return _interleave(problem.members, problem.partitions)


def _tenant(problem: AssignmentProblem) -> TargetAssignment:
    # A place in the circle of members: rotating them keeps the counts fair for every tenant.
    start = hash_key(problem.tenant) % len(problem.members)
    return _interleave(problem.members[start:] + problem.members[:start], problem.partitions)


def _static(problem: AssignmentProblem) -> TargetAssignment:
    assert problem.static_map is not None
    present = {member.member for member in problem.members}
    wanted = sorted(problem.static_map.items())
    return {partition: member for partition, member in wanted if member in present}


ASSIGNORS: Mapping[str, Callable[[AssignmentProblem], TargetAssignment]] = {
    AssignorName.STICKY: _sticky,
    AssignorName.RANGE: _range,
    AssignorName.ROUND_ROBIN: _round_robin,
    AssignorName.TENANT: _tenant,
    AssignorName.STATIC: _static,
}


def _interleave(members: Sequence[Member], partitions: int) -> TargetAssignment:
    """Deal the partitions out one at a time; who has its share leaves the circle."""
    left = shares(members, partitions).settle()
    target: TargetAssignment = {}
    while left:
        left = {member: count for member, count in left.items() if count > 0}
        for member in left:
            target[len(target)] = member
            left[member] -= 1
    return target


def _held(
    members: Iterable[Member], current: Mapping[PartitionId, MemberId]
) -> dict[MemberId, list[PartitionId]]:
    """What each member holds now, ascending; empty for those that hold nothing."""
    held: dict[MemberId, list[PartitionId]] = {member.member: [] for member in members}
    for partition, member in sorted(current.items()):
        if member in held:
            held[member].append(partition)
    return held


def _sticky_counts(
    free: Shares, held: Mapping[MemberId, Sequence[PartitionId]]
) -> dict[MemberId, int]:
    """The counts that keep most: one more keeps a partition only for who holds more than base."""
    return free.settle(
        member for member in free.contenders if len(held[member]) > free.base[member]
    )


def _check(
    members: Sequence[Member],
    partitions: int,
    current: Mapping[PartitionId, MemberId],
    static_map: Mapping[PartitionId, MemberId] | None,
) -> None:
    if partitions < 1:
        raise UsageError(f"partitions is {partitions}; it must be at least 1")
    ids = [member.member for member in members]
    if len(set(ids)) != len(ids):
        doubled = sorted({one for one in ids if ids.count(one) > 1})
        raise UsageError(f"each member must be given once; doubled: {', '.join(doubled)}")
    for member in members:
        if not math.isfinite(member.weight):
            raise UsageError(f"weight of {member.member} is {member.weight}; it must be finite")
    for name, partition_map in (("current", current), ("static_map", static_map or {})):
        wrong = [one for one in partition_map if not 0 <= one < partitions]
        if wrong:
            raise UsageError(
                f"{name} names partition {wrong[0]}; there are only 0 to {partitions - 1}"
            )
