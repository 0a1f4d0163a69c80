"""`LogWriter`: everything that changes a buffer's logs, one job after the other.

Rules of this file. `WriteTurns` decides which jobs are written together, which are synced before
they are answered, and what a failure means to them; here they get threads. A turn that is small and
waits for no sync runs on the event loop itself, because a hop to a thread costs more than it does;
and where no job is before it a small one runs at once, because to queue for nothing costs more too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from pxrs_ray.errors import LogError
from pxrs_ray.log.open_logs import one_by_one
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.write_turns import (
    UNKNOWN_BYTES,
    WriteJob,
    WriteTurn,
    WriteTurns,
    changed_since,
    marks_of,
    sync_one,
)
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

SYNC_THREADS = 8
# Below, threads cost more than what they save.
MANY_LOGS = 32


class LogWriter:
    """See the rules at the head of this file. For one event loop."""

    def __init__(self, changed: Callable[[PartitionLog], None], *, apart: bool = True) -> None:
        """`changed` gets, on the event loop, each log that may have something new to read. `apart`
        says that jobs of different logs have nothing in common: see `WriteTurns`."""
        self.syncs = 0
        self.sync_ms_max = 0.0
        self._changed = changed
        self._turns = WriteTurns(apart=apart)
        self._waiting: dict[WriteJob, asyncio.Future[None]] = {}
        self._given = asyncio.Event()
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
        job = WriteJob(run, logs, size_bytes)
        await self._give(job)
        return job.answer, job.unsynced

    def soon(self, run: Callable[[], Any], logs: Collection[PartitionLog], size_bytes: int) -> None:
        """Have a job run: now where `at_once` can, else in its turn. Nobody hears of its end: what
        it raises is its own."""
        if not self.at_once(run, logs, size_bytes):
            done = self._give(WriteJob(run, logs, size_bytes))
            done.add_done_callback(lambda over: over.cancelled() or over.exception())

    def _give(self, job: WriteJob) -> asyncio.Future[None]:
        self._turns.give(job)
        done = self._waiting[job] = asyncio.get_running_loop().create_future()
        if self._draining is None:
            self._draining = self._supervisor.keep("writing", self._drain)
        self._given.set()
        return done

    def at_once(
        self, run: Callable[[], Any], logs: Collection[PartitionLog], size_bytes: int
    ) -> bool:
        """Run a job of a few bytes now; False: it has to wait for its turn or for a sync, and was
        not run. What it raises is the caller's.
        """
        if not self._turns.may_run_now(logs, size_bytes):
            return False
        before = marks_of(logs)
        try:
            run()
        finally:
            self._turns.ran_now(logs)
            self._sync_soon()
            self._tell(changed_since(before))
        return True

    def _tell(self, changed: Iterable[PartitionLog]) -> None:
        for log in changed:
            self._changed(log)

    def _sync_soon(self) -> None:
        """Have synced, at its interval, what is not."""
        if self._turns.dirty and (self._syncing is None or self._syncing.done()):
            self._syncing = self._supervisor.keep("syncing", self._sync_later)

    async def _drain(self) -> None:
        while True:
            while (turn := self._turns.next_turn()) is not None:
                await self._carry(turn)
            self._given.clear()
            await self._given.wait()

    async def _carry(self, turn: WriteTurn) -> None:
        try:
            if turn.on_a_thread:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, self._run, turn)
            else:
                self._run(turn)
            self._tell(turn.changed())
        except BaseException as error:
            turn.broke(error)
            raise
        finally:
            self._turns.over(turn)
            for job in turn.jobs:
                _answer(self._waiting.pop(job), job.error)
            self._sync_soon()

    def _run(self, turn: WriteTurn) -> None:
        turn.run()
        if turn.sync_first:
            turn.synced(self._sync(turn.sync_first))

    def _sync(self, logs: Collection[PartitionLog]) -> dict[PartitionLog, LogError]:
        """Sync in parallel, for sixteen files one after the other take as many times longer.

        Answers which of them failed, and why.
        """
        started = perf_counter()
        done = list(zip(logs, self._sync_threads.map(sync_one, logs), strict=True))
        self.syncs += 1
        self.sync_ms_max = max(self.sync_ms_max, (perf_counter() - started) * 1_000)
        return {log: error for log, error in done if error is not None}

    async def _sync_later(self) -> None:
        """Sync what is dirty at the logs' intervals, until nothing is."""
        loop = asyncio.get_running_loop()
        while (wait_ms := self._turns.sync_in_ms()) is not None:
            await asyncio.sleep(wait_ms / 1_000)
            logs = self._turns.begin_sync()
            try:
                failed = await loop.run_in_executor(None, self._sync, logs)
            finally:
                self._turns.sync_over(logs)
            for error in failed.values():
                logger.error("%s", error)

    async def close(self) -> None:
        """End the threads; what was given before is done first."""
        await self.do(lambda: None, ())
        self._turns.closed = True
        if self._syncing is not None:
            self._turns.dirty.clear()
            await self._syncing
        await self._supervisor.close()
        self._thread.shutdown()
        self._sync_threads.shutdown()


def in_threads(work: Callable[[Any], None], values: Iterable[Any]) -> None:
    """Open or close many logs: each of them waits for the disk several times, and disks sync many
    files at once as fast as one."""
    every = list(values)
    if len(every) < MANY_LOGS:
        one_by_one(work, every)
        return
    with ThreadPoolExecutor(SYNC_THREADS, "pxrs-open") as pool:
        for _ in pool.map(work, every):
            pass


def _answer(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)
