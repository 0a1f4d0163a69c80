"""What goes into a `MemberMachine`, and what comes out of it.

Rules of this file. Plain data only. A *channel* is one line of requests, one at a time: who carries
them asks the machine what is next on each. An *ask* goes to the coordinator, a *fetch* to a buffer;
a *rest* says for how long there is nothing to do. An *effect* is what has to be done here at once,
for the workers or for another channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Protocol

from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.group.events import (
    Assignment,
    Commit,
    Heartbeat,
    Leave,
    Prepared,
    Release,
    Response,
)
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Grant, Incarnation, MemberId, Offset, Outcome, PartitionId

Positions = Mapping[PartitionId, tuple[Epoch, Offset]]


class MemberChannel(IntEnum):
    """The channels of a member. The one of buffer n is FETCH + n."""

    HEARTBEAT = 0
    JOIN = 1
    COMMIT = 2
    RELEASE = 3
    REPORT = 4
    LEAVE = 5
    FETCH = 6


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """What of a group's options its members go by."""

    commit_interval_s: float
    pull_bytes_max: int


# --- what is next on a channel --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinAgain:
    """Be a member again that lost its membership as `lost`."""

    member: MemberId
    lost: Incarnation


@dataclass(frozen=True, slots=True)
class ReportFenced:
    """Logs refused the member as one whose time is over, under these epochs."""

    member: MemberId
    incarnation: Incarnation
    epochs: tuple[tuple[PartitionId, Epoch], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the coordinator, and wait so long at most (None: as long as such a request may take).

    A heartbeat may be kept there for `hold_ms`, until there is news.
    """

    session: ConsumerSession
    request: Heartbeat | JoinAgain | Commit | Release | Prepared | Leave | ReportFenced
    sent_s: float
    wait_s: float | None = None
    hold_ms: int = 0


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read from a buffer, which may wait so long for messages; unanswered by `until_s` it is over.

    One that waits is given up as soon as its channel is woken: something else is to be read.
    """

    session: ConsumerSession
    buffer: int
    positions: Positions
    wait_ms: int
    sent_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done before then (None: before the channel is woken)."""

    until_s: float | None = None


# --- what is answered -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a `JoinAgain`."""

    incarnation: Incarnation
    assignment: Assignment | None


MemberAnswer = Response | Joined | tuple[Outcome, ...] | None


class ReadBatch(Protocol):
    """Messages in a row, as a `Batch` is."""

    @property
    def base_offset(self) -> Offset:
        """Of the first one."""

    @property
    def end_offset(self) -> Offset:
        """Behind the last one."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PartRead:
    """What a fetch brought of one partition; read on at `next_offset`."""

    partition: PartitionId
    batches: tuple[ReadBatch, ...]
    next_offset: Offset
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PartRefused:
    """One partition could not be read. `away`: it is not served now, and is just asked again.

    `start_offset` is the log's, where the offset that was asked for is out of its range.
    """

    partition: PartitionId
    error: Exception
    away: bool = False
    start_offset: Offset | None = None


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WakeChannel:
    """Look at once what is next on this channel."""

    channel: int


@dataclass(frozen=True, slots=True)
class BeginWork:
    """Work on this partition may begin."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class DrainWork:
    """Finish what is in hand, begin nothing new, and say when it has stopped."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class DropWork:
    """The partition is lost: nothing that is still done for it will count."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class Prepare:
    """This partition will come: load what it needs, and say when that is done."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Unprepare:
    """The partition goes elsewhere: what was loaded for it can be dropped."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class TakeIn:
    """Messages to work on, in order."""

    partition: PartitionId
    epoch: Epoch
    batch: Any
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SkipTo:
    """The log has nothing from `offset` to there any more: the work goes on there."""

    partition: PartitionId
    epoch: Epoch
    offset: Offset
    to: Offset


@dataclass(frozen=True, slots=True)
class ForgetBuffer:
    """Find this buffer anew, and connect to it anew, before the next fetch."""

    buffer: int


@dataclass(frozen=True, slots=True)
class ReadingFails:
    """This partition cannot be read, and rests; all others are read on."""

    partition: PartitionId
    error: Exception


@dataclass(frozen=True, slots=True)
class ReadingWorks:
    """This partition can be read again."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """The lease reaches further now: who waits to begin may look again."""


@dataclass(frozen=True, slots=True)
class RoundOver:
    """A round of commits is over."""


@dataclass(frozen=True, slots=True)
class LostMembership:
    """Everything is dropped; the member joins again."""


@dataclass(frozen=True, slots=True)
class WentOn:
    """The member goes on as this incarnation."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class MemberEnded:
    """Nothing more comes of this member; its `failed` says what is wrong, if anything is."""


MemberEffect = (
    WakeChannel
    | BeginWork
    | DrainWork
    | DropWork
    | Prepare
    | Unprepare
    | TakeIn
    | SkipTo
    | ForgetBuffer
    | ReadingFails
    | ReadingWorks
    | LeaseRenewed
    | RoundOver
    | LostMembership
    | WentOn
    | MemberEnded
)
