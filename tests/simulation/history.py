"""What happened, as plain records: what checkers judge, whoever wrote it down.

Rules of this file: data only, which nobody changes; frozen, it would take thrice as long to make.
A history is a list of these in the order in which they happened; one history is about one group of
one queue. Simulated runs record everything; a run on real Ray records what it can see, and a
checker that misses a kind of record judges nothing by it.
Each record is written down by the one that did it: an append by the log, a commit by the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pxrs_ray.group.events import Assignment, Event, PartitionProgress
from pxrs_ray.model import (
    Epoch,
    Generation,
    Incarnation,
    Member,
    MemberId,
    Offset,
    Outcome,
    PartitionId,
    PartitionRow,
    Record,
    Snapshot,
)


@dataclass(slots=True)
class Appended:
    """The log took one message in, which is the one at `within` of its frame."""

    at_ms: int
    partition: PartitionId
    offset: Offset
    key: bytes
    message: str
    producer: str
    producer_epoch: int
    sequence: int
    within: int = 0


@dataclass(slots=True)
class Acknowledged:
    """A producer was told that its message is in the log at `offset`."""

    at_ms: int
    partition: PartitionId
    offset: Offset
    message: str


@dataclass(slots=True)
class Fetched:
    """The log served a read of the offsets from `base` up to, not including, `end`."""

    at_ms: int
    partition: PartitionId
    epoch: Epoch
    member: MemberId
    incarnation: Incarnation
    base: Offset
    end: Offset


@dataclass(slots=True)
class Begun:
    """A handler is called with one message."""

    at_ms: int
    partition: PartitionId
    epoch: Epoch
    member: MemberId
    incarnation: Incarnation
    offset: Offset


@dataclass(slots=True)
class Asked:
    """A member asks the coordinator, or the log: "fetch", "Commit", "Release", "Prepared"...

    `partitions` are those that it is about.
    """

    at_ms: int
    member: MemberId
    incarnation: Incarnation
    what: str
    partitions: tuple[PartitionId, ...]


@dataclass(slots=True)
class Unserved:
    """A member learns that the buffer is away."""

    at_ms: int
    member: MemberId
    incarnation: Incarnation


@dataclass(slots=True)
class Processed:
    """A handler finished one message: its side effects have happened."""

    at_ms: int
    partition: PartitionId
    epoch: Epoch
    member: MemberId
    incarnation: Incarnation
    offset: Offset
    key: bytes
    message: str


@dataclass(slots=True)
class Raised:
    """A handler failed with a message."""

    at_ms: int
    partition: PartitionId
    offset: Offset


@dataclass(slots=True)
class PutAside:
    """A message is kept where its policy says, after so many failures as it allows: it is done."""

    at_ms: int
    partition: PartitionId
    epoch: Epoch
    member: MemberId
    incarnation: Incarnation
    offset: Offset
    key: bytes
    message: str
    attempts_max: int


@dataclass(slots=True)
class HandlersDied:
    """A process died while its handlers had these in hand: partition, first offset, end."""

    at_ms: int
    member: MemberId
    places: tuple[tuple[PartitionId, Offset, Offset], ...]


@dataclass(slots=True)
class Led:
    """A coordinator took the lead and read this from the store."""

    at_ms: int
    generation: Generation
    snapshot: Snapshot


@dataclass(slots=True)
class Decided:
    """A coordinator decided on `event` (None: its start). What it knew then, and what it made.

    `members` are those that share partitions now. `target_before` is who had, or was about to
    get, each partition before the event, `target` who should own it now. `revoking` is what is
    asked back now, `seeking` what is to be reset. Ticks are recorded too, also empty ones.
    """

    at_ms: int
    monotonic_ms: int
    generation: Generation
    event: Event | None
    records: tuple[Record, ...]
    members: tuple[Member, ...]
    assignor: str
    target_before: Mapping[PartitionId, MemberId]
    target: Mapping[PartitionId, MemberId]
    revoking: frozenset[PartitionId]
    seeking: frozenset[PartitionId]
    lease_ms: int
    revoke_deadline_ms: int


@dataclass(slots=True)
class Stored:
    """The store answered one record. `repeat` says that the same record had been sent before.

    `before` and `after` are the partition's row around it, None where no partition is concerned.
    """

    at_ms: int
    generation: Generation
    record: Record
    outcome: Outcome
    before: PartitionRow | None
    after: PartitionRow | None
    repeat: bool


@dataclass(slots=True)
class Answered:
    """The answer to a commit (or a release, which `released` tells) leaves the coordinator."""

    at_ms: int
    generation: Generation
    member: MemberId
    incarnation: Incarnation
    rows: tuple[PartitionProgress, ...]
    outcomes: tuple[Outcome, ...]
    released: bool


@dataclass(slots=True)
class Refused:
    """A coordinator of this generation tells an incarnation that it is no member."""

    at_ms: int
    generation: Generation
    member: MemberId
    incarnation: Incarnation


@dataclass(slots=True)
class RegistryAway:
    """The registry answers nothing from now on, or does again."""

    at_ms: int
    away: bool


@dataclass(slots=True)
class Struck:
    """The simulator lets this fault happen, the `number`th of its run."""

    at_ms: int
    number: int
    fault: str


@dataclass(slots=True)
class Harmed:
    """The buffer's disk is not what it was; `loses` says that what was acknowledged may be gone."""

    at_ms: int
    how: str
    loses: bool


@dataclass(slots=True)
class Reported:
    """The coordinator heard how far a log has come."""

    at_ms: int
    partition: PartitionId
    end: Offset


@dataclass(slots=True)
class Kept:
    """What a log holds when all is at rest, read from its start to its end."""

    at_ms: int
    partition: PartitionId
    start: Offset
    messages: Mapping[Offset, str]


@dataclass(slots=True)
class Told:
    """An assignment leaves the coordinator for its member."""

    at_ms: int
    assignment: Assignment


@dataclass(slots=True)
class Obeyed:
    """A consumer made this assignment its truth."""

    at_ms: int
    assignment: Assignment


@dataclass(slots=True)
class FeedDone:
    """A feed reported that it is done. What its report says, and by Spark partition what it was
    given: more than one list of rows where Spark computed them differently."""

    at_ms: int
    feed: str
    rows: int
    rows_already: int
    partition_rows: tuple[int, ...]
    spark_partitions: int
    given: Mapping[int, tuple[tuple[str, ...], ...]]


@dataclass(slots=True)
class FeedEnded:
    """A run of a feed ended otherwise: `error` says why; `alone` is whether no other data was ever
    fed under its name."""

    at_ms: int
    feed: str
    error: str
    conflict: bool
    alone: bool


@dataclass(slots=True)
class Ended:
    """The faults stopped long ago: this is where things stand.

    `rows` are the stored ones, `ends` the ends of the logs, `members` who lives and works.
    `pending` names, for people, whatever still waits for something.
    """

    at_ms: int
    rows: tuple[PartitionRow, ...]
    ends: Mapping[PartitionId, Offset]
    members: tuple[tuple[MemberId, Incarnation], ...]
    pending: tuple[str, ...] = ()


@dataclass(slots=True)
class Failed:
    """Something raised what it never should: an assertion, an illegal event, a corrupt store."""

    at_ms: int
    where: str
    error: str


HistoryEvent = (
    Appended
    | Acknowledged
    | Fetched
    | Begun
    | Asked
    | Unserved
    | Processed
    | Raised
    | PutAside
    | HandlersDied
    | Led
    | Decided
    | Stored
    | Answered
    | Refused
    | RegistryAway
    | Struck
    | Harmed
    | Kept
    | FeedDone
    | FeedEnded
    | Reported
    | Told
    | Obeyed
    | Ended
    | Failed
)
History = Sequence[HistoryEvent]
