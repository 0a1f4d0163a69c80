"""The answers of `status`, `lag` and `history`: frozen data that prints well.

Rules of this file: plain numbers with units in their names, no connection to anything alive. Each
is shown by its view (`pxrs_ray.status.views`): as text (`repr`), and as HTML in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from pxrs_ray.data.delay import is_of_delays
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Change, Epoch, Incarnation, MemberId, Offset, PartitionId
from pxrs_ray.status.places import BufferStatus, SpreadStep
from pxrs_ray.status.problem import Problem, Report
from pxrs_ray.status.stalls import Stall

if TYPE_CHECKING:
    from pxrs_ray.status.rendering import View


class Shown:
    """Prints as its view does: as text, and as HTML in a notebook."""

    __slots__ = ()

    def view(self) -> View:
        """What people are shown."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.view().text()

    def _repr_html_(self) -> str:
        return self.view().html()


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of one group. `lag_ms` is the age of the oldest message not yet passed.

    `problem` says why the partition is halted: a message that its handler cannot process. `call_s`
    is for how long the handler has worked on the message at `call_offset`. Owner and epoch are
    those in the registry. `stall` is set while the checkpoint does not move and the lag grows.
    `fenced_by` is an epoch that its log knows, and that is above the owner's: the owner can read
    nothing. `refused` says so too, once the owner has met it.
    """

    partition: PartitionId
    phase: str
    owner: MemberId | None
    epoch: Epoch
    checkpoint: Offset
    end_offset: Offset | None
    lag: int | None
    lag_ms: int | None
    attempts: int
    problem: str = ""
    call_s: float | None = None
    call_offset: Offset | None = None
    stall: Stall | None = None
    fenced_by: Epoch | None = None
    refused: str = ""

    @property
    def fenced(self) -> str:
        """By what epoch its owner is fenced at its log; '' when it is not."""
        if self.owner is None or self.fenced_by is None:
            return ""
        return (
            f"fenced at its log: {self.owner} owns it under epoch {self.epoch}, and the log knows "
            f"epoch {self.fenced_by}: it lets {self.owner} read nothing"
        )

    @property
    def stalled(self) -> str:
        """For how long it has been stalled; '' when it is not."""
        if self.owner is None or self.stall is None:
            return ""
        return (
            f"stalled at offset {self.checkpoint} for {self.stall.seconds:.0f} s: its lag has "
            f"grown by {self.stall.grown:,} to {self.lag or 0:,}, though {self.owner} owns it"
        )


@dataclass(frozen=True, slots=True)
class CallUnderWay:
    """A call of a handler that has not ended, and for how long it has run when it was last looked
    at."""

    partition: PartitionId
    offset: Offset
    seconds: float

    def __str__(self) -> str:
        return f"P{self.partition} offset {self.offset} for {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A message that its handler could not process, what the failure policy did with it, and how
    long before the status that was."""

    partition: PartitionId
    offset: Offset
    policy: str
    attempts: int
    error: str
    ago_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"P{self.partition} offset {self.offset} ({self.policy} after attempt "
            f"{self.attempts}): {self.error}"
        )


@dataclass(frozen=True, slots=True)
class QuarantineSize:
    """What is in quarantine: keys, and the messages of them that wait to be re-driven."""

    keys: int = 0
    messages: int = 0

    def __add__(self, other: QuarantineSize) -> QuarantineSize:
        return QuarantineSize(self.keys + other.keys, self.messages + other.messages)


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer of one group. `state` is running, pending, starting, silent, frozen, away,
    failed ... A `frozen` one is silent, and its process is known to be stopped.

    `calls` are the longest calls of its handler that have not ended. `given_up` are the newest of
    `given_up_count` messages that the failure policy has dealt with since it started. `aside` is
    what its partitions have in quarantine.
    """

    member: MemberId
    incarnation: Incarnation
    state: str
    partitions: tuple[PartitionId, ...]
    processed: int | None
    lease_left_ms: int | None
    pid: int | None
    node: str
    reason: str = ""
    calls: tuple[CallUnderWay, ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    given_up_count: int = 0
    actor: str = ""
    aside: QuarantineSize = QuarantineSize()


@dataclass(frozen=True, slots=True, repr=False)
class GroupStatus(Shown):
    """One group at one moment. `unused_ms` is for how long it has had no member.

    `unknown` says what could not be asked now. `records_waiting` changes of ownership and
    membership are decided but not yet in the registry: no member knows of them. `scaled_ms` is when
    an operator set another number of consumers than the file has.
    """

    topology: str
    group: str
    queue: str
    generation: int
    version: int
    assignor: str
    paused: bool
    wanted: int
    partitions: tuple[PartitionStatus, ...]
    consumers: tuple[ConsumerStatus, ...]
    problem: str = ""
    scaling: str = ""
    unused_ms: int = 0
    unknown: tuple[Report, ...] = ()
    records_waiting: int = 0
    registry_away_s: float | None = None
    scaled_ms: int | None = None

    @property
    def holds_delayed(self) -> bool:
        """Whether its lag are delayed messages, which wait for their time; see `data.delay`.

        What it is behind is then how late the oldest of them is.
        """
        return is_of_delays(self.group, self.queue)

    @property
    def lag(self) -> int:
        """Messages not yet passed, all partitions together."""
        return sum(p.lag or 0 for p in self.partitions)

    @property
    def lag_ms(self) -> int:
        """The age of the oldest message that is not yet passed."""
        return max((p.lag_ms or 0 for p in self.partitions), default=0)

    @property
    def given_up_count(self) -> int:
        """How many messages its present consumers could not process: skipped or set aside."""
        return sum(consumer.given_up_count for consumer in self.consumers)

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        """The newest of those, of each consumer."""
        return tuple(each for consumer in self.consumers for each in consumer.given_up)

    @property
    def aside(self) -> QuarantineSize:
        """What is in quarantine now."""
        return sum((consumer.aside for consumer in self.consumers), QuarantineSize())

    @property
    def owners(self) -> dict[MemberId, list[PartitionId]]:
        """The partitions of each member that owns some."""
        found: dict[MemberId, list[PartitionId]] = {}
        for p in self.partitions:
            if p.owner is not None:
                found.setdefault(p.owner, []).append(p.partition)
        return found

    @property
    def problems(self) -> list[Problem]:
        """Everything that is wrong with it."""
        from pxrs_ray.status.problems import group_problems

        return group_problems(self)

    def view(self) -> View:
        """Its partitions and consumers, and what is wrong."""
        from pxrs_ray.status.views import group_view

        return group_view(self)


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How the registry store is doing. `url` has every secret replaced.

    `away_s` is for how long it has not answered, None while it does.
    """

    backend: str
    url: str
    durable: bool
    calls: int
    writes: int
    mean_ms: float
    down_since_s: float | None = None
    problem: str = ""
    warnings: tuple[str, ...] = ()
    away_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One queue at one moment. `produced` counts every message that ever came, kept or not."""

    queue: str
    partitions: int
    messages: int
    bytes: int
    reports: tuple[Report, ...] = ()
    produced: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class TopologyStatus(Shown):
    """A whole topology at one moment. `changes_waiting` wait for the registry to be back.

    `places` describes each buffer, `uneven` lists the moves that would spread them more evenly.
    """

    topology: str
    fingerprint: str
    coordinator_pid: int
    coordinator_started_s: float
    buffers: int
    store: StoreStatus
    queues: tuple[QueueStatus, ...]
    groups: tuple[GroupStatus, ...]
    reports: tuple[Report, ...] = ()
    changes_waiting: tuple[str, ...] = ()
    places: tuple[BufferStatus, ...] = ()
    uneven: tuple[SpreadStep, ...] = ()

    @property
    def problems(self) -> list[Problem]:
        """Everything that is wrong with it."""
        from pxrs_ray.status.problems import problems

        return problems(self)

    @property
    def registry_away(self) -> str:
        """While the registry is away: for how long, what waits for it, and why; '' otherwise."""
        if self.store.away_s is None:
            return ""
        waiting, records = self.changes_waiting, sum(g.records_waiting for g in self.groups)
        told = f"away for {self.store.away_s:.0f} s"
        if waiting:
            told += f"; {len(waiting)} change{'s wait' if len(waiting) > 1 else ' waits'}: "
            told += "; ".join(waiting)
        elif records:
            told += f"; {records} changes of ownership and membership wait"
        return f"{told} ({self.store.problem})"

    def view(self) -> View:
        """Its queues, buffers and groups, and what is wrong."""
        from pxrs_ray.status.views import topology_view

        return topology_view(self)


@dataclass(frozen=True, slots=True, repr=False)
class History(Shown):
    """The ownership and membership changes of a group, oldest first."""

    group: str
    changes: tuple[Change, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def view(self) -> View:
        """Its changes."""
        from pxrs_ray.status.views import history_view

        return history_view(self)
