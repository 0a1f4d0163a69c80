"""`WorkerPool`: the workers of one consumer, one for each partition: started, restarted after a
fault, stopped.

Rules of this file. Everything here runs on the consumer's event loop. A worker that ended with a
fault (an `on_assigned` that raised, a fault of ours) rests and begins again where its progress is,
for as long as the partition is ours; meanwhile the partition shows the fault. One partition's
trouble is never another's. A worker that is renewed begins again too, at once, as it is made now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from pxrs_ray.actors.consumer.worker import Failure, Worker
from pxrs_ray.config import GroupConfig
from pxrs_ray.consumer.delivery import Context
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Epoch, Grant, Offset, PartitionId, Progress
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules, told
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

# A worker that has worked so long after a fault has got over it.
HEALED_S = 5.0
RESTARTS = RestartRules(pause_first_s=0.1, pause_most_s=10.0)

MakeWorker = Callable[[Grant, Worker | None], Worker]


class WorkerOwner(Protocol):
    """What the workers need of their `GroupMember`."""

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """How to begin a partition anew; None when it is not ours, or is handed over."""

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        """Nothing of a partition is in flight any more."""


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
        self._workers: dict[PartitionId, Worker] = {}
        self._failures: dict[PartitionId, Failure] = {}
        self._faults: dict[tuple[PartitionId, Epoch], FaultsInARow] = {}
        self._resting: dict[PartitionId, tuple[Epoch, asyncio.Task[None]]] = {}
        self._passed_by_ended = 0

    # --- one partition ----------------------------------------------------------------------------

    def begin(self, grant: Grant) -> None:
        """Put a worker on the partition; an older one may still be ending its last message."""
        partition = grant.partition
        self._rest_no_more(partition)
        self._faults = {at: f for at, f in self._faults.items() if at[0] != partition}
        self._begin(grant)

    def _begin(self, grant: Grant) -> None:
        try:
            worker = self._make(grant, self._workers.get(grant.partition))
            worker.start()
        except Exception as error:  # no more threads, a detail that a newer version wrote
            failure = Failure(self._context(grant), told(error), FailurePolicy.STOP)
            logger.exception("%s cannot be begun", failure.context)
            self._rest(grant.partition, grant.epoch, failure)
            return
        before = self._workers.get(grant.partition)
        self._passed_by_ended += before.passed if before is not None else 0
        self._workers[grant.partition] = worker

    def _rest(self, partition: PartitionId, epoch: Epoch, failure: Failure) -> None:
        """Begin the partition again, after a pause that grows from fault to fault."""
        self._failures[partition] = failure
        self._supervisor.trouble(f"partition {partition}", failure.error)
        faults = self._faults.setdefault((partition, epoch), FaultsInARow(RESTARTS))
        pause_s = faults.failed(time.monotonic())
        assert pause_s is not None, "a partition is never given up: it is ours until it is not"
        resting = self._supervisor.once(
            f"partition {partition}, to begin again", self._begin_again(partition, epoch, pause_s)
        )
        self._resting[partition] = (epoch, resting)

    async def _begin_again(self, partition: PartitionId, epoch: Epoch, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        del self._resting[partition]
        grant = self._member().begin_again(partition, epoch)
        if grant is None:
            self._member().stopped(partition, epoch)
        else:
            self._begin(grant)

    def _rest_no_more(self, partition: PartitionId) -> Epoch | None:
        epoch, resting = self._resting.pop(partition, (None, None))
        if resting is not None:
            resting.cancel()
        self._failures.pop(partition, None)
        return epoch

    def stop(self, partition: PartitionId) -> None:
        """Let the worker end after what it has in hand; one that rests has nothing in hand."""
        epoch = self._rest_no_more(partition)
        if epoch is not None:
            self._member().stopped(partition, epoch)
        worker = self._workers.get(partition)
        if worker is not None:
            worker.stop()

    def ended(self, worker: Worker) -> None:
        """A worker's thread is about to end."""
        partition, epoch = worker.partition, worker.epoch
        newest = self._workers.get(partition) is worker
        if newest and worker.fault is not None and not worker.told_to_stop:
            # It stays where it is until it is replaced: it knows how far it came.
            self._rest(partition, epoch, worker.fault)
            return
        if newest and not worker.told_to_stop:
            grant = self._member().begin_again(partition, epoch)
            if grant is not None:
                self._begin(grant)
                return
        self._member().stopped(partition, epoch)
        if newest:
            del self._workers[partition]
            self._passed_by_ended += worker.passed

    # --- what passes through ----------------------------------------------------------------------

    def find(self, partition: PartitionId, epoch: Epoch | None = None) -> Worker | None:
        """The worker of the partition (under this epoch)."""
        worker = self._workers.get(partition)
        if worker is None or (epoch is not None and worker.epoch != epoch):
            return None
        return worker

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
        if partition in self._failures and worker.is_well(HEALED_S):
            del self._failures[partition]
        return progress

    # --- all --------------------------------------------------------------------------------------

    @property
    def passed(self) -> int:
        """How many offsets all workers have passed."""
        return self._passed_by_ended + sum(worker.passed for worker in self._workers.values())

    def failures(self) -> tuple[Failure, ...]:
        """What holds partitions up now: a policy, letters that cannot be sent, a fault."""
        held = {p: w.failed or w.waiting for p, w in self._workers.items()}
        stopped = {p: failure for p, failure in held.items() if failure is not None}
        return tuple({**self._failures, **stopped}.values())

    def configure(self, config: GroupConfig, *, anew: bool) -> None:
        """Go on with this configuration; `anew`: with workers that are made of it."""
        for worker in self._workers.values():
            worker.configure(config)
            if anew:
                worker.renew()

    def stop_all(self) -> None:
        """Let every worker end; does not wait."""
        for partition in list(self._resting):
            self._rest_no_more(partition)
        for worker in self._workers.values():
            worker.stop()

    def join(self, wait_s: float) -> None:
        """Wait for each thread's end, so long at most. Called from a thread."""
        for worker in list(self._workers.values()):
            worker.join(wait_s)
