"""What is told is durable; what is stale is refused, by the core and by the store, each alone."""

from __future__ import annotations

from pxrs_ray.model import (
    Epoch,
    Generation,
    Incarnation,
    MemberId,
    MemberWrite,
    Offset,
    Outcome,
    PartitionId,
    PartitionRow,
    Write,
    WriteKind,
)
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Answered, Led, Stored, Told

Reign = tuple[PartitionId, Epoch]


class StoreRefuses(Checker):
    """The store takes no write of an older generation, and none whose condition does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self._generation: Generation = 0

    def on_led(self, event: Led) -> None:
        """From now on older generations are refused."""
        self._generation = max(self._generation, event.generation)

    def on_stored(self, event: Stored) -> None:
        """Judge what the store made of one record."""
        if event.outcome is not Outcome.APPLIED:
            if event.before != event.after:
                self.broken(event.at_ms, f"{event} was refused and yet changed something")
            return
        if event.generation < self._generation:
            self.broken(event.at_ms, f"{event} was taken under generation {self._generation}")
        record, before, after = event.record, event.before, event.after
        if not isinstance(record, Write) or before is None or after is None:
            return
        if before != after and not _may_change(before, record):
            self.broken(event.at_ms, f"{record} was taken on {before}")
        if not _is_made(after, record):
            self.broken(event.at_ms, f"{record} was taken, and the row is {after}")


class LiveRecordsTaken(Checker):
    """The store never has to refuse what the living coordinator decided: the core is right alone.

    The claim that it stores carries the checkpoint that the core promised to the new owner.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generation: Generation = 0

    def on_led(self, event: Led) -> None:
        """The newest generation is the living one."""
        self._generation = max(self._generation, event.generation)

    def on_stored(self, event: Stored) -> None:
        """Judge the first arrival of each record of the living generation."""
        if event.repeat or event.generation != self._generation:
            return
        if event.outcome is not Outcome.APPLIED:
            self.broken(event.at_ms, f"{event.record} was {event.outcome.value} on {event.before}")
        record, after = event.record, event.after
        if (
            isinstance(record, Write)
            and record.kind is WriteKind.CLAIM
            and after is not None
            and after.checkpoint != record.checkpoint
        ):
            self.broken(event.at_ms, f"{record} was stored as {after}")


class DurableReplies(Checker):
    """What a member is told is in the store at that moment, and still after any recovery."""

    def __init__(self) -> None:
        super().__init__()
        self._stored: dict[Reign, Offset] = {}
        self._owner: dict[Reign, tuple[MemberId | None, Incarnation]] = {}
        self._epoch: dict[PartitionId, Epoch] = {}
        self._promised: dict[PartitionId, tuple[Epoch, Offset]] = {}
        self._joined: dict[MemberId, Incarnation] = {}
        self._watching = False

    def on_led(self, event: Led) -> None:
        """Recovery: every acknowledged checkpoint must have come back."""
        self._watching = True
        for member in event.snapshot.members:
            self._joined[member.member] = member.incarnation
        for row in event.snapshot.partitions:
            self._note(row)
            _, promised = self._promised.get(row.partition, (0, 0))
            if row.checkpoint < promised:
                self.broken(event.at_ms, f"{promised} was acknowledged, recovered is {row}")

    def on_stored(self, event: Stored) -> None:
        """Take note of what is durable."""
        record = event.record
        if isinstance(record, MemberWrite):
            if record.kind == "joined" and event.outcome is Outcome.APPLIED:
                newest = self._joined.get(record.member.member, 0)
                self._joined[record.member.member] = max(newest, record.member.incarnation)
        elif event.after is not None:
            self._note(event.after)
            if record.kind is WriteKind.RESET and event.before != event.after:
                self._promised[record.partition] = (event.after.epoch, 0)

    def on_answered(self, event: Answered) -> None:
        """A commit or release that is acknowledged must be durable."""
        if not self._watching:
            return
        for row, outcome in zip(event.rows, event.outcomes, strict=True):
            if outcome is Outcome.FENCED:
                continue
            stored = self._stored.get((row.partition, row.epoch), -1)
            if outcome is Outcome.APPLIED and stored < row.progress.checkpoint:
                self.broken(event.at_ms, f"{event.member} was told of {row}, stored is {stored}")
            if event.released and self._epoch.get(row.partition, 0) <= row.epoch:
                self.broken(event.at_ms, f"{event.member} was told of the release of {row}")
            epoch, promised = self._promised.get(row.partition, (0, 0))
            if row.epoch >= epoch:
                at_least = max(promised, row.progress.checkpoint)
                self._promised[row.partition] = (epoch, at_least)

    def on_told(self, event: Told) -> None:
        """An assignment that leaves must be durable: the join, every claim, every checkpoint."""
        told = event.assignment
        if not self._watching:
            return
        if self._joined.get(told.member, 0) < told.incarnation:
            self.broken(event.at_ms, f"{told.member}#{told.incarnation} is told, and not stored")
        for grant in told.grants:
            reign = (grant.partition, grant.epoch)
            if self._owner.get(reign) != (told.member, told.incarnation):
                self.broken(event.at_ms, f"{told.member}#{told.incarnation} is told of {grant}")
            elif self._stored[reign] < grant.checkpoint:
                self.broken(event.at_ms, f"{grant} is told, stored is {self._stored[reign]}")

    def _note(self, row: PartitionRow) -> None:
        self._stored[(row.partition, row.epoch)] = row.checkpoint
        self._owner[(row.partition, row.epoch)] = (row.owner, row.incarnation)
        self._epoch[row.partition] = row.epoch


def _may_change(row: PartitionRow, write: Write) -> bool:
    """Whether the condition of `write` holds on `row`, as the contract words it."""
    if row.epoch != write.epoch:
        return False
    if write.kind in (WriteKind.CLAIM, WriteKind.RESET):
        return row.owner is None
    owned = (row.owner, row.incarnation) == (write.owner, write.incarnation)
    return owned and (write.kind is WriteKind.RELEASE or row.checkpoint <= write.checkpoint)


def _is_made(row: PartitionRow, write: Write) -> bool:
    """Whether `row` is what `write` makes."""
    if write.kind is WriteKind.COMMIT:
        return row.epoch == write.epoch and row.checkpoint == write.checkpoint
    owner = (write.owner, write.incarnation) if write.kind is WriteKind.CLAIM else (None, 0)
    return row.epoch == write.epoch_after and (row.owner, row.incarnation) == owner
