"""`WriteQueue`: decided records on their way to the store: in order, coalesced, bounded.

Rules of this file. Records are numbered in the order in which they were decided; a reply that waits
for record n may leave when `durable >= n`. One batch is under way at a time. A COMMIT that waits is
replaced by a later one of the same partition and epoch, so what waits is bounded by partitions and
ownership changes however long a store is down. Replacing moves a commit later in the order, and
`durable` never passes a number whose replacement still waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pxrs_ray.errors import CoordinatorDeposed, StoreCorrupted
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Epoch,
    Incarnation,
    MemberId,
    MemberWrite,
    PartitionId,
    Record,
    Snapshot,
    Write,
    WriteKind,
)


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Records to write at once; when they are durable, so is everything up to `through`."""

    records: tuple[Record, ...]
    through: int


class WriteQueue:
    """The records of one group that are decided and not yet durable."""

    def __init__(self) -> None:
        self.durable = 0
        self._decided = 0
        self._waiting: dict[int, Record] = {}
        self._commits: dict[tuple[PartitionId, Epoch], int] = {}
        self._stands_for: dict[int, int] = {}
        self._under_way: WriteBatch | None = None

    def __len__(self) -> int:
        """How many records wait, those under way not counted."""
        return len(self._waiting)

    def pending(self) -> Iterator[Record]:
        """What is decided and not durable, in order."""
        if self._under_way is not None:
            yield from self._under_way.records
        yield from self._waiting.values()

    def push(self, records: Sequence[Record]) -> None:
        """Take on the records of one decision."""
        for record in records:
            self._decided += 1
            if record.version == 0:
                assert isinstance(record, Write)
                key = (record.partition, record.epoch)
                # The key holds the epoch, and no change of owner lies within one epoch: so a commit
                # may move behind the records between the two. One that is under way is in
                # `_commits` no more.
                superseded = self._commits.get(key)
                if superseded is not None:
                    del self._waiting[superseded]
                    # The earliest number that waits for this commit now.
                    earliest = self._stands_for.pop(superseded, superseded)
                    self._stands_for[self._decided] = earliest
                self._commits[key] = self._decided
            self._waiting[self._decided] = record

    def take(self, records_max: int) -> WriteBatch | None:
        """The next batch to write, or None while there is none or one is under way."""
        if self._under_way is not None or not self._waiting:
            return None
        numbers = list(self._waiting)[:records_max]
        records = tuple(self._waiting.pop(n) for n in numbers)
        for number, record in zip(numbers, records, strict=True):
            self._stands_for.pop(number, None)
            if record.version == 0:
                assert isinstance(record, Write)
                del self._commits[(record.partition, record.epoch)]
        # A number whose commit was superseded is durable only with the commit that replaced it.
        through = min([numbers[-1], *(n - 1 for n in self._stands_for.values())])
        self._under_way = WriteBatch(records, through)
        return self._under_way

    def done(self) -> None:
        """The batch under way is durable."""
        assert self._under_way is not None
        self.durable = max(self.durable, self._under_way.through)
        self._under_way = None


StoredOwner = tuple[MemberId | None, Incarnation, Epoch]


def stored_owners(pending: Iterable[Record]) -> dict[PartitionId, StoredOwner]:
    """Who owns in the store what these records, which are not in it yet, will change."""
    found: dict[PartitionId, StoredOwner] = {}
    for record in pending:
        if isinstance(record, Write) and record.kind is not WriteKind.COMMIT:
            released = record.kind is WriteKind.RELEASE
            owner = record.owner if released else None
            incarnation = record.incarnation if released else 0
            found.setdefault(record.partition, (owner, incarnation, record.epoch))
    return found


def check_stored(batch: WriteBatch, snapshot: Snapshot | None, generation: int) -> None:
    """Decide what a refusal means, after the store has been read again.

    A batch whose first answer was lost may be refused when it is repeated although all of it was
    applied: a later record of it has moved a row past an earlier one. So the stored rows decide.
    Returns when they are what the whole batch makes of them.

    Raises CoordinatorDeposed when a newer generation leads the group, and StoreCorrupted when
    the store contradicts writes that it had accepted.
    """
    if snapshot is not None and snapshot.generation > generation:
        raise CoordinatorDeposed(
            f"generation {generation} of {snapshot.group} was replaced by {snapshot.generation}"
        )
    if snapshot is None or snapshot.generation < generation:
        held = "nothing" if snapshot is None else f"generation {snapshot.generation}"
        raise StoreCorrupted(
            f"the registry holds {held} where generation {generation} was accepted before: it has "
            "lost accepted writes (was it restarted without persistence?)"
        )
    members = {member.member: member.incarnation for member in snapshot.members}
    last: dict[object, Record] = {}
    for record in batch.records:
        key = record.member.member if isinstance(record, MemberWrite) else record.partition
        last[key] = record
    for record in last.values():
        if not _is_stored(record, snapshot, members):
            raise StoreCorrupted(
                f"the registry refused {record} under its own generation {generation}: it has lost "
                "accepted writes, or something else writes to it"
            )


def _is_stored(record: Record, snapshot: Snapshot, members: dict[str, int]) -> bool:
    if isinstance(record, MemberWrite):
        stored = members.get(record.member.member)
        if record.kind == "left":
            # The join of this very incarnation may land late once more, after its end: a ghost
            # that the next coordinator's leases bury, and no sign of a store that forgets.
            return stored in (None, record.member.incarnation)
        return stored == record.member.incarnation
    row = snapshot.partitions[record.partition]
    if record.kind is WriteKind.COMMIT:
        return row.epoch == record.epoch and row.checkpoint == record.checkpoint
    return row.epoch == record.epoch_after and row.owner == (
        record.owner if record.kind is WriteKind.CLAIM else None
    )
