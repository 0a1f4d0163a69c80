"""The rows that simulated feeds feed, told apart by their texts; and their frames, which a log can
name by what is in them.

Rules of this file. The same feed, version and Spark partition are always the same rows. A version
above 0 is other data: a row more or less, one changed, two exchanged, or the same cut short where a
piece ends, which is the hardest to tell.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import unpack_header
from pxrs_ray.data.protocol import OutFrame
from pxrs_ray.feed.facts import FACT_CODEC
from pxrs_ray.feed.fields import KEY, PAYLOAD
from pxrs_ray.feed.partition_feed import CHUNKS_MAX
from pxrs_ray.model import PartitionId
from pxrs_ray.partitioning import Partitioner, PartitioningSpec
from tests.simulation.feeding.feed_scenario import FeedScenario
from tests.simulation.simulator.buffer import BufferProcess
from tests.simulation.simulator.frames import learn_frame

QUEUE_NAME = "default/fed"
LEDGER_NAME = "_feeds.default/fed"
STREAMS_NAME = "_streams.default/fed"
STREAM = "stream/query"
Row = tuple[bytes | None, str]


@dataclass(frozen=True, slots=True)
class SimulatedQueue:
    """The queue that is fed: a `FedQueue`."""

    queue: str
    spread: PartitioningSpec
    message_bytes_max: int = 1_000

    @property
    def partitions(self) -> int:
        """How many there are."""
        return self.spread.partitions

    def partitioner(self, turn: int) -> Partitioner:
        """As `Target` has it."""
        return self.spread.partitioner(turn)


def rows_of(scenario: FeedScenario, feed: str, version: int, number: int) -> tuple[Row, ...]:
    """The rows of one Spark partition."""
    dice = random.Random(f"rows {feed} {number}")
    count = dice.randint(scenario.rows // 2, scenario.rows)
    if feed.startswith(STREAM):
        count = min(count, scenario.chunk_rows * CHUNKS_MAX)
    rows = [_row(dice, scenario, f"{feed}|{number}|{at}") for at in range(count)]
    if version:
        more = f"{feed}|{number}|{count}|key-0|v{version}"
        _change(random.Random(f"version {more}"), scenario, rows, more)
    return tuple(rows)


def _row(dice: random.Random, scenario: FeedScenario, name: str) -> Row:
    if dice.random() < 0.1:
        return None, f"{name}|"
    key = f"key-{dice.randrange(scenario.keys)}"
    return key.encode(), f"{name}|{key}"


def _change(dice: random.Random, scenario: FeedScenario, rows: list[Row], more: str) -> None:
    how = dice.choice(("same", "changed", "shorter", "piece", "longer", "exchanged"))
    at = dice.randrange(len(rows))
    if how == "changed":
        key, text = rows[at]
        rows[at] = key, f"{text}|{more[-2:]}"
    elif how == "shorter":
        del rows[at]
    elif how == "piece":
        pieces = len(rows) // scenario.chunk_rows
        del rows[scenario.chunk_rows * dice.randint(0, pieces) :]
    elif how == "longer":
        rows.append((b"key-0", more))
    elif how == "exchanged" and at:
        rows[at - 1], rows[at] = rows[at], rows[at - 1]


def arrow_of(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    """The rows as Spark hands them over."""
    keys = pa.array([key for key, _ in rows], pa.binary())
    payloads = pa.array([text.encode() for _, text in rows], pa.binary())
    return [pa.RecordBatch.from_arrays([keys, payloads], names=[KEY, PAYLOAD])] if rows else []


def told_apart(buffer: BufferProcess, frame: OutFrame, producer: str) -> OutFrame:
    """The frame of a feed, once the buffer's history can name its messages and its producer."""
    _, packed, body = frame
    header = unpack_header(packed)
    buffer.identities[header.producer_id] = (producer, 0)
    learn_frame(header, lambda: _content(_texts(packed, body)))
    return frame


def fact_told_apart(
    buffer: BufferProcess, frame: OutFrame, feed: str, partition: PartitionId
) -> OutFrame:
    """A fact as a message of the partition that is the ledger here; its text names its feed."""
    _, packed, body = frame
    header = unpack_header(packed)
    buffer.identities[header.producer_id] = (f"ledger {header.producer_id.hex()}", 0)
    learn_frame(header, lambda: (feed.encode(), (f"{feed}\n{_texts(packed, body)[0]}",)))
    return partition, packed, body


def fact_of(message: str) -> dict[str, Any]:
    """The fact that a message of the ledger is."""
    return FACT_CODEC.decode(message.partition("\n")[2].encode())


def _content(texts: tuple[str, ...]) -> tuple[bytes, tuple[str, ...]]:
    """A frame has rows of many keys; the history gets one that is only this frame's."""
    return texts[0].encode(), texts


def _texts(packed: bytes, body: Any) -> tuple[str, ...]:
    return tuple(text.decode() for _, text in Batch.from_wire(0, packed, body).rows())
