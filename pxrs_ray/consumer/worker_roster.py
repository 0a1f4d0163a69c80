"""`WorkerRoster`: which worker has which partition of a consumer, and what follows its end. Pure.

Rules of this file. Only the newest worker of a partition counts. An older one may still be ending
its last message; the newer one waits for it. A worker that ended with a fault rests, and the work
continues from its progress, as long as the partition is ours. Meanwhile the partition shows the
fault, and the ended worker is kept, because it knows the progress. A worker that ended to be
renewed is replaced at once. Every other end is reported to the member: nothing of the partition is
in progress any more. Effects go to the shell at once, and the member is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from pxrs_ray.model import Epoch, Grant, PartitionId
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules

# A worker that has worked so long after a fault has got over it.
HEALED_S = 5.0
RESTARTS = RestartRules(pause_first_s=0.1, pause_most_s=10.0)


class RosterWorker(Protocol):
    """What is known here of a worker. `fault` is why it ended, where that is a fault of its own."""

    partition: PartitionId
    epoch: Epoch

    @property
    def told_to_stop(self) -> bool:
        """Whether its partition goes."""

    @property
    def passed(self) -> int:
        """How many offsets it has passed."""

    @property
    def fault(self) -> Any:
        """Why it ended; None where nothing is wrong."""

    def stop(self) -> None:
        """Begin nothing more."""

    def is_well(self, healed_s: float) -> bool:
        """Whether it has got over what was."""


W = TypeVar("W", bound=RosterWorker)


class WorkerOwner(Protocol):
    """What the workers need of their member."""

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """How to begin a partition anew; None when it is not ours, or is handed over."""

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        """Nothing of a partition is in flight any more."""


class RosterShell(Protocol[W]):
    """Who makes workers, and waits."""

    def make(self, grant: Grant, before: W | None) -> W | None:
        """A worker that has started; None where that failed: then `cannot_begin` was told."""

    def rest(self, partition: PartitionId, epoch: Epoch, pause_s: float, failure: Any) -> None:
        """Say what is wrong, and call `rested` in `pause_s`, unless it is called off."""

    def call_off(self, partition: PartitionId) -> None:
        """The partition rests no more."""


class WorkerRoster(Generic[W]):
    """See the rules at the head of this file."""

    def __init__(self, shell: RosterShell[W]) -> None:
        self._shell = shell
        self._workers: dict[PartitionId, W] = {}
        # What holds partitions up that rest, or have just begun again.
        self.failures: dict[PartitionId, Any] = {}
        self._faults: dict[tuple[PartitionId, Epoch], FaultsInARow] = {}
        self._resting: dict[PartitionId, Epoch] = {}
        self._passed_by_ended = 0

    # --- one partition ----------------------------------------------------------------------------

    def begin(self, grant: Grant) -> None:
        """Put a worker on the partition; an older one may still be ending its last message."""
        partition = grant.partition
        self._rest_no_more(partition)
        self._faults = {at: f for at, f in self._faults.items() if at[0] != partition}
        self._begin(grant)

    def _begin(self, grant: Grant) -> None:
        before = self._workers.get(grant.partition)
        worker = self._shell.make(grant, before)
        if worker is not None:
            self._passed_by_ended += before.passed if before is not None else 0
            self._workers[grant.partition] = worker

    def cannot_begin(self, grant: Grant, failure: Any, now_s: float) -> None:
        """No worker could be made: no more threads, a detail that a newer version wrote."""
        self._rest(grant.partition, grant.epoch, failure, now_s)

    def _rest(self, partition: PartitionId, epoch: Epoch, failure: Any, now_s: float) -> None:
        """Begin the partition again, after a pause that grows from fault to fault."""
        self.failures[partition] = failure
        faults = self._faults.setdefault((partition, epoch), FaultsInARow(RESTARTS))
        pause_s = faults.failed(now_s)
        assert pause_s is not None, "a partition is never given up: it is ours until it is not"
        self._resting[partition] = epoch
        self._shell.rest(partition, epoch, pause_s, failure)

    def rested(self, partition: PartitionId, owner: WorkerOwner) -> None:
        """The pause of a partition is over."""
        epoch = self._resting.pop(partition)
        grant = owner.begin_again(partition, epoch)
        if grant is None:
            owner.stopped(partition, epoch)
        else:
            self._begin(grant)

    def _rest_no_more(self, partition: PartitionId) -> Epoch | None:
        epoch = self._resting.pop(partition, None)
        if epoch is not None:
            self._shell.call_off(partition)
        self.failures.pop(partition, None)
        return epoch

    def stop(self, partition: PartitionId, owner: WorkerOwner) -> None:
        """Let the worker end after what it has in hand; one that rests has nothing in hand."""
        epoch = self._rest_no_more(partition)
        if epoch is not None:
            owner.stopped(partition, epoch)
        worker = self._workers.get(partition)
        if worker is not None:
            worker.stop()

    def ended(self, worker: W, owner: WorkerOwner, now_s: float) -> None:
        """A worker has come to its end."""
        partition, epoch = worker.partition, worker.epoch
        newest = self._workers.get(partition) is worker
        if newest and worker.fault is not None and not worker.told_to_stop:
            self._rest(partition, epoch, worker.fault, now_s)
            return
        if newest and not worker.told_to_stop:
            grant = owner.begin_again(partition, epoch)
            if grant is not None:
                self._begin(grant)
                return
        owner.stopped(partition, epoch)
        if newest:
            del self._workers[partition]
            self._passed_by_ended += worker.passed

    def find(self, partition: PartitionId, epoch: Epoch | None = None) -> W | None:
        """The worker of the partition (under this epoch)."""
        worker = self._workers.get(partition)
        if worker is None or (epoch is not None and worker.epoch != epoch):
            return None
        return worker

    def told_progress(self, worker: W) -> None:
        """It could say how far it is; one that is well again has nothing wrong to show."""
        if worker.partition in self.failures and worker.is_well(HEALED_S):
            del self.failures[worker.partition]

    # --- all --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[W]:
        return iter(list(self._workers.values()))

    @property
    def passed(self) -> int:
        """How many offsets all workers have passed."""
        return self._passed_by_ended + sum(worker.passed for worker in self._workers.values())

    def stop_all(self) -> None:
        """Let every worker end; does not wait."""
        for partition in list(self._resting):
            self._rest_no_more(partition)
        for worker in self:
            worker.stop()
