"""The answers of `status`, `lag` and `history`: frozen data that prints well.

Rules of this file: plain numbers with units in their names, no connection to anything alive. Each
table prints as aligned text (`repr`) and as HTML in a notebook (`_repr_html_`).
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from pxrs_ray.model import Change, Epoch, Incarnation, MemberId, Offset, PartitionId
from pxrs_ray.status.places import BufferStatus, Step
from pxrs_ray.status.standstill import Stands

# How many of the messages that were given up a table of a group names.
GIVEN_UP_TOLD = 5


def text_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned under their heads."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], colors: Sequence[str] = ()
) -> str:
    """The same as an HTML table, each row in its colour if it has one; every value is escaped."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        f'<tr style="color: {color}">'
        + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row)
        + "</tr>"
        for row, color in zip_longest(rows, colors[: len(rows)], fillvalue="inherit")
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of one group. `lag_ms` is the age of the oldest message not yet passed.

    `call_s` is for how long the handler has worked on the message at `call_offset`. Owner and epoch
    are those in the registry. `stands` says that the partition is stalled: its checkpoint has not
    moved while the lag grew. `fenced_by` is an epoch that its log knows, and that is above the
    owner's: the owner can read nothing.
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
    stands: Stands | None = None
    fenced_by: Epoch | None = None

    @property
    def halt(self) -> str:
        """Why its owner gets nowhere, though no message fails; '' while it does."""
        if self.owner is None:
            return ""
        if self.fenced_by is not None:
            return (
                f"is fenced at its log: {self.owner} owns it under epoch {self.epoch}, and the log "
                f"knows epoch {self.fenced_by}: it lets {self.owner} read nothing"
            )
        if self.stands is not None:
            return (
                f"has stood at offset {self.checkpoint} for {self.stands.seconds:.0f} s, and its "
                f"lag has grown by {self.stands.grown:,} to {self.lag or 0:,}, though {self.owner} "
                "owns it"
            )
        return ""

    @property
    def trouble(self) -> str:
        """Whatever is wrong with it; '' when nothing is."""
        return self.problem or self.halt


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
    """A message that its handler could not process, and what the failure policy did with it."""

    partition: PartitionId
    offset: Offset
    policy: str
    attempts: int
    error: str

    def __str__(self) -> str:
        return (
            f"P{self.partition} offset {self.offset} ({self.policy} after attempt "
            f"{self.attempts}): {self.error}"
        )


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer of one group. `state` is running, pending, starting, silent, away, failed ...

    `calls` are the longest calls of its handler that have not ended. `given_up` are the newest of
    `given_up_count` messages that the failure policy has dealt with since it started.
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


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group at one moment. `unused_since_ms` is 0 while it has members.

    `unknown` says what could not be asked now. `records_waiting` changes of ownership and
    membership are decided but not yet in the registry: no member knows of them.
    """

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
    unused_since_ms: int = 0
    unknown: tuple[str, ...] = ()
    records_waiting: int = 0
    registry_away_s: float | None = None

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
    def owners(self) -> dict[MemberId, list[PartitionId]]:
        """The partitions of each member that owns some."""
        found: dict[MemberId, list[PartitionId]] = {}
        for p in self.partitions:
            if p.owner is not None:
                found.setdefault(p.owner, []).append(p.partition)
        return found

    _HEAD = ("partition", "phase", "owner", "epoch", "checkpoint", "end", "lag", "lag ms", "")

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (
                f"P{p.partition}",
                p.phase,
                p.owner,
                p.epoch,
                p.checkpoint,
                p.end_offset,
                p.lag,
                p.lag_ms,
                p.trouble,
            )
            for p in self.partitions
        ]

    def _title(self) -> str:
        state = f" PROBLEM: {self.problem}" if self.problem else " paused" if self.paused else ""
        state += "".join(f" UNKNOWN: {unknown}" for unknown in self.unknown)
        if self.registry_away_s is not None:
            state += f" REGISTRY AWAY for {self.registry_away_s:.0f} s"
        return (
            f"group {self.group} of queue {self.queue}: {len(self.owners)} of "
            f"{len(self.consumers)} consumers own partitions, lag {self.lag}{state}"
        )

    def __repr__(self) -> str:
        parts = [self._title(), text_table(self._HEAD, self._rows()), *self.given_up_lines()]
        return "\n".join(parts)

    def given_up_lines(self) -> list[str]:
        """What `skip` and the other policies have passed over, as people read it."""
        if not self.given_up_count:
            return []
        head = f"{self.given_up_count} messages were given up, the newest:"
        return [head, *(f"  {each}" for each in self.given_up[-GIVEN_UP_TOLD:])]

    def _repr_html_(self) -> str:
        colors = [_color(p) for p in self.partitions]
        return f"<p>{html.escape(self._title())}</p>{html_table(self._HEAD, self._rows(), colors)}"


def _color(partition: PartitionStatus) -> str:
    if partition.trouble:
        return "firebrick"
    return "seagreen" if partition.owner and not partition.lag else "darkorange"


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
    problems: tuple[str, ...] = ()
    produced: int = 0


@dataclass(frozen=True, slots=True)
class TopologyStatus:
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
    problems: tuple[str, ...] = ()
    changes_waiting: tuple[str, ...] = ()
    places: tuple[BufferStatus, ...] = ()
    uneven: tuple[Step, ...] = ()

    _HEAD = ("queue", "partitions", "messages", "MB", "problems")
    _PLACES = ("buffer", "host", "node", "disk", "MB", "MB free", "lease ms", "state")

    def away_told(self) -> tuple[str, ...]:
        """One line while the registry is away: for how long, why, and what waits for it."""
        if self.store.away_s is None:
            return ()
        waiting, records = self.changes_waiting, sum(g.records_waiting for g in self.groups)
        told = f"registry away for {self.store.away_s:.0f} s"
        if waiting:
            told += f"; {len(waiting)} change{'s wait' if len(waiting) > 1 else ' waits'}: "
            told += "; ".join(waiting)
        elif records:
            told += f"; {records} changes of ownership and membership wait"
        return (f"{told} ({self.store.problem})",)

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (q.queue, q.partitions, q.messages, q.bytes / 1e6, "; ".join(q.problems))
            for q in self.queues
        ]

    def _title(self) -> str:
        told = (*self.away_told(), *self.problems)
        troubles = "".join(f"\nPROBLEM: {problem}" for problem in told)
        return (
            f"topology {self.topology} ({self.fingerprint}), {self.buffers} buffers, registry in "
            f"{self.store.url}{troubles}"
        )

    def _place_rows(self) -> list[tuple[object, ...]]:
        return [
            (
                p.buffer,
                p.host,
                p.short_node,
                p.short_disk,
                None if p.bytes is None else p.bytes / 1e6,
                None if p.free_bytes is None else p.free_bytes / 1e6,
                p.lease_left_ms,
                p.text,
            )
            for p in self.places
        ]

    def __repr__(self) -> str:
        parts = [self._title(), text_table(self._HEAD, self._rows())]
        if self.places:
            parts.append(text_table(self._PLACES, self._place_rows()))
        return "\n\n".join([*parts, *(repr(group) for group in self.groups)])

    def _repr_html_(self) -> str:
        groups = "".join(group._repr_html_() for group in self.groups)
        title, places = html.escape(self._title()), ""
        if self.places:
            places = html_table(self._PLACES, self._place_rows())
        return f"<p>{title}</p>{html_table(self._HEAD, self._rows())}{places}{groups}"


@dataclass(frozen=True, slots=True)
class History:
    """The ownership and membership changes of a group, oldest first."""

    group: str
    changes: tuple[Change, ...] = field(default=())

    _HEAD = ("version", "what", "partition", "member", "epoch", "checkpoint", "cause")

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (
                c.version,
                c.kind,
                None if c.partition < 0 else f"P{c.partition}",
                f"{c.owner}#{c.incarnation}" if c.owner else None,
                c.epoch,
                c.checkpoint,
                c.cause,
            )
            for c in self.changes
        ]

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __repr__(self) -> str:
        return f"history of {self.group}\n{text_table(self._HEAD, self._rows())}"

    def _repr_html_(self) -> str:
        return html_table(self._HEAD, self._rows())
