"""What the tests of logs share: frames made in a line, and logs opened and confirmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.data.protocol import Appended, Fetched
from pxrs_ray.files import Files
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import Offset
from tests.settings import log_limits

PRODUCER = b"p" * 16
NOW_MS = 1_000
SMALL = log_limits(
    segment_bytes_max=4_000, tail_bytes_max=2_000, index_interval_bytes=700, frame_bytes_max=100_000
)


def wire(
    payloads: list[bytes],
    sequence: int,
    *,
    producer: bytes = PRODUCER,
    epoch: int = 0,
    timestamp_ms: int = NOW_MS,
) -> tuple[bytes, Any]:
    """A frame of these payloads, each its own key, as a producer packs it."""
    return Batch.of(payloads, payloads, timestamp_ms=timestamp_ms).to_wire(
        producer, epoch, sequence
    )


def open_log(
    folder: Path,
    limits: LogLimits = SMALL,
    *,
    files: Files | None = None,
    boot: str = "boot-1",
    expected_end: Offset | None = 0,
) -> PartitionLog:
    """Open a log; confirmed too, unless `expected_end` is None."""
    log = PartitionLog.open(
        folder, "q", 0, limits, now_ms=NOW_MS, files=files, boot=boot, lock_wait_ms=0
    )
    if expected_end is not None and log.state == "waiting":
        log.confirm(expected_end, NOW_MS)
    return log


def put(
    log: PartitionLog, sequence: int, payloads: list[bytes] | None = None, **options: Any
) -> Appended:
    """Append one frame; without payloads one message that tells its sequence."""
    payloads = payloads if payloads is not None else [b"m%06d" % sequence]
    return log.append(*wire(payloads, sequence, **options), NOW_MS)


def contents(
    log: PartitionLog, offset: Offset | None = None, bytes_max: int = 1_500
) -> dict[Offset, bytes]:
    """Every message from `offset` (the start, when left out) to the end, as a reader finds it."""
    found: dict[Offset, bytes] = {}
    at = log.start_offset if offset is None else offset
    while True:
        run = log.read(at, bytes_max=bytes_max)
        fetched = Fetched(0, tuple(run.chunks), run.next_offset, 0, 0)
        for batch in batches(fetched, at):
            for message in batch:
                assert message.offset not in found, "an offset was read twice"
                assert message.offset >= at
                found[message.offset] = message.payload
        if run.next_offset <= at:
            return found
        at = run.next_offset


MEMORY = log_limits(durability=Durability.MEMORY, tail_bytes_max=2_000)
ALWAYS = log_limits(durability=Durability.ALWAYS, segment_bytes_max=4_000, tail_bytes_max=2_000)
