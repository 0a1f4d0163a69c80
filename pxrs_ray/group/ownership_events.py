"""Ownership before and after each change, numbered, for listeners.

Rules of this file: pure. A group's history numbers its changes without a gap. A listener that
starts from a status and takes every change after it has the owners at any number, and sees by the
numbers when it has missed one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.errors import OffsetOutOfRange
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Change, MemberId, PartitionId, WriteKind

Owners = Mapping[MemberId, tuple[PartitionId, ...]]


@dataclass(frozen=True, slots=True)
class PartitionChangeEvent:
    """One change of ownership. `old` and `new` name only members that own something."""

    group: str
    sequence: int
    partition: PartitionId
    old: Owners
    new: Owners
    cause: str

    def gained(self, member: MemberId) -> tuple[PartitionId, ...]:
        """What `member` has now and had not before."""
        return tuple(sorted(set(self.new.get(member, ())) - set(self.old.get(member, ()))))

    def lost(self, member: MemberId) -> tuple[PartitionId, ...]:
        """What `member` had before and has not now."""
        return tuple(sorted(set(self.old.get(member, ())) - set(self.new.get(member, ()))))


class PartitionChanges:
    """Folds a group's history from a known point on. See the rules at the head of this file."""

    def __init__(self, group: str, sequence: int, owners: Mapping[PartitionId, MemberId]) -> None:
        self._group = group
        self.sequence = sequence
        self._owners = dict(owners)

    def take(self, change: Change) -> PartitionChangeEvent | None:
        """The event of the next change; None where nobody gained or lost anything.

        A change that was taken before is None too. Raises OffsetOutOfRange when one is missing
        in between: start again from a status.
        """
        if change.version <= self.sequence:
            return None
        if change.version != self.sequence + 1:
            raise OffsetOutOfRange(
                f"group {self._group}: changes {self.sequence + 1} to {change.version - 1} are no "
                "longer kept: start again from its status"
            )
        self.sequence = change.version
        old = self._by_member()
        if change.kind == WriteKind.CLAIM and change.owner is not None:
            self._owners[change.partition] = change.owner
        elif change.kind in (WriteKind.RELEASE, WriteKind.RESET):
            self._owners.pop(change.partition, None)
        new = self._by_member()
        if old == new:
            return None
        return PartitionChangeEvent(
            self._group, change.version, change.partition, old, new, change.cause
        )

    def _by_member(self) -> Owners:
        found: dict[MemberId, list[PartitionId]] = {}
        for partition, member in sorted(self._owners.items()):
            found.setdefault(member, []).append(partition)
        return {member: tuple(partitions) for member, partitions in found.items()}
