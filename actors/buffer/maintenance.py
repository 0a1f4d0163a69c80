"""`Maintenance`: a buffer's background loops, which carry what `Upkeep` says: they reopen failed
logs, drop what retention allows, and read again what is sealed. Every job runs on the writer's
thread; what is only read, beside it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pxrs_ray.actors.buffer.log_writer import LogWriter
from pxrs_ray.clock import monotonic_ms, wall_ms
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.log.held_calls import Waiting, wake
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.log.scrub import Scrub
from pxrs_ray.log.upkeep import MEND_EVERY_MS, RETAIN_EVERY_MS, StartTries, Upkeep
from pxrs_ray.model import QueuePartition
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, off_loop

logger = logging.getLogger(__name__)
T = TypeVar("T")

RETAIN_EVERY_S = RETAIN_EVERY_MS / 1_000
MEND_EVERY_S = MEND_EVERY_MS / 1_000


class Maintenance:
    """The loops of one buffer. For its event loop; close it."""

    def __init__(
        self, manager: LogManager, fence: ReadFence, writer: LogWriter, waiting: Waiting
    ) -> None:
        self._upkeep = Upkeep(manager, fence)
        self._manager = manager
        self._scrub = Scrub(manager.files)
        self._writer = writer
        self._waiting = waiting
        self._supervisor = Supervisor("buffer")
        self._began = False

    def begin(self) -> None:
        """Begin; again is harmless. The first call of a buffer finds the loop that this needs."""
        if not self._began:
            self._began = True
            self._supervisor.keep("mending", self._mend_for_ever)
            self._supervisor.keep("retention", self._retain_for_ever)
            self._supervisor.keep("scrubbing", self._scrub_for_ever)

    async def close(self) -> None:
        """End for good."""
        self._began = True
        await self._supervisor.close()

    async def _mend_for_ever(self) -> None:
        upkeep = self._upkeep
        while True:
            await asyncio.sleep(MEND_EVERY_S)
            for place in upkeep.to_mend(monotonic_ms()):
                if await self._writer.do(partial(_mend, upkeep, place), ()):
                    logger.warning("partition %d of %s is open again", place[1], place[0])
                wake(self._waiting, place)
            upkeep.round_over()

    async def _retain_for_ever(self) -> None:
        while True:
            await asyncio.sleep(RETAIN_EVERY_S)
            for log in self._upkeep.to_retain(wall_ms()):
                try:
                    await self._writer.do(partial(log.retain, wall_ms()), (log,))
                except Exception as error:  # noqa: BLE001 - the other logs need it as well
                    self._supervisor.note(f"retention of {log.queue}/{log.partition}", error)
                else:
                    self._supervisor.over(f"retention of {log.queue}/{log.partition}")

    async def _scrub_for_ever(self) -> None:
        scrub = self._scrub
        while True:
            await asyncio.sleep(scrub.rest_s)
            found = await off_loop(scrub.step, self._logs())
            if found is not None:
                is_so = await self._writer.do(lambda: scrub.is_so(found, self._logs()), ())  # noqa: B023
                if is_so:
                    queue, partition = found.place
                    error = LogCorrupted(found.reason)
                    self._supervisor.note(f"the log of {queue}/{partition}", error, for_good=True)
                    self._manager.is_damaged(found.place)

    def _logs(self) -> dict[QueuePartition, PartitionLog]:
        return {(log.queue, log.partition): log for log in self._manager.all_logs()}


def _mend(upkeep: Upkeep, place: tuple[str, int]) -> bool:
    return upkeep.mend(place, wall_ms(), monotonic_ms())


def patiently(start: Callable[[], T]) -> T:
    """Start, however long the disk's trouble lasts: Ray never restarts an actor that failed to
    start."""
    tries = StartTries()
    while True:
        try:
            return start()
        except Exception as error:  # noqa: BLE001 - raised again where no try can help
            pause_s = tries.failed(error)
            logger.warning("cannot start yet: %s", told(error))
        time.sleep(pause_s)
