"""The requests and replies between producers, buffers and consumers: plain frozen data, no
behaviour.

Rules of this file. A refusal is data in a reply and not an exception of the call, so that one
partition's trouble never hides another's answer. Bulk bytes are `bytes`-like objects that pickle
out of band, so that Ray moves them without copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pxrs_ray.data.link_ports import OFF
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.errors import PxrsError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Generation, Offset, PartitionId

# (partition, packed frame header without a base offset, body): see pxrs_ray.data.frame
OutFrame = tuple[PartitionId, bytes, Any]

# (epoch of the reader's ownership, offset to read from)
ReadPosition = tuple[Epoch, Offset]


@dataclass(frozen=True, slots=True)
class Appended:
    """One frame is in the log: its messages have the offsets from `base_offset` on.

    `repeated` says that the very same frame had been appended before and nothing was added now.
    `base_offset` is None only for a repeat so old that its answer is no longer remembered.
    """

    partition: PartitionId
    base_offset: Offset | None
    count: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """What a log knows of a producer: its epoch and next sequence, and (sequence, base offset) of
    its latest frames in that epoch."""

    epoch: int
    next_sequence: int
    places: tuple[tuple[int, Offset], ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """One frame or one read was refused; `error` says why and can be raised unchanged.

    `expected_sequence` comes with SequenceGap: the next sequence of that producer in the frame's
    epoch. So does `heard`: the producer's position, None when the log does not know it.
    `start_offset` and `end_offset` come with OffsetOutOfRange and LogLost: what can be read.
    """

    partition: PartitionId
    error: PxrsError
    expected_sequence: int | None = None
    start_offset: Offset | None = None
    end_offset: Offset | None = None
    heard: Heard | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages of one partition, from the requested offset on.

    Each of `chunks` is a run of whole frames (`pxrs_ray.data.batch.batches` decodes them and cuts
    off what lies before the requested offset). `end_offset` and `start_offset` are the log's at
    that moment, so that lag is known with every reply. Read on at `next_offset`. Without chunks the
    requested offset is in a recorded gap, which ends at `next_offset`.
    """

    partition: PartitionId
    chunks: tuple[Any, ...]
    next_offset: Offset
    start_offset: Offset
    end_offset: Offset


# The answers to one read of several partitions, in their order.
PartsRead = list[Fetched | Refused]


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets from `first` up to, not including, `end` that were given out and are lost."""

    first: Offset
    end: Offset
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The ends and the state of one partition log. `state` is 'open', 'waiting', 'lost' or
    'failed'.

    `groups` is how far each group has come, `epochs` the highest epoch of each that has read here:
    no reader below it is served.

    'waiting': not confirmed by `Buffer.open` since its data went missing. 'lost': halted by
    LossPolicy.STOP. 'failed': could not be opened or written; `problem` says why.
    """

    partition: PartitionId
    start_offset: Offset
    end_offset: Offset
    durable_offset: Offset
    start_timestamp_ms: int | None
    end_timestamp_ms: int | None
    bytes: int
    bytes_max: int
    groups: Mapping[str, Offset] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    state: str = "open"
    problem: str = ""
    epochs: Mapping[str, Epoch] = field(default_factory=dict)

    def lag(self, checkpoint: Offset) -> int:
        """How many messages a group with this checkpoint has before it. What the log has dropped
        is none of them: nobody can be given it any more."""
        return max(0, self.end_offset - max(checkpoint, self.start_offset))


@dataclass(frozen=True, slots=True)
class ChangedEnds:
    """By queue, where those logs of a buffer stand that have changed since they were heard of in
    this `incarnation`, and all that cannot be opened; `to` is the newest change of these. Unless
    it `is_all`, more has changed. `queue_ids` names every queue that has logs there.
    """

    incarnation: str
    to: int
    queue_ids: Mapping[str, str]
    ends: Mapping[str, Mapping[PartitionId, LogEnds]]
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue as a buffer must know it. The same for all buffers of a topology.

    One that is `external` has its messages elsewhere: no buffer has logs of it. `queue_id` is
    made once with the queue, and is the log id of each of its logs; '' where nobody noted one.
    """

    queue: str
    partitions: int
    limits: LogLimits
    external: bool = False
    queue_id: str = ""


@dataclass(frozen=True, slots=True)
class BufferGrant:
    """A coordinator's permission for a buffer to serve; each ping carries one.

    The lease runs by the buffer's own clock: `lease_ms` from `echo_ms` on, which is the newest
    `BufferInfo.monotonic_ms` that the coordinator has received from this very `incarnation`. So a
    slow network makes no lease longer. Without an echo ('' as incarnation) it names the leading
    generation, and gives no lease. `link_ports` is the option of that name. `ends_heard` is the
    newest `BufferInfo.ends_to` that was received, and of which incarnation.
    """

    generation: Generation
    term: int
    lease_ms: int
    echo_ms: int = 0
    incarnation: str = ""
    link_ports: str = OFF
    ends_heard: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A buffer's answer to a ping: `incarnation` differs after each restart of the buffer's
    process.

    `disk_id` is the id of the disk that is there ('' where none has one), `host` the address of the
    node. `generation` and `term` are the newest that it was granted, `monotonic_ms` is its own
    clock for a grant to echo. `ends` is how far each log has come that has changed since the
    grant's `ends_heard`, up to change `ends_to`. `problem` says why it serves nothing, whatever it
    is granted. `problems` are what is wrong with its own loops now.
    """

    topology: str
    index: int
    incarnation: str
    pid: int
    node: str
    queues: tuple[str, ...]
    disk_id: str = ""
    host: str = ""
    generation: Generation = 0
    term: int = 0
    monotonic_ms: int = 0
    ends: Mapping[str, Mapping[PartitionId, Offset]] = field(default_factory=dict)
    problem: str = ""
    problems: tuple[str, ...] = ()
    ends_to: int = 0


@dataclass(frozen=True, slots=True)
class BufferStats:
    """What a buffer has done since it started, what it holds now, and what its disk has left.

    `refused` counts appends that were refused for good: `last_refusal` says which was the last.
    """

    appends: int
    frames: int
    messages: int
    bytes_in: int
    repeats: int
    refused: int
    fetches: int
    fetches_waiting: int
    bytes_out: int
    cold_reads: int
    fenced: int
    appends_waiting: int
    bytes_hot: int
    bytes_kept: int
    syncs: int
    sync_ms_max: float
    cpu_seconds: float
    rss_bytes: int
    disk_free_bytes: int = 0
    links: int = 0
    link_calls: int = 0
    strangers_refused: int = 0
    last_refusal: str = ""
