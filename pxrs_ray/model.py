"""The nouns that every part of PXRS shares.

Rules of this file: frozen data only, no behaviour beyond a check of its own invariants, no
import of another PXRS module except errors. An offset counts messages of one partition and
starts at 0; a checkpoint is the NEXT offset to process; an epoch rises by one at each claim
and at each release; time is milliseconds since 1970, as an int, with the unit in the name.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from pxrs_ray.late_dataclass import dataclass

PartitionId = int
Offset = int
Epoch = int
Generation = int
MemberId = str
Incarnation = int
Slot = int  # of a buffer: its number, wherever it is at home

# Which log: the queue, and the partition in it.
QueuePartition = tuple[str, PartitionId]


class WriteKind(StrEnum):
    """What a `Write` does to a partition row."""

    CLAIM = "claim"
    RELEASE = "release"
    COMMIT = "commit"
    RESET = "reset"


class Strategy(StrEnum):
    """How the partition of a message is found."""

    MODULO = "modulo"
    JUMP = "jump"
    TENANT = "tenant"
    ROUND_ROBIN = "round_robin"
    LABEL = "label"
    BROADCAST = "broadcast"


# The header that names a message's tenant, where nothing says otherwise.
TENANT_HEADER = "tenant"
# The most partitions of a queue, and so of a group.
PARTITIONS_MAX = 65_536
CONSUMERS_MAX = 10_000
# Strategies that need more than a key, and a dead letter has no more.
NOT_FOR_DEAD_LETTERS = (Strategy.TENANT, Strategy.LABEL, Strategy.BROADCAST)


class AssignorName(StrEnum):
    """The built-in assignors: how a group's partitions are distributed over its members."""

    STICKY = "sticky"
    RANGE = "range"
    ROUND_ROBIN = "round_robin"
    TENANT = "tenant"
    STATIC = "static"


class HashName(StrEnum):
    """The hash functions of keys."""

    XXH64 = "xxh64"
    MURMUR3_128 = "murmur3_128"
    MURMUR3_32 = "murmur3_32"
    SHA256 = "sha256"
    CRC32 = "crc32"
    JAVA = "java"


class Outcome(StrEnum):
    """What became of one conditional write. Not knowing is neither: it is `StoreUnavailable`."""

    APPLIED = "applied"
    FENCED = "fenced"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a partition is: what its row in the registry will contain.

    Everything below `checkpoint` is done; `detail` holds what is done above it, and which messages
    have failed how often, or are suspected of having killed a process; `attempts` are those of the
    message at the checkpoint.
    """

    checkpoint: Offset
    attempts: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of one group, as the registry keeps it.

    `checkpoint`, `attempts` and `detail` are its `progress`, and survive a hand-over; here `detail`
    is an opaque, bounded, printable-ASCII string. `owner` is None, never '', when nobody owns the
    partition, and then `incarnation` is 0.
    """

    partition: PartitionId
    owner: MemberId | None = None
    incarnation: Incarnation = 0
    epoch: Epoch = 0
    checkpoint: Offset = 0
    attempts: int = 0
    detail: str = ""

    def __post_init__(self) -> None:
        assert self.owner != "", "no owner is None, never ''"
        assert self.checkpoint >= 0 and self.epoch >= 0 and self.attempts >= 0
        assert (self.owner is None) == (self.incarnation == 0)

    @property
    def progress(self) -> Progress:
        """How far its owner has come, or had."""
        return Progress(self.checkpoint, self.attempts, self.detail)

    def is_at(self, done: Progress) -> bool:
        """Whether that is its progress. Makes no object: every commit asks."""
        return (
            self.checkpoint == done.checkpoint
            and self.attempts == done.attempts
            and self.detail == done.detail
        )


@dataclass(frozen=True, slots=True)
class Write:
    """One conditional, idempotent change of a partition row: a record of the coordinator.

    What each kind requires of the stored row, and what it makes of it (`epoch` is always the
    epoch that the row must have BEFORE the write):

    * CLAIM: no owner, epoch == `epoch`  ->  owner, incarnation, epoch + 1
    * RELEASE: owner, incarnation and epoch as given  ->  no owner, epoch + 1
    * COMMIT: owner, incarnation and epoch as given, stored checkpoint <= `checkpoint`
      ->  checkpoint, attempts, detail
    * RESET: no owner, epoch == `epoch`  ->  checkpoint, attempts 0, detail '', and an epoch
      that is `epoch_to`, but at least epoch + 1; the only write that may lower a checkpoint,
      which is why it needs an epoch of its own, and the only one that may leave epochs out

    `version` numbers the ownership changes of a group (CLAIM, RELEASE, RESET), rising by one
    from 1; a COMMIT has version 0 and is not part of the history. `cause` says why, in words
    that an operator reads; `at_ms` is when the coordinator decided.
    """

    kind: WriteKind
    partition: PartitionId
    owner: MemberId | None
    incarnation: Incarnation
    epoch: Epoch
    checkpoint: Offset = 0
    attempts: int = 0
    detail: str = ""
    version: int = 0
    cause: str = ""
    at_ms: int = 0
    epoch_to: Epoch = 0

    def __post_init__(self) -> None:
        assert (self.version == 0) == (self.kind is WriteKind.COMMIT), "only commits are unnumbered"
        assert self.owner != ""
        assert not self.epoch_to or self.kind is WriteKind.RESET, "only a reset leaves epochs out"

    @property
    def epoch_after(self) -> Epoch:
        """The epoch that the row has when this is applied."""
        if self.kind is WriteKind.COMMIT:
            return self.epoch
        return max(self.epoch + 1, self.epoch_to)

    def applied_to(self, row: PartitionRow) -> PartitionRow:
        """What it makes of a row that fulfils its condition.

        Whether the row does, the core and each store judge for themselves: neither relies on the
        other.
        """
        at = row.partition
        if self.kind is WriteKind.COMMIT:  # nearly all writes are commits
            return PartitionRow(
                at,
                row.owner,
                row.incarnation,
                row.epoch,
                self.checkpoint,
                self.attempts,
                self.detail,
            )
        match self.kind:
            case WriteKind.RESET:
                return PartitionRow(at, None, 0, self.epoch_after, self.checkpoint)
            case WriteKind.CLAIM:
                who = (self.owner, self.incarnation)
            case WriteKind.RELEASE:
                who = (None, 0)
        return PartitionRow(at, *who, self.epoch_after, row.checkpoint, row.attempts, row.detail)


@dataclass(frozen=True, slots=True)
class Change:
    """One numbered entry of a group's history: an ownership change, or a membership change.

    `kind` is a `WriteKind` value, or 'joined', 'left' or 'led' (a coordinator took over; then
    `epoch` is its generation). `epoch` and `checkpoint` are those AFTER the change. `partition`
    is -1 where no partition is concerned.
    """

    version: int
    kind: str
    partition: PartitionId
    owner: MemberId | None
    incarnation: Incarnation
    epoch: Epoch
    checkpoint: Offset
    cause: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of a group. The newest incarnation of an id wins; older ones are fenced.

    `weight` is its share of the partitions against the others'. `grace_ms` is how long its
    partitions wait for it after a death (static membership); 0 hands them on at once.
    """

    member: MemberId
    incarnation: Incarnation
    weight: float = 1.0
    grace_ms: int = 0
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.member and self.incarnation >= 1 and self.weight > 0 and self.grace_ms >= 0


@dataclass(frozen=True, slots=True)
class MemberWrite:
    """One conditional, idempotent change of a group's membership: a record of the coordinator.

    `kind` is 'joined' (requires that no newer incarnation of the id is stored; stores the member
    and starts a lease of `lease_ms` by the store's clock) or 'left' (removes exactly this
    incarnation; an absent id is success, a newer incarnation refuses). Numbered in the same
    sequence of versions as the ownership changes.
    """

    kind: str
    member: Member
    lease_ms: int
    version: int
    cause: str = ""
    at_ms: int = 0

    def __post_init__(self) -> None:
        assert self.kind in ("joined", "left") and self.version >= 1


Record = Write | MemberWrite


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the registry holds of one group, read at one moment.

    `members` are all that have joined and not left, also those whose lease is over.
    `last_version` is at least that of the newest entry of the history.
    """

    group: str
    generation: Generation
    partitions: tuple[PartitionRow, ...]
    members: tuple[Member, ...]
    last_version: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to read one partition from `checkpoint` on, for as long as `epoch` is current.

    `sought` is the last seek that moved the partition, as far as its coordinator has seen it: the
    offset that it was moved to, and the epoch which that made.
    """

    partition: PartitionId
    epoch: Epoch
    checkpoint: Offset
    attempts: int = 0
    detail: str = ""
    sought: tuple[Offset, Epoch] | None = None

    @property
    def progress(self) -> Progress:
        """From where to go on."""
        return Progress(self.checkpoint, self.attempts, self.detail)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a handler sees it. Key and payload are bytes to us; nothing unpickles them."""

    partition: PartitionId
    offset: Offset
    key: bytes | None
    payload: bytes
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = field(default=())
    id: str | None = None
