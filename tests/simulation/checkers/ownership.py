"""One owner at a time, as the log, the store and the consumers see it."""

from __future__ import annotations

from pxrs_ray.model import (
    Epoch,
    Incarnation,
    MemberId,
    Offset,
    Outcome,
    PartitionId,
    PartitionRow,
    Write,
    WriteKind,
)
from tests.simulation.checkers.base import Checker
from tests.simulation.history import (
    Answered,
    Appended,
    Asked,
    Begun,
    Fetched,
    Harmed,
    Led,
    Obeyed,
    Processed,
    PutAside,
    Stored,
)

Owner = tuple[MemberId, Incarnation]
Reign = tuple[PartitionId, Epoch]


class OneReader(Checker):
    """Once the log has served an epoch, it serves no lower one; an epoch has one reader."""

    def __init__(self) -> None:
        super().__init__()
        self._newest: dict[PartitionId, Epoch] = {}
        self._reader: dict[Reign, Owner] = {}

    def on_harmed(self, _: Harmed) -> None:
        """What a power cut makes a log forget, the coordinator knows."""
        self._newest.clear()

    def on_fetched(self, event: Fetched) -> None:
        """Compare with what was served before."""
        newest = self._newest.get(event.partition, 0)
        if event.epoch < newest:
            self.broken(event.at_ms, f"served {event} after epoch {newest}")
        self._newest[event.partition] = max(newest, event.epoch)
        reader = self._reader.setdefault(
            (event.partition, event.epoch), (event.member, event.incarnation)
        )
        if reader != (event.member, event.incarnation):
            self.broken(event.at_ms, f"served {event} though {reader} reads under that epoch")


class OneOwner(Checker):
    """An epoch belongs to one owner; once a commit of an epoch was taken, no lower one is."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: dict[Reign, Owner] = {}
        self._committed: dict[PartitionId, Epoch] = {}

    def on_stored(self, event: Stored) -> None:
        """Watch claims and commits that changed something."""
        record = event.record
        if not isinstance(record, Write) or event.before == event.after:
            return
        if record.kind is WriteKind.CLAIM:
            assert record.owner is not None
            self._owns(event.at_ms, record.partition, record.epoch_after, record)
        elif record.kind is WriteKind.COMMIT:
            self._owns(event.at_ms, record.partition, record.epoch, record)
            newest = self._committed.get(record.partition, 0)
            if record.epoch < newest:
                self.broken(event.at_ms, f"{record} was taken after a commit of epoch {newest}")
            self._committed[record.partition] = max(newest, record.epoch)

    def on_answered(self, event: Answered) -> None:
        """A member that is told of success must be the owner."""
        for row, outcome in zip(event.rows, event.outcomes, strict=True):
            owner = self._owner.get((row.partition, row.epoch))
            if outcome is not Outcome.FENCED and owner not in (
                None,
                (event.member, event.incarnation),
            ):
                self.broken(
                    event.at_ms, f"{event.member}#{event.incarnation}: {row}, owner is {owner}"
                )

    def _owns(self, at_ms: int, partition: PartitionId, epoch: Epoch, record: Write) -> None:
        assert record.owner is not None
        owner = self._owner.setdefault((partition, epoch), (record.owner, record.incarnation))
        if owner != (record.owner, record.incarnation):
            self.broken(at_ms, f"{record} was taken, but epoch {epoch} belongs to {owner}")


class CheckpointsHold(Checker):
    """Checkpoints fall only by a reset, and pass neither the log's end nor what was processed."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[PartitionId, Offset] = {}
        self._done: dict[Reign, Offset] = {}
        self._fetched: dict[Reign, Offset] = {}
        self._rows: dict[PartitionId, PartitionRow] = {}

    def on_appended(self, event: Appended) -> None:
        """The log grows."""
        self._ends[event.partition] = event.offset + 1

    def on_fetched(self, event: Fetched) -> None:
        """An owner may know of these."""
        reign = (event.partition, event.epoch)
        self._fetched[reign] = max(event.end, self._fetched.get(reign, 0))

    def on_processed(self, event: Processed | PutAside) -> None:
        """An owner may commit this."""
        self._done[(event.partition, event.epoch)] = event.offset + 1
        if self._fetched and event.offset >= self._fetched.get((event.partition, event.epoch), 0):
            self.broken(event.at_ms, f"{event} was never fetched under that epoch")

    on_putaside = on_processed

    def on_led(self, event: Led) -> None:
        """What was stored is still there."""
        for row in event.snapshot.partitions:
            known = self._rows.get(row.partition, row)
            if known != row:
                self.broken(event.at_ms, f"the store held {known}, and now {row}")

    def on_stored(self, event: Stored) -> None:
        """Compare each new checkpoint with what there is."""
        record, before, after = event.record, event.before, event.after
        if not isinstance(record, Write) or before is None or after is None:
            return
        self._rows[after.partition] = after
        if after.checkpoint == before.checkpoint:
            return
        partition, checkpoint = after.partition, after.checkpoint
        if checkpoint < before.checkpoint and record.kind is not WriteKind.RESET:
            self.broken(event.at_ms, f"{record} lowered {before.checkpoint} to {checkpoint}")
        if self._ends and checkpoint > self._ends.get(partition, 0):
            self.broken(event.at_ms, f"{record}: the log ends at {self._ends.get(partition, 0)}")
        if record.kind is WriteKind.COMMIT and self._done:
            done = self._done.get((partition, record.epoch), 0)
            if checkpoint > done:
                self.broken(event.at_ms, f"{record}: its owner has processed up to {done} only")


class ConsumerObeys(Checker):
    """A consumer takes assignments in their order, and stops what is not granted any more.

    It says of those that it is to prepare that it has, and reads nothing while it is paused.

    A message that a handler is busy with when its partition is lost is still finished: each that
    was seen to begin before, and one where nobody notes what begins.
    """

    def __init__(self) -> None:
        super().__init__()
        self._in_hand: set[tuple[Owner, PartitionId, Epoch, Offset]] = set()
        self._seen: dict[Owner, tuple[int, int]] = {}
        self._granted: dict[Owner, dict[PartitionId, Epoch]] = {}
        self._preparing: dict[Owner, set[PartitionId]] = {}
        self._paused: dict[Owner, bool] = {}
        self._finished_late: set[tuple[Owner, PartitionId, Epoch]] = set()

    def on_obeyed(self, event: Obeyed) -> None:
        """Take note of the newest assignment."""
        told = event.assignment
        owner = (told.member, told.incarnation)
        order = (told.generation, told.sequence)
        if order < self._seen.get(owner, (0, 0)):
            self.broken(event.at_ms, f"{owner} took {order} after {self._seen[owner]}")
        self._seen[owner] = order
        self._granted[owner] = {grant.partition: grant.epoch for grant in told.grants}
        self._preparing[owner] = {grant.partition for grant in told.preparing}
        self._paused[owner] = told.paused

    def on_asked(self, event: Asked) -> None:
        """Only what comes is prepared, and a group that is paused reads nothing."""
        owner = (event.member, event.incarnation)
        preparing = self._preparing.get(owner, set())
        if event.what == "Prepared" and not preparing.issuperset(event.partitions):
            self.broken(event.at_ms, f"{event}: it is to prepare {preparing}")
        if event.what == "fetch" and self._paused.get(owner, False):
            self.broken(event.at_ms, f"{event}: its group is paused")

    def on_begun(self, event: Begun) -> None:
        """Nothing is begun of what is lost."""
        owner = (event.member, event.incarnation)
        if self._granted and self._granted.get(owner, {}).get(event.partition) != event.epoch:
            self.broken(event.at_ms, f"{event}: it began with a partition that it had lost")
        self._in_hand.add((owner, event.partition, event.epoch, event.offset))

    def on_processed(self, event: Processed) -> None:
        """Compare with the newest assignment."""
        owner = (event.member, event.incarnation)
        begun = (owner, event.partition, event.epoch, event.offset)
        was_begun = begun in self._in_hand
        self._in_hand.discard(begun)
        if not self._granted or was_begun:
            return
        if self._granted.get(owner, {}).get(event.partition) == event.epoch:
            return
        late = (owner, event.partition, event.epoch)
        if late in self._finished_late:
            self.broken(event.at_ms, f"{event}: it went on with a partition that it had lost")
        self._finished_late.add(late)
