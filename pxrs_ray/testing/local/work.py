"""What works one partition for one member: `InOrderWork` and `ScheduledWork`, one call at a time.

Rules of this file, those of the workers on Ray. A message that fails is tried again before any
other of its partition (in order), or of its key (courses). Attempts are counted across hand-overs.
What ends because the partition is not ours any more is no word on the message. Time passes only
where the test lets it, so a pause is a moment at which the work goes on (`due_ms`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from pxrs_ray.config import GroupConfig
from pxrs_ray.config.scheduling import (
    handler_timeout_ms,
    items_of,
    message_of,
    retry_rules,
    tenant_header,
)
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Grant, Message, Offset, Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.retry_rules import (
    Deferred,
    FailurePolicy,
    TryAgain,
    after_failure,
    outcome,
)
from pxrs_ray.processing.scheduler import Item, Task, Work, WorkScheduler
from pxrs_ray.processing.suspects import Suspect, decode_detail, encode_detail
from pxrs_ray.supervision.restart_rules import told


class Caller(Protocol):
    """What a partition's work needs of the member that it works for."""

    wants_batch: bool

    def call(
        self,
        argument: Delivery | DeliveredBatch,
        messages: Sequence[Message],
        due_ms: int | None = None,
    ) -> BaseException | None:
        """Call the handler; answers what it raised. Raises when the member has died in the call.

        A call that ends at `due_ms` or later has timed out.
        """

    def now_ms(self) -> int:
        """The present moment."""

    def give_up(
        self,
        shared: DeliveryContext,
        attempts: int,
        error: str,
        policy: FailurePolicy,
        of: Iterable[Message],
    ) -> None:
        """Keep what must be kept of messages that are not tried again."""


class PartitionWork(ABC):
    """The work on one partition, from a grant's checkpoint on."""

    def __init__(
        self, grant: Grant, shared: DeliveryContext, config: GroupConfig, caller: Caller
    ) -> None:
        self.partition = grant.partition
        self.epoch = grant.epoch
        self.shared = shared
        self.stopping = False
        self.busy = False
        self.queued_bytes = 0
        self.stopped_by = ""
        self._config = config
        self._caller = caller
        self._batches: deque[tuple[Batch | Offset, int]] = deque()

    def put(self, batch: Batch, size_bytes: int) -> None:
        """Queue a batch behind those that wait."""
        self._batches.append((batch, size_bytes))
        self.queued_bytes += size_bytes

    def skip(self, to: Offset) -> None:
        """Go on at `to`, after what waits: the log has nothing before it."""
        self._batches.append((to, 0))

    def _popped(self) -> Batch | Offset:
        taken, size_bytes = self._batches.popleft()
        self.queued_bytes -= size_bytes
        return taken

    def step(self) -> bool:
        """Do the next thing that may be done now, at most one call; False when there is none."""
        if self.stopping or self.busy or self.stopped_by:
            return False
        self.busy = True
        try:
            return self._step()
        finally:
            self.busy = False

    @abstractmethod
    def _step(self) -> bool:
        """As `step`."""

    @abstractmethod
    def progress(self) -> Progress:
        """How far it is."""

    @abstractmethod
    def due_ms(self) -> int | None:
        """When it goes on by itself; None: it waits for messages, or for nothing."""


class InOrderWork(PartitionWork):
    """One message after the other, or one batch after the other."""

    def __init__(
        self, grant: Grant, shared: DeliveryContext, config: GroupConfig, caller: Caller
    ) -> None:
        super().__init__(grant, shared, config, caller)
        self._rules = retry_rules(config)
        self._next = grant.checkpoint
        _, self._failing, self._suspicion = decode_detail(grant.checkpoint, grant.detail)
        self._attempts = self._failing.pop(grant.checkpoint, grant.attempts)
        self._known_end = max(self._suspicion.end, *(o + 1 for o in self._failing), 0)
        self._began_ms = caller.now_ms()
        self._wait_until_ms = 0
        self._parts: deque[Batch] = deque()
        self.batch_ended = False

    def progress(self) -> Progress:
        """How far it is; the attempts are those of the message that is next."""
        if self._next >= self._known_end:
            return Progress(self._next, self._attempts)
        later = {offset: n for offset, n in self._failing.items() if offset > self._next}
        detail = encode_detail(DoneRanges(self._next), later, self._suspicion.above(self._next))
        attempts = max(self._attempts, self._failing.get(self._next, 0))
        return Progress(self._next, attempts, detail)

    def due_ms(self) -> int | None:
        """When the message that failed is tried again."""
        if self.stopping or self.stopped_by or not (self._parts or self._batches):
            return None
        return self._wait_until_ms

    def _step(self) -> bool:
        if self._caller.now_ms() < self._wait_until_ms:
            return False
        if not self._parts and not self._take():
            return False
        part = self._parts[0]
        suspect = self._suspicion.of(part.base_offset) if len(part) == 1 else None
        if len(part) == 1:
            self._attempts = self._failing.get(part.base_offset, self._attempts)
        if suspect is not None:
            if suspect.is_doomed(self._attempts, self._rules.attempts_max):
                self._judged(suspect.told(), self._rules.policy, part)
                return True
            due_ms = self._began_ms + suspect.pause_ms
            if self._caller.now_ms() < due_ms:
                self._wait_until_ms = due_ms
                return False
        self._deliver(part)
        return True

    def _take(self) -> bool:
        """Cut the next batch that waits into what is delivered at once."""
        while self._batches and not self._parts:
            taken = self._popped()
            if isinstance(taken, int):
                self._next = taken
            elif self._caller.wants_batch:
                self._parts.extend(self._cut(taken))
            else:
                self._parts.extend(taken.slice(at, at + 1) for at in range(len(taken)))
        return bool(self._parts)

    def _cut(self, batch: Batch) -> Iterable[Batch]:
        """The batch as it is delivered: a message that is known for something, by itself."""
        start, base = batch.base_offset, batch.base_offset
        for offset in range(base, min(batch.end_offset, self._known_end)):
            suspect = self._suspicion.of(offset)
            if offset in self._failing or (suspect is not None and suspect.apart):
                if start < offset:
                    yield batch.slice(start - base, offset - base)
                yield batch.slice(offset - base, offset + 1 - base)
                start = offset + 1
        if start < batch.end_offset:
            yield batch.slice(start - base)

    def _deliver(self, part: Batch) -> None:
        self.shared.attempt = self._attempts + 1
        messages = list(part)
        argument: Delivery | DeliveredBatch = DeliveredBatch(part, self.shared)
        if not self._caller.wants_batch:
            argument = Delivery(messages[0], self.shared)
        error = self._caller.call(argument, messages)
        self._suspicion = self._suspicion.without(part.base_offset)
        if error is None:
            self._passed(part)
        elif self.shared.title():
            if isinstance(said := outcome(error), Deferred):
                self._wait_until_ms = self._caller.now_ms() + said.delay_ms
                return
            self._attempts += 1
            verdict = after_failure(self._rules, self._attempts)
            if isinstance(verdict, TryAgain):
                self._failing.pop(part.base_offset, None)
                self._wait_until_ms = self._caller.now_ms() + verdict.delay_ms
            else:
                self._judged(told(error), verdict, part)

    def _judged(self, error: str, verdict: FailurePolicy, part: Batch) -> None:
        self._caller.give_up(self.shared, self._attempts, error, verdict, list(part))
        if verdict is FailurePolicy.STOP:
            self.stopped_by = error
            return
        self._suspicion = self._suspicion.without(part.base_offset)
        self._passed(part)

    def _passed(self, part: Batch) -> None:
        self._parts.popleft()
        self._next = part.end_offset
        self._attempts = 0
        self.shared.attempt = 1
        self.batch_ended = not self._parts


class ScheduledWork(PartitionWork):
    """As a scheduler says: key by key, or pack by pack. Tasks that may run at once run in turn."""

    def __init__(
        self,
        grant: Grant,
        shared: DeliveryContext,
        config: GroupConfig,
        caller: Caller,
        scheduler: WorkScheduler,
    ) -> None:
        super().__init__(grant, shared, config, caller)
        self.scheduler = scheduler
        self._tenant_header = tenant_header(config.processing)
        self._began_ms = caller.now_ms()
        # Taken, and not begun yet: what killed its process is left alone for a while.
        self._task: Task | None = None

    def progress(self) -> Progress:
        """How far it is; what is done above the checkpoint is in the detail."""
        return self.scheduler.progress()

    def due_ms(self) -> int | None:
        """When a pause is over."""
        if self.stopping or self.stopped_by:
            return None
        if self._task is not None:
            return self._pause_ends_ms(self._task)
        return self.scheduler.due_ms()

    def _step(self) -> bool:
        while self._batches and self.scheduler.has_room():
            taken = self._popped()
            if isinstance(taken, int):
                self.scheduler.skip(taken)
            else:
                self.scheduler.offer(items_of(taken, self._tenant_header))
        now_ms = self._caller.now_ms()
        self.scheduler.expire(now_ms)
        self._look_for_a_stop()
        if self._task is None and not self.stopped_by:
            self._task = next(iter(self.scheduler.take(now_ms, 1)), None)
        task = self._task
        if task is None or self._pause_ends_ms(task) > now_ms:
            return False
        self._task = None
        self._run(task)
        self._look_for_a_stop()
        return True

    def _pause_ends_ms(self, task: Task) -> int:
        suspect: Suspect | None = task.item.suspect if task.work is Work.HANDLE else None
        return self._began_ms + suspect.pause_ms if suspect is not None else 0

    def _run(self, task: Task) -> None:
        if task.over:
            return
        if task.work is not Work.HANDLE:
            policy = FailurePolicy(self._config.failure_policy)
            messages = [message_of(item, self.partition) for item in task.items]
            error = task.item.error
            self._caller.give_up(self.shared, task.attempt, error, policy, messages)
            self.scheduler.ended(task, None, self._caller.now_ms())
            return
        shared = replace(self.shared, attempt=task.attempt)
        message = message_of(task.item, self.partition)
        timeout_ms = handler_timeout_ms(self._config.processing)
        if timeout_ms is not None:
            task.due_ms = self._caller.now_ms() + timeout_ms
        raised = self._caller.call(Delivery(message, shared), [message], task.due_ms)
        now_ms = self._caller.now_ms()
        self.scheduler.expire(now_ms)
        if raised is not None and not shared.title():
            return  # our time was over: no word on the message
        self.scheduler.ended(task, None if raised is None else outcome(raised), now_ms)

    def _look_for_a_stop(self) -> None:
        item: Item | None = self.scheduler.stopped_by
        if item is not None and not self.stopped_by:
            self.stopped_by = item.error
            message = message_of(item, self.partition)
            policy = FailurePolicy.STOP
            self._caller.give_up(self.shared, item.attempts, item.error, policy, [message])
