"""`LogReader`: carries what a buffer reads; see `pxrs_ray.log.buffer_calls` for what it decides,
and `pxrs_ray.log.cold_pace` for when files are read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from pxrs_ray.data.batch import batches
from pxrs_ray.data.protocol import Fetched, PartsRead, ReadPosition
from pxrs_ray.errors import OffsetOutOfRange
from pxrs_ray.log.buffer_calls import ColdRead, read_parts
from pxrs_ray.log.cold_pace import ColdPace
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.log_view import FrameRun
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.supervision.supervisor import off_loop

READ_THREADS = 4
Answer = TypeVar("Answer")


class LogReader:
    """Reads several logs for one call. Messages in memory are read on the event loop."""

    def __init__(self, manager: LogManager, fence: ReadFence, counts: Counter[str]) -> None:
        self._manager = manager
        self._fence = fence
        self._counts = counts
        self._threads = ThreadPoolExecutor(READ_THREADS, "pxrs-reader")
        self._pace = ColdPace(time.monotonic())

    async def run(self, call: Callable[[], Answer]) -> Answer:
        """Make a call that may read files, on a thread of its own."""
        return await off_loop(call, threads=self._threads)

    def fetch(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, ReadPosition],
        bytes_max: int,
        final: bool,
    ) -> PartsRead | Coroutine[Any, Any, PartsRead]:
        """What is there now, or work that finds it where files must be read; refusals that waiting
        may end are left out unless it is `final`."""
        parts = read_parts(
            self._manager, self._fence, self._counts, queue, group, positions, bytes_max, final
        )
        try:
            cold = next(parts)
        except StopIteration as read:
            return cast(PartsRead, read.value)
        return self._go_on(parts, cold)

    async def _go_on(
        self, parts: Generator[ColdRead, FrameRun, PartsRead], cold: ColdRead
    ) -> PartsRead:
        try:
            while True:
                rest_s = self._pace.rest_s(time.monotonic())
                if rest_s:
                    await asyncio.sleep(rest_s)
                try:
                    run = await self.run(cold)
                except Exception as error:  # noqa: BLE001 - it is for the one who asked
                    cold = parts.throw(error)
                else:
                    size_bytes = sum(map(len, run.chunks))
                    self._pace.read(size_bytes, self._counts["bytes_in"], time.monotonic())
                    cold = parts.send(run)
        except StopIteration as read:
            return cast(PartsRead, read.value)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


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
