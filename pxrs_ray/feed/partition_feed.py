"""The steps that bring one Spark partition into a queue: the same wherever its rows come from.

Rules of this file. A Spark partition's frames are numbered per queue partition under an identity of
its own, so the logs take each once. Before frames are appended, their fingerprint is written to the
ledger (a mark): rows that come out different the next time are refused there, and nothing of them
is appended. Micro-batches of a stream have no ledger; the logs themselves remember what they had of
the latest batch, and refuse what differs (SequenceConflict). Nothing here appends, waits or asks a
clock: it says the next step, and is sent what came of it, or thrown what refused it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

import pyarrow as pa

from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.protocol import OutFrame
from pxrs_ray.errors import FeedConflict, SequenceConflict, UsageError
from pxrs_ray.feed.facts import NO_PIECE, FeedFacts, KnownProgress
from pxrs_ray.feed.frames import CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, FedQueue, Framer, chunks
from pxrs_ray.late_dataclass import dataclass

# What a log remembers of a producer (producer_state.ANSWERS_MAX), for want of a ledger.
CHUNKS_MAX = 64


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """The result of one Spark partition: plain numbers. `added` is 0 for a mere repeat."""

    number: int
    rows: int
    bytes: int
    counts: tuple[int, ...]
    added: int
    repeated: int


@dataclass(frozen=True, slots=True)
class TellLedger:
    """Send a fact to the ledger; nobody waits for it yet."""

    frame: OutFrame


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait until the ledger has every fact that was sent; thrown SequenceConflict where it has
    another. Sent how many facts it had for so long that it did not compare them."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the ledger; sent the `KnownProgress` of this Spark partition."""


@dataclass(frozen=True, slots=True)
class Append:
    """Send frames to the queue; wait only while too many are under way."""

    frames: list[OutFrame]


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until the queue has every frame; sent how many frames were added, and were there."""


FeedStep: TypeAlias = TellLedger | Settle | Read | Append | Drain


@dataclass(frozen=True, slots=True)
class SparkPartition:
    """Spark partition `number` of a feed. `facts` is None where there is no ledger (streams).

    `called` says what the user called each column of a message. A piece has at most `rows_max`
    rows, and about `bytes_max` bytes.
    """

    target: FedQueue
    feed_id: str
    epoch: int
    number: int
    facts: FeedFacts | None
    now_ms: int
    called: Mapping[str, str] = field(default_factory=dict)
    rows_max: int = CHUNK_ROWS_MAX
    bytes_max: int = CHUNK_BYTES_MAX

    @property
    def identity(self) -> bytes:
        """Under which the logs recognise this Spark partition's frames."""
        return producer_id(f"feed/{self.target.queue}/{self.feed_id}/{self.number}")

    def framer(self) -> Framer:
        """What makes its frames, from the first on."""
        return Framer(self.target, self.number, self.identity, self.epoch, self.now_ms, self.called)

    def changed(self, why: str) -> FeedConflict:
        """The error that tells that this Spark partition is not what it was."""
        return FeedConflict(
            f"Spark partition {self.number} of feed {self.feed_id!r} is not what was fed under "
            f"that name before ({why}); what differs was not added. Either this is another "
            "DataFrame: give it a feed_id of its own. Or it comes out different each time that "
            "Spark computes it (a sort with equal keys, a limit, a random number): write it to "
            "files first, and feed those"
        )


def check(
    work: SparkPartition, rows: Iterable[pa.RecordBatch], told: KnownProgress
) -> Generator[FeedStep, Any, None]:
    """Find what is wrong with the rows, and tell their fingerprint, before any of them is appended.

    For rows that are at hand as a whole, and can be read again by `route` afterwards. Raises as
    `route` does.
    """
    if told.done is not None:
        return
    framer = work.framer()
    for chunk in chunks(rows, work.rows_max, work.bytes_max):
        framer.look(chunk)
    if work.facts is not None:
        marks = _Marks(work, work.facts, told)
        yield from marks.tell(0, framer.digest)
        yield from marks.settle()


def route(
    work: SparkPartition,
    rows: Iterable[pa.RecordBatch],
    told: KnownProgress,
    *,
    checked: bool = False,
) -> Generator[FeedStep, Any, RoutedRows]:
    """Append the rows of the Spark partition, or find that all of them are there already.

    Rows that were not `checked` are as they come, so the ledger hears piece by piece what they are.
    Raises FeedConflict when they are not the rows of the last time, UsageError and
    MessageTooLarge for rows that cannot be messages, and what is thrown in.
    """
    framer, known = work.framer(), told.done is not None
    marks = _Marks(work, work.facts, told) if work.facts is not None else None
    # A piece is sent one step late: the ledger hears its fingerprint while the next one is made.
    held: list[OutFrame] = []
    steps = 0
    try:
        for step, chunk in enumerate(chunks(rows, work.rows_max, work.bytes_max)):
            frames, steps = framer.frames(chunk), step + 1
            if marks is None and step >= CHUNKS_MAX:
                raise _batch_too_large(work.number)
            if marks is not None and not checked:
                yield from marks.settle()
                yield from marks.tell(step, framer.digest)
                frames, held = held, frames
            if not known:
                yield Append(frames)
        if marks is not None and not known:
            if not checked:
                # Whoever had more pieces was not this one, though it began alike.
                yield from marks.tell(steps, NO_PIECE)
            yield from marks.settle()
            yield Append(held)
        added, repeated = yield Drain()
    except SequenceConflict as error:
        raise work.changed(str(error)) from None
    done = {"digest": framer.digest, "rows": framer.rows, "bytes": framer.payload_bytes}
    if told.done is not None and told.done != done:
        raise work.changed(f"it had {told.done['rows']} rows, now {done['rows']}")
    if marks is not None and not known:
        yield from marks.tell_done(done)
    counts = tuple(framer.counts.tolist())
    return RoutedRows(work.number, framer.rows, framer.payload_bytes, counts, added, repeated)


def route_at_hand(
    work: SparkPartition, read: Callable[[], Iterable[pa.RecordBatch]], told: KnownProgress
) -> Generator[FeedStep, Any, RoutedRows]:
    """As `route`, of rows that can be read twice: all is looked at before anything is appended."""
    yield from check(work, read(), told)
    return (yield from route(work, read(), told, checked=True))


def _batch_too_large(number: int) -> UsageError:
    return UsageError(
        f"Spark partition {number} of this micro-batch has over {CHUNKS_MAX} pieces of "
        f"{CHUNK_ROWS_MAX} rows or {CHUNK_BYTES_MAX} bytes, more than a repeat could be checked "
        "against: take less per trigger (maxFilesPerTrigger, maxOffsetsPerTrigger), or repartition"
    )


class _Marks:
    """The fingerprints of one Spark partition: those that the ledger is known to have, and those
    that were sent to it now."""

    def __init__(self, work: SparkPartition, facts: FeedFacts, told: KnownProgress) -> None:
        self._work = work
        self._facts = facts
        self._known = dict(told.marks)
        self._sends = told.done is None
        self._sent: dict[int, str] = {}
        self._uncompared = 0

    def tell(self, step: int, digest: str) -> Generator[FeedStep, Any, None]:
        """Send the ledger a fingerprint, unless it is known to have it. Raises FeedConflict."""
        known = self._known.get(step)
        if known is not None and known != digest:
            raise self._work.changed("its rows have another fingerprint")
        if known is None and self._sends:
            self._sent[step] = digest
            yield TellLedger(self._facts.mark(self._work.number, step, digest, self._work.now_ms))

    def tell_done(self, done: dict[str, Any]) -> Generator[FeedStep, Any, None]:
        """TellLedger the ledger that all is in the logs. Raises FeedConflict."""
        yield TellLedger(self._facts.done(self._work.number, done, self._work.now_ms))
        yield from self.settle()

    def settle(self) -> Generator[FeedStep, Any, None]:
        """Go on when the ledger has every fact that was sent. Raises FeedConflict.

        It compares only with the latest of them; what it had before those, we compare.
        """
        try:
            uncompared = yield Settle()
        except SequenceConflict:
            what = f"Spark partition {self._work.number}"
            raise self._work.changed(str(self._facts.conflict(what))) from None
        if uncompared > self._uncompared:
            self._uncompared = uncompared
            told: KnownProgress = yield Read()
            self._known.update(told.marks)
            if any(self._known.get(step) != digest for step, digest in self._sent.items()):
                raise self._work.changed("its rows have another fingerprint")
