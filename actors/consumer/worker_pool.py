"""`WorkerPool`: the workers of one consumer, one for each partition: started, restarted after a
fault, stopped.

Rules of this file. Everything here runs on the consumer's event loop. Which worker has a partition,
and what follows its end, the `WorkerRoster` says. Here workers are made, rest, and are asked. One
partition's trouble is never another's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from pxrs_ray.actors.consumer.worker import Failure, Worker
from pxrs_ray.config import GroupConfig
from pxrs_ray.consumer.delivery import Context
from pxrs_ray.consumer.worker_roster import WorkerOwner, WorkerRoster
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Epoch, Grant, Offset, PartitionId, Progress
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

MakeWorker = Callable[[Grant, Worker | None], Worker]


class WorkerPool:
    """See the rules at the head of this file."""

    def __init__(
        self,
        make: MakeWorker,
        member: Callable[[], WorkerOwner],
        context: Callable[[Grant], Context],
        supervisor: Supervisor,
    ) -> None:
        self._make = make
        self._member = member
        self._context = context
        self._supervisor = supervisor
        self._roster: WorkerRoster[Worker] = WorkerRoster(self)
        self._resting: dict[PartitionId, asyncio.Task[None]] = {}

    # --- one partition ----------------------------------------------------------------------------

    def begin(self, grant: Grant) -> None:
        """Put a worker on the partition; an older one may still be ending its last message."""
        self._roster.begin(grant)

    def stop(self, partition: PartitionId) -> None:
        """Let the worker end after what it has in hand; one that rests has nothing in hand."""
        self._roster.stop(partition, self._member())

    def ended(self, worker: Worker) -> None:
        """A worker's thread is about to end."""
        self._roster.ended(worker, self._member(), time.monotonic())

    # --- what the roster wants --------------------------------------------------------------------

    def make(self, grant: Grant, before: Worker | None) -> Worker | None:
        """A worker that has started; None where that failed, which the roster is told."""
        try:
            worker = self._make(grant, before)
            worker.start()
        except Exception as error:  # no more threads, a detail that a newer version wrote
            failure = Failure(self._context(grant), told(error), FailurePolicy.STOP)
            logger.exception("%s cannot be begun", failure.context)
            self._roster.cannot_begin(grant, failure, time.monotonic())
            return None
        return worker

    def rest(self, partition: PartitionId, epoch: Epoch, pause_s: float, failure: Failure) -> None:
        """Begin the partition again after a pause, and show why."""
        self._supervisor.trouble(f"partition {partition}", failure.error)
        self._resting[partition] = self._supervisor.once(
            f"partition {partition}, to begin again", self._begin_again(partition, pause_s)
        )

    async def _begin_again(self, partition: PartitionId, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        del self._resting[partition]
        self._roster.rested(partition, self._member())

    def call_off(self, partition: PartitionId) -> None:
        """The partition rests no more."""
        self._resting.pop(partition).cancel()

    # --- what passes through ----------------------------------------------------------------------

    def find(self, partition: PartitionId, epoch: Epoch | None = None) -> Worker | None:
        """The worker of the partition (under this epoch)."""
        return self._roster.find(partition, epoch)

    def put(self, partition: PartitionId, epoch: Epoch, batch: Batch, size_bytes: int) -> None:
        """Pass messages on."""
        worker = self.find(partition, epoch)
        if worker is not None:
            worker.put(batch, size_bytes)

    def skip(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """Let the worker go on behind a gap, in its order."""
        worker = self.find(partition, epoch)
        if worker is not None:
            worker.skip(to)

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """Where the worker is; None where there is none, or it cannot say."""
        worker = self.find(partition, epoch)
        if worker is None:
            return None
        try:
            progress = worker.progress()
        except Exception as error:  # noqa: BLE001 - other partitions are committed all the same
            self._supervisor.note(f"progress of partition {partition}", error)
            worker.fail(error)
            return None
        self._roster.told_progress(worker)
        return progress

    # --- all --------------------------------------------------------------------------------------

    @property
    def passed(self) -> int:
        """How many offsets all workers have passed."""
        return self._roster.passed

    def failures(self) -> tuple[Failure, ...]:
        """What holds partitions up now: a policy, letters that cannot be sent, a fault."""
        held = {worker.partition: worker.failed or worker.waiting for worker in self._roster}
        stopped = {p: failure for p, failure in held.items() if failure is not None}
        return tuple({**self._roster.failures, **stopped}.values())

    def configure(self, config: GroupConfig, *, anew: bool) -> None:
        """Go on with this configuration; `anew`: with workers that are made of it."""
        for worker in self._roster:
            worker.configure(config)
            if anew:
                worker.renew()

    def stop_all(self) -> None:
        """Let every worker end; does not wait."""
        self._roster.stop_all()

    def join(self, wait_s: float) -> None:
        """Wait for each thread's end, so long at most. Called from a thread."""
        for worker in self._roster:
            worker.join(wait_s)
