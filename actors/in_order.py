"""`InOrderWorker`: one message after the other, or one batch after the other.

Rules of this file: the worker's thread alone calls the handler, in order, and says how far it is
by plain attributes that the loop reads. A message that fails is tried again before any other.
"""

from __future__ import annotations

import logging

from pxrs_ray.actors.handler import Handler
from pxrs_ray.actors.worker import Failure, Office, Worker
from pxrs_ray.batch import Batch
from pxrs_ray.config import GroupConfig
from pxrs_ray.delivery import DeliveredBatch, Delivery, Desk, context_at, deliveries
from pxrs_ray.model import Grant, Offset
from pxrs_ray.processing.course import Standing
from pxrs_ray.retry import FailurePolicy, RetryAfter, RetryRules, after_failure

logger = logging.getLogger(__name__)


class InOrderWorker(Worker):
    """Works one partition strictly in order."""

    def __init__(
        self,
        grant: Grant,
        desk: Desk,
        handler: Handler,
        rules: RetryRules,
        office: Office,
        config: GroupConfig,
        before: Worker | None,
    ) -> None:
        super().__init__(grant, desk, handler, office, config, before)
        self.next_offset: Offset = grant.checkpoint
        self.attempts = grant.attempts
        self._rules = rules
        self._commit_mode = config.commit_mode
        self._kick_at = grant.checkpoint + config.commit_records

    def standing(self) -> Standing:
        """How far it is; the attempts are those of the message that is next."""
        while True:
            offset, attempts = self.next_offset, self.attempts
            if offset == self.next_offset:
                return Standing(offset, attempts)

    def _work_on(self) -> None:
        while (taken := self._take()) is not None:
            if isinstance(taken, int):
                self.next_offset = taken
            elif not self._work(taken):
                return

    def _take(self) -> Batch | Offset | None:
        with self._wake:
            while not self._batches and not self._stopping.is_set():
                self._wake.wait()
            return None if self._stopping.is_set() else self._popped()

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
