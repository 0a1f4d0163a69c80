"""Why a message does not come to its handlers: who waits for a reply is told. Pure.

Rules of this file. A message is told as halted only when every group that reads its queue is halted
before it. Who knows its id alone learns where it is from `HaltedMessages`: of the partitions that
are halted, that remembers the ids which stand behind the halt, until it has `IDS_MAX` of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.status.answers import GroupStatus

# Of all partitions together: some ten megabytes.
IDS_MAX = 100_000


def halt_before(
    groups: Sequence[GroupStatus], queue: str, partition: PartitionId, offset: Offset | None
) -> str | None:
    """Why no group of `queue` (its full name) comes to the message; None while one does, has
    passed it, or is not known."""
    found = []
    for group in groups:
        if group.queue != queue:
            continue
        told = _halt_of(group, partition, offset)
        if told is None:
            return None
        found.append(told)
    return "; ".join(found) or None


def _halt_of(group: GroupStatus, partition: PartitionId, offset: Offset | None) -> str | None:
    if group.problem:
        return f"group {group.group} is halted: {group.problem}"
    for each in group.partitions:
        if each.partition == partition and each.problem:
            if offset is not None and offset < (each.checkpoint or 0):
                return None
            return (
                f"group {group.group} is halted at P{partition} offset {each.checkpoint}: "
                f"{each.problem}"
            )
    return None


def halted_from(groups: Sequence[GroupStatus], queue: str) -> dict[PartitionId, Offset]:
    """The partitions of `queue` in which every one of its groups is halted, and from where on no
    group comes to a message."""
    found: dict[PartitionId, Offset] | None = None
    for group in groups:
        if group.queue != queue:
            continue
        halted = {
            each.partition: each.checkpoint or 0
            for each in group.partitions
            if each.problem or group.problem
        }
        if found is None:
            found = halted
        else:
            found = {p: max(at, halted[p]) for p, at in found.items() if p in halted}
    return found or {}


class HaltedMessages:
    """Where the messages are that stand behind a halt, by their ids, as far as they were read."""

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self._max = ids_max
        self._from: dict[PartitionId, Offset] = {}
        self._at: dict[PartitionId, Offset] = {}
        self._ids: dict[PartitionId, dict[str, Offset]] = {}
        self._unread: list[PartitionId] = []

    def look(self, halted: Mapping[PartitionId, Offset]) -> None:
        """These partitions are halted now, from there on: `next` goes on where it was."""
        for partition in list(self._from):
            if halted.get(partition) != self._from[partition]:
                del self._from[partition], self._at[partition], self._ids[partition]
        for partition, offset in halted.items():
            if partition not in self._from:
                self._from[partition] = self._at[partition] = offset
                self._ids[partition] = {}
        self._unread = sorted(self._from)

    def next(self) -> tuple[PartitionId, Offset] | None:
        """What to read next; None: nothing is left, or no more can be remembered."""
        if not self._unread or sum(map(len, self._ids.values())) >= self._max:
            return None
        return self._unread[0], self._at[self._unread[0]]

    def take(self, partition: PartitionId, messages: Iterable[Message], to: Offset) -> None:
        """This was read of it, up to `to`."""
        if partition not in self._at or to <= self._at[partition]:
            return  # it is halted no more; or there is nothing else
        self._at[partition] = to
        for message in messages:
            if message.id is not None:
                self._ids[partition][message.id] = message.offset

    def read_after(
        self, partition: PartitionId, offset: Offset
    ) -> tuple[PartitionId, Offset] | None:
        """As `next`, after a read there. One that brought nothing is the last of its partition
        until the next look: there is no more, or it cannot be read."""
        if self._at.get(partition, offset) == offset:
            self._unread = [each for each in self._unread if each != partition]
        return self.next()

    def place_of(self, message_id: str) -> tuple[PartitionId, Offset] | None:
        """Where the message with this id stands behind a halt; None where it does not, as far as
        is known."""
        for partition, known in self._ids.items():
            if (offset := known.get(message_id)) is not None:
                return partition, offset
        return None
