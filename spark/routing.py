"""Routes one Spark partition into a queue: the same steps wherever its rows come from.

Rules of this file. A Spark partition's frames are numbered per queue partition under an identity of
its own, so the logs take each once. Before frames are appended, their fingerprint is written to the
ledger (a mark): rows that come out different the next time are refused there, and nothing of them
is appended. Micro-batches of a stream have no ledger; the logs themselves remember what they had of
the latest batch, and refuse what differs (SequenceConflict).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pxrs_ray.clock import wall_ms
from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.protocol import OutFrame
from pxrs_ray.errors import FeedConflict, SequenceConflict, UsageError
from pxrs_ray.spark.appender import Appender
from pxrs_ray.spark.frames import CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, Framer, chunks
from pxrs_ray.spark.ledger import KnownProgress, Ledger
from pxrs_ray.spark.queue_ref import Target

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
class Feed:
    """What a routing task must know. `epoch` is a stream's batch; other feeds have 0.

    A feed with a ledger (`ledgered`) is remembered for long. A stream's batches only need to be
    remembered while they can come again, and the logs do that. `called` says what the user called
    each column of a message.
    """

    target: Target
    feed_id: str
    epoch: int = 0
    ledgered: bool = True
    stall_s: float = 300.0
    called: Mapping[str, str] = field(default_factory=dict)


def check(feed: Feed, number: int, rows: Iterable[pa.RecordBatch], told: KnownProgress) -> None:
    """Find what is wrong with the rows, and tell their fingerprint, before any of them is appended.

    For rows that are at hand as a whole, and can be read again by `route` afterwards. Raises as
    `route` does.
    """
    if told.done is not None:
        return
    framer = _framer(feed, number)
    for chunk in chunks(rows):
        framer.look(chunk)
    if feed.ledgered:
        ledger = _ledger(feed)
        _mark(feed, ledger, told, number, 0, framer.digest)
        _settle(feed, ledger, number)


def route(
    feed: Feed,
    number: int,
    rows: Iterable[pa.RecordBatch],
    told: KnownProgress,
    *,
    checked: bool = False,
) -> RoutedRows:
    """Append the rows of Spark partition `number`, or find that all of them are there already.

    Rows that were not `checked` are as they come, so the ledger hears piece by piece what they are.
    Raises FeedConflict when they are not the rows of the last time, UsageError and
    MessageTooLarge for rows that cannot be messages, and what the buffers refuse them with.
    """
    framer = _framer(feed, number)
    ledger = _ledger(feed) if feed.ledgered else None
    appender = Appender(feed.target, stall_s=feed.stall_s)
    # A piece is sent one step late: the ledger hears its fingerprint while the next one is made.
    held: list[OutFrame] = []
    try:
        for step, chunk in enumerate(chunks(rows)):
            frames = framer.frames(chunk)
            if ledger is None and step >= CHUNKS_MAX:
                raise _batch_too_large(number)
            if ledger is not None and not checked:
                _settle(feed, ledger, number)
                _mark(feed, ledger, told, number, step, framer.digest)
                frames, held = held, frames
            if told.done is None:
                appender.send(frames)
        if ledger is not None and told.done is None:
            _settle(feed, ledger, number)
            appender.send(held)
        appender.drain()
    except SequenceConflict as error:
        raise changed(feed, number, str(error)) from None
    done = _done(framer)
    if told.done is not None and told.done != done:
        raise changed(feed, number, f"it had {told.done['rows']} rows, now {done['rows']}")
    if ledger is not None and told.done is None:
        ledger.tell_done(number, done)
    return RoutedRows(
        number,
        framer.rows,
        framer.payload_bytes,
        tuple(framer.counts.tolist()),
        appender.appended,
        appender.repeated,
    )


def _framer(feed: Feed, number: int) -> Framer:
    identity = producer_id(f"feed/{feed.target.queue}/{feed.feed_id}/{number}")
    return Framer(feed.target, number, identity, feed.epoch, wall_ms(), feed.called)


def _ledger(feed: Feed) -> Ledger:
    return Ledger(feed.target.ledger(), feed.feed_id)


def changed(feed: Feed, number: int, why: str) -> FeedConflict:
    """The error that tells that a Spark partition is not what it was."""
    return FeedConflict(
        f"Spark partition {number} of feed {feed.feed_id!r} is not what was fed under that name "
        f"before ({why}); what differs was not added. Either this is another DataFrame: give it "
        "a feed_id of its own. Or it comes out different each time that Spark computes it (a sort "
        "with equal keys, a limit, a random number): write it to files first, and feed those"
    )


def _batch_too_large(number: int) -> UsageError:
    return UsageError(
        f"Spark partition {number} of this micro-batch has over {CHUNKS_MAX} pieces of "
        f"{CHUNK_ROWS_MAX} rows or {CHUNK_BYTES_MAX} bytes, more than a repeat could be checked "
        "against: take less per trigger (maxFilesPerTrigger, maxOffsetsPerTrigger), or repartition"
    )


def _mark(
    feed: Feed, ledger: Ledger, told: KnownProgress, number: int, step: int, digest: str
) -> None:
    """Send the ledger a fingerprint, unless it knows it. Raises FeedConflict."""
    known = told.marks.get(step)
    if known is None and told.done is None:
        ledger.send_mark(number, step, digest)
    elif known is not None and known != digest:
        raise changed(feed, number, "its rows have another fingerprint")


def _settle(feed: Feed, ledger: Ledger, number: int) -> None:
    """Return when the ledger has every fingerprint that was sent. Raises FeedConflict."""
    try:
        ledger.settle()
    except FeedConflict as error:
        raise changed(feed, number, str(error)) from None


def _done(framer: Framer) -> dict[str, Any]:
    return {"digest": framer.digest, "rows": framer.rows, "bytes": framer.payload_bytes}
