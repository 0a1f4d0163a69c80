"""`LogWriter`: everything that changes a buffer's logs, one job after the other.

Rules of this file. Jobs run in the order in which they were given, on one thread, several in one
go: jobs that waited while the disk was busy are written and synced together (group commit). A job
is answered when its durability is reached, and is always answered: whatever fails, no caller waits
for ever, and unsynced logs stay known. Small appends that need no sync run on the event loop
itself, because a hop to a thread costs more than they do; and where no job is before them they
run at once, because to queue for nothing costs more than they do too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pxrs_ray.data.log_limits import Durability
from pxrs_ray.errors import LogAway, LogError
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

SYNC_THREADS = 8
INLINE_BYTES_MAX = 64 << 10
# What runs at once holds up everybody on the event loop: only little does.
AT_ONCE_BYTES_MAX = 16 << 10
UNKNOWN_BYTES = 1 << 62


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    logs: Collection[PartitionLog]
    size_bytes: int
    done: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None
    unsynced: dict[PartitionLog, LogError] = field(default_factory=dict)


class LogWriter:
    """See the rules at the head of this file. For one event loop."""

    def __init__(self, changed: Callable[[PartitionLog], None]) -> None:
        """`changed` gets, on the event loop, each log that may have something new to read."""
        self.syncs = 0
        self.sync_ms_max = 0.0
        self._changed = changed
        self._jobs: list[_Job] = []
        self._dirty: set[PartitionLog] = set()
        self._given = asyncio.Event()
        self._busy = self._closed = False
        self._draining: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._supervisor = Supervisor("writer")
        self._thread = ThreadPoolExecutor(1, "pxrs-writer")
        self._sync_threads = ThreadPoolExecutor(SYNC_THREADS, "pxrs-sync")

    async def do(
        self,
        run: Callable[[], Any],
        logs: Collection[PartitionLog],
        size_bytes: int = UNKNOWN_BYTES,
    ) -> Any:
        """Run a job that changes `logs`; answer what it answered, once it is durable."""
        answer, unsynced = await self.do_each(run, logs, size_bytes)
        for error in unsynced.values():
            raise error
        return answer

    async def do_each(
        self,
        run: Callable[[], Any],
        logs: Collection[PartitionLog],
        size_bytes: int = UNKNOWN_BYTES,
    ) -> tuple[Any, Mapping[PartitionLog, LogError]]:
        """As `do`; logs that could not be synced are named with their errors, and are not
        durable."""
        if self._closed:
            raise LogAway("the buffer is closed")
        job = _Job(run, logs, size_bytes, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._draining is None:
            self._draining = self._supervisor.keep("writing", self._drain)
        self._given.set()
        await job.done
        return job.answer, job.unsynced

    def at_once(
        self, run: Callable[[], Any], logs: Collection[PartitionLog], size_bytes: int
    ) -> bool:
        """Run a job of a few bytes now; False: it has to wait for its turn or for a sync, and was
        not run. What it raises is the caller's.
        """
        if self._busy or self._jobs or self._closed or size_bytes > AT_ONCE_BYTES_MAX:
            return False
        if any(log.limits.durability is Durability.ALWAYS for log in logs):
            return False
        before = [(log, log.changes) for log in logs]
        try:
            run()
        finally:
            self._sync_soon(logs)
            self._tell(before)
        return True

    def _tell(self, before: Collection[tuple[PartitionLog, int]]) -> None:
        """Tell of what has changed since these were its changes."""
        for log, changes in before:
            if log.changes != changes:
                self._changed(log)

    def _sync_soon(self, logs: Collection[PartitionLog]) -> None:
        """Have synced, at its interval, what is not."""
        self._dirty.update(log for log in logs if log.dirty)
        if self._dirty and (self._syncing is None or self._syncing.done()):
            self._syncing = self._supervisor.keep("syncing", self._sync_later)

    async def _drain(self) -> None:
        while True:
            await self._do_what_is_given()
            self._given.clear()
            await self._given.wait()

    async def _do_what_is_given(self) -> None:
        while self._jobs:
            jobs, self._jobs = self._jobs, []
            logs = {log for job in jobs for log in job.logs}
            before = [(log, log.changes) for log in logs]
            self._busy = True
            try:
                await self._run_all(jobs, logs)
                self._tell(before)
            except BaseException as error:
                for job in jobs:
                    job.error = job.error or LogAway(f"not known to be durable: {told(error)}")
                raise
            finally:
                self._busy = False
                for job in jobs:
                    _answer(job)
                self._sync_soon(logs)

    async def _run_all(self, jobs: list[_Job], logs: Collection[PartitionLog]) -> None:
        at_once = {log for log in logs if log.limits.durability is Durability.ALWAYS}
        if not at_once and sum(job.size_bytes for job in jobs) <= INLINE_BYTES_MAX:
            self._run(jobs, at_once)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._run, jobs, at_once)

    def _run(self, jobs: list[_Job], at_once: set[PartitionLog]) -> None:
        for job in jobs:
            try:
                job.answer = job.run()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
                # An end is no answer that a future could bring; of those before it nothing fails.
                if isinstance(error, Exception) and not isinstance(error, StopIteration):
                    job.error = error
                else:
                    job.error = RuntimeError(told(error))
        failed = self._sync(at_once) if at_once else {}
        for job in jobs if failed else ():
            job.unsynced = {log: failed[log] for log in job.logs if log in failed}

    def _sync(self, logs: Collection[PartitionLog]) -> dict[PartitionLog, LogError]:
        """Sync in parallel, for sixteen files one after the other take as many times longer.

        Answers which of them failed, and why.
        """
        started = perf_counter()
        done = list(zip(logs, self._sync_threads.map(_sync_one, logs), strict=True))
        self.syncs += 1
        self.sync_ms_max = max(self.sync_ms_max, (perf_counter() - started) * 1_000)
        return {log: error for log, error in done if error is not None}

    async def _sync_later(self) -> None:
        """Sync what is dirty at the logs' intervals, until nothing is.

        A log whose sync failed takes no more: it is opened anew by who holds it.
        """
        loop = asyncio.get_running_loop()
        while self._dirty:
            interval_ms = min(log.limits.sync_interval_ms for log in self._dirty)
            await asyncio.sleep(interval_ms / 1_000)
            # Emptied before the sync: a log that gets more while it runs is dirty again afterwards.
            logs, self._dirty = self._dirty, set()
            try:
                failed = await loop.run_in_executor(None, self._sync, logs)
            finally:
                self._dirty.update(log for log in logs if log.dirty and log.state != "failed")
            for error in failed.values():
                logger.error("%s", error)

    async def close(self) -> None:
        """End the threads; what was given before is done first."""
        await self.do(lambda: None, ())
        self._closed = True
        if self._syncing is not None:
            self._dirty.clear()
            await self._syncing
        await self._supervisor.close()
        self._thread.shutdown()
        self._sync_threads.shutdown()


def _answer(job: _Job) -> None:
    if job.done.done():
        return
    if job.error is not None:
        job.done.set_exception(job.error)
    else:
        job.done.set_result(None)


def _sync_one(log: PartitionLog) -> LogError | None:
    try:
        log.sync()
    except LogError as error:
        return error
    except BaseException as error:  # noqa: BLE001 - no answer says that it is durable
        return LogAway(f"{log.folder}: not known to be synced: {told(error)}")
    return None
