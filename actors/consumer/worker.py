"""`Worker`: the base of both workers of a partition: its thread, its queue, and how it stops and
fails.

Rules of this file. The event loop puts batches in, and a thread of the worker's own takes them out
in order. That thread never calls Ray. A worker that is to stop begins nothing new; what it had not
begun is forgotten, because the next owner reads it again from the log. An exception of a handler
fails its message, except when the partition may no longer be ours: then it says nothing about the
message, which begins once more when we hold a lease. Any other exception fails this worker alone,
which ends with a `fault`: its consumer reports it, and starts the partition again (see
`WorkerPool`).
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.config import GroupConfig
from pxrs_ray.consumer.delivery import Context, DeliveryContext, context_at
from pxrs_ray.consumer.work_queue import WorkEnd, WorkQueue
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import NotHeld
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Grant, Message, Offset, PartitionId, Progress
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)


class WorkLease(Protocol):
    """What a worker needs of its member's lease, from the worker's threads."""

    # Nothing begins later than this moment of `time.monotonic`, unless `may_begin` says so.
    begin_until_s: float

    def may_begin(self, stopping: threading.Event) -> bool:
        """Whether a message may be begun; waits while the lease is over, until `stopping`."""


class WorkerCallbacks(Protocol):
    """What a worker calls on its consumer, from the worker's threads."""

    in_hand: CallRecord

    @property
    def lease(self) -> WorkLease:
        """Under which all work is begun. A worker asks it itself: the consumer is an actor, and
        Ray traces each call of an actor's public methods, also those of its own threads."""

    def checkpoint_soon(self) -> None:
        """Commit when next possible; does not wait."""

    def room(self) -> None:
        """A worker that was full can take more."""

    def checkpoint_now(self, worker: Worker) -> None:
        """Return when the worker's progress is committed, or its epoch is over."""

    def give_up(self, worker: Worker, failure: Failure, messages: Iterable[Message]) -> None:
        """Keep what must be kept of messages that are skipped or dead-lettered."""

    def ended(self, worker: Worker) -> None:
        """The worker's thread is about to end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A handler's failure, and the policy that applies to it."""

    context: Context
    error: str
    policy: FailurePolicy


def queued_bytes_max(config: GroupConfig) -> int:
    """How much of one partition waits in memory before no more of it is fetched."""
    return 2 * config.pull_bytes_max


class Worker(ABC):
    """Works one partition from a grant's checkpoint on, until it is stopped."""

    # Whether it does nothing before the first message.
    _sleeps_at_first = False

    def __init__(
        self,
        grant: Grant,
        shared: DeliveryContext,
        handler: Handler,
        callbacks: WorkerCallbacks,
        config: GroupConfig,
        before: Worker | None,
    ) -> None:
        self.partition: PartitionId = grant.partition
        self.epoch = grant.epoch
        self.checkpoint: Offset = grant.checkpoint
        self.failed: Failure | None = None
        # What it has given up, and cannot put where it must be kept yet.
        self.waiting: Failure | None = None
        self.fault: Failure | None = None
        self._end = WorkEnd()
        self._queue = WorkQueue(queued_bytes_max(config))
        self._shared = shared
        self._handler = handler
        self._callbacks = callbacks
        self._lease = callbacks.lease
        self.configure(config)
        self._before = before
        self._wake = threading.Condition()
        self._stopping = threading.Event()
        # The same once more: what is looked at for each message is one attribute.
        self._is_ending = False
        # Whether its thread has begun, or was to begin.
        self._is_awake = False
        self._thread = Supervisor(str(context_at(shared, self.checkpoint))).thread(
            f"pxrs-partition-{self.partition}", self._run
        )

    # --- the event loop's side --------------------------------------------------------------------

    @abstractmethod
    def progress(self) -> Progress:
        """How far it is: what the next commit should say. Callable from any thread."""

    @property
    def passed(self) -> int:
        """How many offsets it has passed since it began."""
        return self._where().offset - self.checkpoint

    def is_well(self, healed_s: float) -> bool:
        """Whether it has begun, and come further or worked for so long."""
        return self._end.is_well(self.passed, healed_s, time.monotonic())

    @property
    def told_to_stop(self) -> bool:
        """Whether its partition goes."""
        return self._end.told_to_stop

    @property
    def queued_bytes(self) -> int:
        """What waits for it."""
        return self._queue.queued_bytes

    def start(self) -> None:
        """Begin; the handler hears `on_assigned` first.

        Where it wants to hear nothing of that kind there is nothing to do before a message comes:
        the thread begins then, for a consumer may have more partitions than a process has threads.
        """
        if self._sleeps_at_first and not self._handler.hears_of_partitions and self._is_alone():
            self._end.began(time.monotonic())
        else:
            self._is_awake = True
            self._thread.start()

    def _is_alone(self) -> bool:
        """Whether no worker before this one is at its last message."""
        return self._before is None or self._before.has_ended

    def _awake(self) -> None:
        """Have the thread run. Without one it is at fault, as one that has ended is."""
        if self._is_awake:
            return
        self._is_awake = True
        try:
            self._thread.start()
        except RuntimeError as error:  # there are no more threads
            self.fault = Failure(self._where(), told(error), FailurePolicy.STOP)
            self._callbacks.ended(self)

    def put(self, batch: Batch, size_bytes: int) -> None:
        """Queue a batch behind those that wait."""
        with self._wake:
            self._queue.put(batch, size_bytes)
            self._wake.notify_all()
        self._awake()

    def skip(self, to: Offset) -> None:
        """Go on at `to`, after what waits: the log has nothing before it."""
        with self._wake:
            self._queue.skip(to)
            self._wake.notify_all()
        self._awake()

    def configure(self, config: GroupConfig) -> None:
        """Go on with what can change under a worker's hands."""
        self._commit_records = config.commit_records
        self._queue.bytes_max = queued_bytes_max(config)

    def renew(self) -> None:
        """End as `stop` does, but so that the partition begins again: it stays ours.

        What is done is committed first where the commit mode wants that, for nobody else will.
        """
        self._end.renew()
        self._end_soon()

    def stop(self) -> None:
        """Begin nothing more, and end when what is in hand is over; does not wait."""
        self._end.stop()
        self._end_soon()

    def fail(self, error: BaseException) -> None:
        """It cannot go on: let it end with this fault."""
        if self.fault is None:
            self.fault = Failure(self._where(), told(error), FailurePolicy.STOP)
            self.renew()

    def _end_soon(self) -> None:
        self._is_ending = True
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()
        self._awake()

    @property
    def has_ended(self) -> bool:
        """Whether its thread runs no more, or never did."""
        return not self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread's end; False when it has not ended in time."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return self.has_ended

    # --- the thread's side ------------------------------------------------------------------------

    @abstractmethod
    def _work_on(self) -> None:
        """Work until stopped."""

    def _run(self) -> None:
        try:
            # One partition is never worked by two threads of a consumer, not even for a moment.
            if self._before is not None:
                self._before.join()
                self._before = None
            self._handler.on_assigned(self.partition, self.checkpoint)
            self._end.began(time.monotonic())
            self._work_on()
            self._handler.on_revoked(self.partition)
        except BaseException as error:  # also `sys.exit()` in one of the handler's methods
            leave_if_child(error)
            self.fault = Failure(self._where(), told(error), FailurePolicy.STOP)
            logger.exception("worker of %s ended by a fault", self.fault.context)
        finally:
            self._callbacks.ended(self)

    def _is_void(self, error: BaseException) -> bool:
        """Whether a call ended so because our time was over, whatever is wrong with the message."""
        leave_if_child(error)
        return isinstance(error, NotHeld) or not self._shared.title()

    def _where(self) -> Context:
        """How far it has come, as far as the worker can say."""
        try:
            return context_at(self._shared, self.progress().checkpoint)
        except Exception:  # noqa: BLE001 - this tells of a fault, which may be in the progress
            return context_at(self._shared, self.checkpoint)

    def _note_waiting(self, failure: Failure, error: BaseException) -> None:
        """What was given up cannot be stored now; that is logged, and tried again."""
        text = f"{failure.error}; it cannot be kept yet ({failure.policy.value}): {told(error)}"
        self.waiting = replace(failure, error=text)
        logger.error("%s: %s", failure.context, text)

    def _popped(self) -> Batch | Offset:
        """With `_wake` held: the next of what waits; fetching goes on when there is room again."""
        taken, has_room = self._queue.pop()
        if has_room:
            self._callbacks.room()
        return taken
