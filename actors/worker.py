"""`PartitionWorker`: the thread that works one partition under one epoch.

Rules of this file. The event loop puts batches in; this thread alone calls the handler, in order,
and says how far it is by plain attributes that the loop reads (`next_offset`, `attempts`). It never
talks to Ray. When it is told to stop it ends after the message (or batch) in hand; what it had not
begun is simply forgotten, for the next owner reads it again from the log.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from pxrs_ray.actors.handler import Handler
from pxrs_ray.batch import Batch
from pxrs_ray.config import GroupConfig
from pxrs_ray.delivery import Context, DeliveredBatch, Delivery, Desk, context_at, deliveries
from pxrs_ray.model import Grant, Offset, PartitionId
from pxrs_ray.retry import FailurePolicy, RetryAfter, RetryRules, after_failure

logger = logging.getLogger(__name__)


class Office(Protocol):
    """What a worker needs of the consumer that it works for. Called from the worker's thread."""

    def may_begin(self, stopping: threading.Event) -> bool:
        """Whether a message may be begun; waits while it is in doubt, until `stopping`."""

    def checkpoint_soon(self) -> None:
        """Commit when next possible; does not wait."""

    def room(self) -> None:
        """A worker that was full can take more."""

    def checkpoint_now(self, worker: PartitionWorker) -> None:
        """Return when the worker's progress is committed, or its epoch is over."""

    def give_up(self, worker: PartitionWorker, failure: Failure, messages: Batch) -> None:
        """Keep what must be kept of messages that are skipped or dead-lettered."""

    def ended(self, worker: PartitionWorker) -> None:
        """The worker's thread is about to end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A handler's failure that the policy has decided."""

    context: Context
    error: str
    policy: FailurePolicy


def queued_bytes_max(config: GroupConfig) -> int:
    """How much of one partition waits in memory before no more of it is fetched."""
    return 2 * config.pull_bytes_max


class PartitionWorker:
    """Works one partition from a grant's checkpoint on, until told to stop."""

    def __init__(
        self,
        grant: Grant,
        desk: Desk,
        handler: Handler,
        rules: RetryRules,
        office: Office,
        config: GroupConfig,
        before: PartitionWorker | None,
    ) -> None:
        self.partition: PartitionId = grant.partition
        self.epoch = grant.epoch
        self.checkpoint: Offset = grant.checkpoint
        self.next_offset: Offset = grant.checkpoint
        self.attempts = grant.attempts
        self.queued_bytes = 0
        self.failed: Failure | None = None
        self._desk = desk
        self._handler = handler
        self._rules = rules
        self._office = office
        self._commit_mode = config.commit_mode
        self._commit_records = config.commit_records
        self._kick_at = grant.checkpoint + config.commit_records
        self._queued_bytes_max = queued_bytes_max(config)
        self._was_full = False
        self._before = before
        self._batches: deque[tuple[Batch | Offset, int]] = deque()
        self._wake = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"pxrs-partition-{self.partition}", daemon=True
        )

    def start(self) -> None:
        """Begin; the handler hears `on_assigned` first."""
        self._thread.start()

    def put(self, batch: Batch, size_bytes: int) -> None:
        """Queue a batch behind those that wait."""
        with self._wake:
            self._batches.append((batch, size_bytes))
            self.queued_bytes += size_bytes
            self._was_full = self.queued_bytes >= self._queued_bytes_max
            self._wake.notify()

    def skip(self, to: Offset) -> None:
        """Go on at `to`, after what waits: the log has nothing before it."""
        with self._wake:
            self._batches.append((to, 0))
            self._wake.notify()

    def stop(self) -> None:
        """End after the message or batch in hand; does not wait."""
        self._stopping.set()
        with self._wake:
            self._wake.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; False when it has not ended in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            # One partition is never worked by two threads of a consumer, not even for a moment.
            if self._before is not None:
                self._before._thread.join()
                self._before = None
            self._handler.on_assigned(self.partition, self.checkpoint)
            while (taken := self._take()) is not None:
                if isinstance(taken, int):
                    self.next_offset = taken
                elif not self._work(taken):
                    break
            self._handler.on_revoked(self.partition)
        except Exception as error:
            context = context_at(self._desk, self.next_offset)
            logger.exception("worker of %s ended by a fault", context)
            self.failed = Failure(context, repr(error), FailurePolicy.STOP)
        finally:
            self._office.ended(self)

    def _take(self) -> Batch | Offset | None:
        with self._wake:
            while not self._batches and not self._stopping.is_set():
                self._wake.wait()
            if self._stopping.is_set():
                return None
            batch, size_bytes = self._batches.popleft()
            self.queued_bytes -= size_bytes
            if self._was_full and self.queued_bytes < self._queued_bytes_max:
                self._was_full = False
                self._office.room()
            return batch

    def _work(self, batch: Batch) -> bool:
        """Process one batch; False when the worker must end."""
        if self._handler.wants_batch:
            delivered = DeliveredBatch(batch, self._desk)
            if not self._office.may_begin(self._stopping) or not self._deliver(delivered, batch):
                return False
            self.next_offset = batch.end_offset
        elif not self._work_one_by_one(batch):
            return False
        if self._commit_mode == "batch":
            self._office.checkpoint_now(self)
        elif self.next_offset >= self._kick_at:
            self._kick()
        return True

    def _work_one_by_one(self, batch: Batch) -> bool:
        call, stopping, may_begin = self._handler.call, self._stopping, self._office.may_begin
        per_message = self._commit_mode == "message"
        for message in deliveries(batch, self._desk):
            if not may_begin(stopping):
                return False
            if self.attempts:
                if not self._deliver(message, _one(batch, message)):
                    return False
            else:
                try:
                    call(message)
                except Exception as error:  # noqa: BLE001 - a handler may raise anything
                    if not self._deliver(message, _one(batch, message), error):
                        return False
            self.next_offset = message.offset + 1
            if per_message:
                self._office.checkpoint_now(self)
            elif self.next_offset >= self._kick_at:
                self._kick()
        return True

    def _kick(self) -> None:
        self._kick_at = self.next_offset + self._commit_records
        self._office.checkpoint_soon()

    def _deliver(
        self,
        argument: Delivery | DeliveredBatch,
        messages: Batch,
        failed_before: Exception | None = None,
    ) -> bool:
        """Call until it succeeds or the policy has dealt with it; False: the worker must end."""
        error = failed_before
        while not self._stopping.is_set():
            if error is not None:
                if not self._judge(error, messages):
                    return False
                if self.attempts == 0:
                    return True
            self._desk.attempt = self.attempts + 1
            try:
                self._handler.call(argument)
            except Exception as raised:  # noqa: BLE001 - a handler may raise anything
                error = raised
            else:
                self.attempts = 0
                self._desk.attempt = 1
                return True
        return False

    def _judge(self, error: Exception, messages: Batch) -> bool:
        """Count a failure and do what follows; attempts are 0 again when it has been dealt with."""
        self.attempts += 1
        context = context_at(self._desk, messages.base_offset)
        verdict = after_failure(self._rules, self.attempts)
        if isinstance(verdict, RetryAfter):
            logger.warning("%s failed, again in %d ms: %r", context, verdict.delay_ms, error)
            self._stopping.wait(verdict.delay_ms / 1_000)
            return not self._stopping.is_set()
        failure = Failure(context, repr(error), verdict)
        logger.error("%s failed for good (%s): %r", context, verdict.value, error)
        if verdict is FailurePolicy.STOP:
            self.failed = failure
            self._stopping.wait()
            return False
        self._office.give_up(self, failure, messages)
        self.attempts = 0
        self._desk.attempt = 1
        return True


def _one(batch: Batch, message: Delivery) -> Batch:
    index = message.offset - batch.base_offset
    return batch.slice(index, index + 1)
