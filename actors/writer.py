"""`Writer`: everything that changes a buffer's logs, one thing after the other.

Rules of this file. Jobs run in the order they were given, on one thread, several in one go: what
waited while the disk was busy is written and synced together (group commit). A job is answered
when its durability is reached. Small appends that need no sync run on the event loop itself, for
a hop to a thread costs more than they do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pxrs_ray.errors import LogError
from pxrs_ray.log.limits import Durability
from pxrs_ray.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

SYNC_THREADS = 8
INLINE_BYTES_MAX = 64 << 10
UNKNOWN_BYTES = 1 << 62


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    logs: Collection[PartitionLog]
    size_bytes: int
    done: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None


class Writer:
    """See the rules at the head of this file. To be used from one event loop."""

    def __init__(self, changed: Callable[[PartitionLog], None]) -> None:
        """`changed` is told on the event loop which logs may have something new to read."""
        self.syncs = 0
        self.sync_ms_max = 0.0
        self._changed = changed
        self._jobs: list[_Job] = []
        self._dirty: set[PartitionLog] = set()
        self._draining: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "pxrs-writer")
        self._sync_threads = ThreadPoolExecutor(SYNC_THREADS, "pxrs-sync")

    async def do(
        self,
        run: Callable[[], Any],
        logs: Collection[PartitionLog],
        size_bytes: int = UNKNOWN_BYTES,
    ) -> Any:
        """Run a job that changes `logs`; answer what it answered, once it is durable."""
        loop = asyncio.get_running_loop()
        job = _Job(run, logs, size_bytes, loop.create_future())
        self._jobs.append(job)
        if self._draining is None or self._draining.done():
            self._draining = loop.create_task(self._drain())
        return await job.done

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs:
            jobs, self._jobs = self._jobs, []
            logs = {log for job in jobs for log in job.logs}
            at_once = {log for log in logs if log.limits.durability is Durability.ALWAYS}
            before = [(log, log.changes) for log in logs]
            if not at_once and sum(job.size_bytes for job in jobs) <= INLINE_BYTES_MAX:
                self._run(jobs, at_once)
            else:
                await loop.run_in_executor(self._thread, self._run, jobs, at_once)
            for log, changes in before:
                if log.changes != changes:
                    self._changed(log)
            for job in jobs:
                _answer(job)
            self._dirty.update(log for log in logs if log.dirty)
            if self._dirty and (self._syncing is None or self._syncing.done()):
                self._syncing = loop.create_task(self._sync_later())

    def _run(self, jobs: list[_Job], at_once: set[PartitionLog]) -> None:
        for job in jobs:
            try:
                job.answer = job.run()
            except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
                job.error = error
        failed = dict(zip(at_once, self._sync(at_once), strict=True)) if at_once else {}
        for job in jobs:
            for log in job.logs:
                job.error = job.error or failed.get(log)

    def _sync(self, logs: Collection[PartitionLog]) -> list[LogError | None]:
        """Sync in parallel, for sixteen files one after the other take as many times longer."""
        started = perf_counter()
        failures = list(self._sync_threads.map(_sync_one, logs))
        self.syncs += 1
        self.sync_ms_max = max(self.sync_ms_max, (perf_counter() - started) * 1_000)
        return failures

    async def _sync_later(self) -> None:
        """Sync what is dirty at the logs' intervals, until nothing is."""
        loop = asyncio.get_running_loop()
        while self._dirty:
            interval_ms = min(log.limits.sync_interval_ms for log in self._dirty)
            await asyncio.sleep(interval_ms / 1_000)
            logs, self._dirty = self._dirty, set()
            for failure in await loop.run_in_executor(None, self._sync, logs):
                if failure is not None:
                    logger.error("%s", failure)

    async def close(self) -> None:
        """End the threads; what was given before is done first."""
        if self._draining is not None:
            await self._draining
        if self._syncing is not None:
            self._dirty.clear()
            await self._syncing
        self._thread.shutdown()
        self._sync_threads.shutdown()


def _answer(job: _Job) -> None:
    if job.done.cancelled():
        return
    if job.error is not None:
        job.done.set_exception(job.error)
    else:
        job.done.set_result(job.answer)


def _sync_one(log: PartitionLog) -> LogError | None:
    try:
        log.sync()
    except LogError as error:
        return error
    return None
