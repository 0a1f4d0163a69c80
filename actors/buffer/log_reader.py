"""`LogReader`: a buffer's read path; and how the read and write paths turn an error into a
`Refused`."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from pxrs_ray.data.batch import batches
from pxrs_ray.data.protocol import Appended, Fetched, Position, Refused
from pxrs_ray.errors import (
    Fenced,
    LockHeld,
    LogAway,
    LogError,
    LogLost,
    NotFound,
    OffsetOutOfRange,
    PartitionFull,
    PxrsError,
    SequenceGap,
)
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.log_view import FrameRun
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import ProducerFence
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import off_loop

READ_THREADS = 4
OUT_OF_BAND_BYTES = 4 << 10
FETCH_BYTES_MAX = 64 << 20
Answer = TypeVar("Answer")


class LogReader:
    """Reads several logs for one call. Messages in memory are read on the event loop."""

    def __init__(self, manager: LogManager, fence: ReadFence, counts: Counter[str]) -> None:
        self._manager = manager
        self._fence = fence
        self._counts = counts
        self._threads = ThreadPoolExecutor(READ_THREADS, "pxrs-reader")

    async def run(self, call: Callable[[], Answer]) -> Answer:
        """Make a call that may read files, on a thread of its own."""
        return await off_loop(call, threads=self._threads)

    async def fetch(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, Position],
        bytes_max: int,
        final: bool,
    ) -> list[Fetched | Refused]:
        """What is there now; refusals that waiting may end are left out unless it is `final`."""
        found: list[Fetched | Refused] = []
        left = min(bytes_max, FETCH_BYTES_MAX)
        for served, (partition, (epoch, offset)) in enumerate(positions.items()):
            share = max(1, left // (len(positions) - served))
            log: PartitionLog | None = None
            try:
                self._fence.check(queue, group, partition, epoch)
                log = self._manager.log(queue, partition)
                run = log.read_hot(offset, bytes_max=share)
                if run is None:
                    self._counts["cold_reads"] += 1
                    run = await self.run(partial(log.read, offset, bytes_max=share))
                    self._fence.check(queue, group, partition, epoch)
            except Exception as raised:  # noqa: BLE001 - one partition's trouble is its own
                error = answerable(raised)
                if final or not may_pass(error, log):
                    self._counts["fenced" if isinstance(error, Fenced) else "refused"] += 1
                    found.append(refused(partition, error, log))
                continue
            if run.next_offset > offset:
                left -= sum(map(len, run.chunks))
                found.append(_fetched(log, run))
        self._counts["bytes_out"] += min(bytes_max, FETCH_BYTES_MAX) - left
        return found

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _fetched(log: PartitionLog, run: FrameRun) -> Fetched:
    chunks = tuple(map(_out_of_band, run.chunks))
    return Fetched(log.partition, chunks, run.next_offset, log.start_offset, log.visible_end)


def _out_of_band(chunk: Any) -> Any:
    """Large chunks travel beside the pickle, uncopied."""
    return pickle.PickleBuffer(chunk) if len(chunk) >= OUT_OF_BAND_BYTES else bytes(chunk)


def message_at(log: PartitionLog, offset: Offset) -> Message:
    """One message. Raises OffsetOutOfRange, LogCorrupted, LogLost."""
    run = log.read(offset, records_max=1, bytes_max=1)
    fetched = Fetched(log.partition, tuple(run.chunks), run.next_offset, 0, 0)
    for batch in batches(fetched, offset):
        if batch.base_offset == offset:
            return batch[0]
    raise OffsetOutOfRange(
        f"partition {log.partition} has no message at offset {offset}: it ends at "
        f"{log.visible_end}, and lost {[(gap.first, gap.end) for gap in log.gaps]}"
    )


def append_frame(
    log: PartitionLog,
    producers: ProducerFence,
    now_ms: int,
    partition: PartitionId,
    header: bytes,
    body: Any,
) -> Appended | Refused:
    """Append one frame, with a refusal as the answer that travels."""
    try:
        producers.check(log.queue, header)
        return log.append(header, body, now_ms)
    except SequenceGap as error:
        expected, heard = log.expected_sequence(header), log.heard(header)
        return Refused(partition, error, expected_sequence=expected, heard=heard)
    except Exception as error:  # noqa: BLE001 - one partition's trouble is its own
        return refused(partition, answerable(error), log)


def answerable(error: Exception) -> PxrsError:
    """The error as one of ours: what a reply can carry and its reader can judge."""
    if isinstance(error, PxrsError):
        return error
    return (LogAway if passes(error) else LogError)(told(error))


def refused(partition: PartitionId, error: PxrsError, log: PartitionLog | None) -> Refused:
    """The answer that says why, and what can be read instead."""
    if log is None or not isinstance(error, (OffsetOutOfRange, LogLost)):
        return Refused(partition, error)
    return Refused(partition, error, start_offset=log.start_offset, end_offset=log.visible_end)


def may_pass(error: PxrsError, log: PartitionLog | None) -> bool:
    """Whether a change of the log (or of what logs there are) may end this refusal."""
    if isinstance(error, LogLost):
        return log is not None and log.state == "waiting"
    if isinstance(error, (LogAway, LockHeld)):
        return log is None or log.state != "open"
    return isinstance(error, (NotFound, PartitionFull, SequenceGap))
