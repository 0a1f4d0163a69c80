"""Nothing moves without a reason, nor more than it must, and what must move moves in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pxrs_ray.group.assignors import shares
from pxrs_ray.group.events import (
    Commit,
    Configure,
    Died,
    Heartbeat,
    Join,
    Leave,
    Prepared,
    Rebalance,
    Release,
    Tick,
)
from pxrs_ray.model import Incarnation, Member, MemberId, PartitionId, Write, WriteKind
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Decided, Led

_RETARGETING = (Join, Leave, Died, Configure, Rebalance)


def minimum_movement(
    members: Sequence[Member], partitions: int, current: Mapping[PartitionId, MemberId]
) -> int:
    """The fewest partitions of `current` that any assignment with fair counts takes away.

    First grants are not counted; partitions of members that are gone always are.
    """
    if not members:
        return len(current)
    held = Counter(current.values())
    free = shares(sorted(members, key=lambda member: member.member), partitions)
    counts = free.settle(each for each in free.contenders if held[each] > free.base[each])
    return len(current) - sum(min(held[member], count) for member, count in counts.items())


class OnlyWithReason(Checker):
    """No owner loses a partition but by its own release, its death, or a deadline that passed.

    A commit is recorded only as its owner sent it, under the very epoch. A partition is asked
    back only where it should be elsewhere, or for a seek. A restart of the coordinator takes
    nothing from a registered owner. Silence while the coordinator itself stood still proves
    nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._registered: dict[int, set[tuple[MemberId, Incarnation]]] = {}
        self._heard_ms: dict[tuple[int, MemberId, Incarnation], int] = {}
        self._started_ms: dict[int, int] = {}
        self._ticked_ms: dict[int, int] = {}
        self._due_ms: dict[tuple[int, PartitionId], int] = {}
        self._revoking: dict[int, frozenset[PartitionId]] = {}
        self._owners: dict[int, dict[PartitionId, MemberId | None]] = {}

    def on_led(self, event: Led) -> None:
        """Who is registered, and owns what, when a generation begins."""
        rows = event.snapshot.partitions
        self._owners[event.generation] = {row.partition: row.owner for row in rows}
        members = {(m.member, m.incarnation) for m in event.snapshot.members}
        self._registered[event.generation] = members

    def on_decided(self, event: Decided) -> None:
        """Judge each record by the event that caused it."""
        self._started_ms.setdefault(event.generation, event.monotonic_ms)
        if isinstance(event.event, Tick):
            self._forgive(event)
        for record in event.records:
            if isinstance(record, Write) and not self._has_reason(event, record):
                self.broken(event.at_ms, f"{record} by {event.event}, target {event.target}")
            if isinstance(record, Write) and record.kind in (WriteKind.CLAIM, WriteKind.RELEASE):
                claimed = record.kind is WriteKind.CLAIM
                owner = record.owner if claimed else None
                self._owners.setdefault(event.generation, {})[record.partition] = owner
        self._hear(event)
        before = self._revoking.get(event.generation, frozenset())
        for partition in event.revoking - before:
            moves = event.target.get(partition) != self._owners.get(event.generation, {}).get(
                partition
            )
            if not moves and partition not in event.seeking:
                self.broken(event.at_ms, f"partition {partition} was asked back for nothing")
            due_ms = event.monotonic_ms + event.revoke_deadline_ms
            self._due_ms[(event.generation, partition)] = due_ms
        self._revoking[event.generation] = event.revoking

    def _forgive(self, event: Decided) -> None:
        generation = event.generation
        ticked_ms = self._ticked_ms.get(generation, self._started_ms[generation])
        self._ticked_ms[generation] = event.monotonic_ms
        gap_ms = event.monotonic_ms - ticked_ms
        if gap_ms <= event.lease_ms // 2 and not _is_away(event):
            return
        self._started_ms[generation] += gap_ms
        for key in self._heard_ms:
            if key[0] == generation:
                self._heard_ms[key] += gap_ms
        for place in self._due_ms:
            if place[0] == generation:
                self._due_ms[place] += gap_ms

    def _hear(self, decided: Decided) -> None:
        event = decided.event
        if isinstance(event, Heartbeat | Commit | Release | Prepared | Leave):
            heard = [(event.member, event.incarnation)]
        elif isinstance(event, Join):
            heard = [(m.member, m.incarnation) for m in event.members]
        else:
            return
        for member, incarnation in heard:
            key = (decided.generation, member, incarnation)
            self._heard_ms[key] = decided.monotonic_ms

    def _has_reason(self, decided: Decided, record: Write) -> bool:
        match record.kind:
            case WriteKind.RELEASE:
                return self._may_release(decided, record)
            case WriteKind.COMMIT:
                return _is_sent(decided, record)
            case WriteKind.CLAIM:
                return decided.target.get(record.partition) == record.owner
        return True

    def _may_release(self, decided: Decided, record: Write) -> bool:
        event, owner = decided.event, (record.owner, record.incarnation)
        match event:
            case None:
                return owner not in self._registered.get(decided.generation, set())
            case Release():
                sent = any(
                    (row.partition, row.epoch) == (record.partition, record.epoch)
                    for row in event.rows
                )
                return sent and owner == (event.member, event.incarnation)
            case Died():
                return owner == (event.member, event.incarnation)
            case Join():
                return any(
                    m.member == record.owner and m.incarnation > record.incarnation
                    for m in event.members
                )
            case Tick():
                return self._is_over(decided, record)
        return False

    def _is_over(self, decided: Decided, record: Write) -> bool:
        assert record.owner is not None
        place = (decided.generation, record.partition)
        asked_back = record.partition in self._revoking.get(decided.generation, ())
        if asked_back and decided.monotonic_ms >= self._due_ms[place]:
            return True
        started_ms = self._started_ms[decided.generation]
        key = (decided.generation, record.owner, record.incarnation)
        silent_ms = decided.monotonic_ms - self._heard_ms.get(key, started_ms)
        return silent_ms >= decided.lease_ms


class LeastMovement(Checker):
    """A new target moves no more partitions than any fair one would have to (sticky only)."""

    def __init__(self) -> None:
        super().__init__()
        self._partitions = 0

    def on_led(self, event: Led) -> None:
        """How many partitions there are."""
        self._partitions = len(event.snapshot.partitions)

    def on_decided(self, event: Decided) -> None:
        """Count what moves."""
        retargeted = event.event is None or isinstance(event.event, _RETARGETING)
        if event.assignor != "sticky" or not self._partitions or not event.target_before:
            return  # what nobody has cannot be taken away
        if not retargeted and event.target == event.target_before:
            return
        moved = sum(
            event.target.get(partition) != owner for partition, owner in event.target_before.items()
        )
        least = minimum_movement(event.members, self._partitions, event.target_before)
        if moved != least:
            self.broken(
                event.at_ms, f"{event.event} moves {moved} partitions where {least} have to"
            )


class PromptDeadlines(Checker):
    """What was asked back is taken at the first look after its deadline."""

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[tuple[int, PartitionId], int] = {}
        self._ticked_ms: dict[int, int] = {}

    def on_decided(self, event: Decided) -> None:
        """Watch what is asked back, and what a tick leaves."""
        generation = event.generation
        ticked_ms = self._ticked_ms.setdefault(generation, event.monotonic_ms)
        known = [p for g, p in self._due if g == generation]
        for partition in known:
            if partition not in event.revoking:
                del self._due[(generation, partition)]
        if isinstance(event.event, Tick):
            self._ticked_ms[generation] = event.monotonic_ms
            gap_ms = event.monotonic_ms - ticked_ms
            if gap_ms > event.lease_ms // 2 or _is_away(event):
                # It stood still itself, or could keep nothing: such time does not count.
                for partition in known:
                    if (generation, partition) in self._due:
                        self._due[(generation, partition)] += gap_ms
                return
            for (g, partition), due_ms in self._due.items():
                if g == generation and due_ms <= event.monotonic_ms:
                    self.broken(event.at_ms, f"partition {partition} was due at {due_ms}")
        for partition in event.revoking:
            self._due.setdefault(
                (generation, partition), event.monotonic_ms + event.revoke_deadline_ms
            )


def _is_away(decided: Decided) -> bool:
    """Whether the coordinator knew that the registry was away; see OutageMovesNobody."""
    return isinstance(decided.event, Tick) and decided.event.registry_away


def _is_sent(decided: Decided, record: Write) -> bool:
    """Whether a commit is what the event's sender sent, or notes what a dead owner had in hand."""
    event = decided.event
    if isinstance(event, Died):
        return (event.member, event.incarnation) == (record.owner, record.incarnation) and any(
            (call.partition, call.epoch) == (record.partition, record.epoch)
            for call in event.death.calls
        )
    if not isinstance(event, Commit | Release):
        return False
    return (event.member, event.incarnation) == (record.owner, record.incarnation) and any(
        (row.partition, row.epoch, row.progress.checkpoint)
        == (record.partition, record.epoch, record.checkpoint)
        for row in event.rows
    )
