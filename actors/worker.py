"""`Worker`: what every worker of a partition is, whatever it does with the messages.

Rules of this file. The event loop puts batches in, and a thread of the worker's own takes them
out in order. It never talks to Ray. When it is told to stop it begins nothing new; what it had
not begun is simply forgotten, for the next owner reads it again from the log.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pxrs_ray.actors.handler import Handler
from pxrs_ray.batch import Batch
from pxrs_ray.config import GroupConfig
from pxrs_ray.delivery import Context, Desk, context_at
from pxrs_ray.model import Grant, Message, Offset, PartitionId
from pxrs_ray.processing.course import Standing
from pxrs_ray.retry import FailurePolicy

logger = logging.getLogger(__name__)


class Office(Protocol):
    """What a worker needs of the consumer that it works for. Called from the worker's threads."""

    def may_begin(self, stopping: threading.Event) -> bool:
        """Whether a message may be begun; waits while it is in doubt, until `stopping`."""

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
    """A handler's failure that the policy has decided."""

    context: Context
    error: str
    policy: FailurePolicy


def queued_bytes_max(config: GroupConfig) -> int:
    """How much of one partition waits in memory before no more of it is fetched."""
    return 2 * config.pull_bytes_max


class Worker(ABC):
    """Works one partition from a grant's checkpoint on, until told to stop."""

    def __init__(
        self,
        grant: Grant,
        desk: Desk,
        handler: Handler,
        office: Office,
        config: GroupConfig,
        before: Worker | None,
    ) -> None:
        self.partition: PartitionId = grant.partition
        self.epoch = grant.epoch
        self.checkpoint: Offset = grant.checkpoint
        self.queued_bytes = 0
        self.failed: Failure | None = None
        self._desk = desk
        self._handler = handler
        self._office = office
        self._commit_records = config.commit_records
        self._queued_bytes_max = queued_bytes_max(config)
        self._was_full = False
        self._before = before
        self._batches: deque[tuple[Batch | Offset, int]] = deque()
        self._wake = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"pxrs-partition-{self.partition}", daemon=True
        )

    # --- the event loop's side --------------------------------------------------------------------

    @abstractmethod
    def standing(self) -> Standing:
        """How far it is: what the next commit should say. Callable from any thread."""

    @property
    def passed(self) -> int:
        """How many offsets it has passed since it began."""
        return self.standing().checkpoint - self.checkpoint

    def start(self) -> None:
        """Begin; the handler hears `on_assigned` first."""
        self._thread.start()

    def put(self, batch: Batch, size_bytes: int) -> None:
        """Queue a batch behind those that wait."""
        with self._wake:
            self._batches.append((batch, size_bytes))
            self.queued_bytes += size_bytes
            self._was_full = self.queued_bytes >= self._queued_bytes_max
            self._wake.notify_all()

    def skip(self, to: Offset) -> None:
        """Go on at `to`, after what waits: the log has nothing before it."""
        with self._wake:
            self._batches.append((to, 0))
            self._wake.notify_all()

    def stop(self) -> None:
        """Begin nothing more, and end when what is in hand is over; does not wait."""
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; False when it has not ended in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread's side ------------------------------------------------------------------------

    @abstractmethod
    def _work_on(self) -> None:
        """Work until told to stop."""

    def _run(self) -> None:
        try:
            # One partition is never worked by two threads of a consumer, not even for a moment.
            if self._before is not None:
                self._before._thread.join()
                self._before = None
            self._handler.on_assigned(self.partition, self.checkpoint)
            self._work_on()
            self._handler.on_revoked(self.partition)
        except Exception as error:
            context = context_at(self._desk, self.standing().checkpoint)
            logger.exception("worker of %s ended by a fault", context)
            self.failed = Failure(context, repr(error), FailurePolicy.STOP)
        finally:
            self._office.ended(self)

    def _popped(self) -> Batch | Offset:
        """With `_wake` held: the next of what waits; fetching goes on when there is room again."""
        taken, size_bytes = self._batches.popleft()
        self.queued_bytes -= size_bytes
        if self._was_full and self.queued_bytes < self._queued_bytes_max:
            self._was_full = False
            self._office.room()
        return taken
