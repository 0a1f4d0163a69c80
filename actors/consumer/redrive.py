"""`Redriver`: gives quarantined messages to the handler again, key by key, each in its order.

Rules of this file. What is given again, in which order, and what follows, a `Redrive` says, step by
step. Each step is in the log before the next message is begun. What goes wrong with the log is
tried again: what an operator asked for is not forgotten.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from time import monotonic

from pxrs_ray.actors.consumer.call_record import RecordEntry
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.quarantine_log import QuarantineLog
from pxrs_ray.clock import wall_ms
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext, context_at
from pxrs_ray.errors import NotHeld
from pxrs_ray.model import Epoch, Message, Offset
from pxrs_ray.processing.quarantine_state import QuarantineRecord, headers_of, restored
from pxrs_ray.processing.redrive import GiveAgain, LetFlow, Note, Redrive, WaitUntil
from pxrs_ray.processing.retry_rules import RetryRules, outcome
from pxrs_ray.processing.scheduler import Item
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told

logger = logging.getLogger(__name__)

# After a fault (a buffer that is away, a full disk): what an operator asked for is not forgotten.
AGAIN_S = 1.0

SharedFor = Callable[[bytes | None, int, Offset], DeliveryContext]


class Redriver:
    """The owner's side of one partition's quarantine."""

    def __init__(
        self,
        log: QuarantineLog,
        handler: Handler,
        rules: RetryRules,
        shared_for: SharedFor,
        unpark: Callable[[bytes | None], bool],
        stopping: threading.Event,
        entry: RecordEntry,
        may_begin: Callable[[threading.Event], bool],
    ) -> None:
        self._log = log
        self._handler = handler
        self._shared_for = shared_for
        self._unpark = unpark
        self._stopping = stopping
        self._entry = entry
        self._may_begin = may_begin
        self._steps = Redrive(log.state, rules)
        self._busy = False
        self._wanted = False

    def load(
        self, killed: Collection[Offset] = (), sought: tuple[Offset, Epoch] | None = None
    ) -> set[bytes]:
        """Read the log, and answer the keys that are parked.

        Re-driving the messages at positions `killed` ended their process: that is a failure. What
        was parked before a seek (`sought`: to which offset, with which epoch) comes again.
        """
        self._log.refresh()
        if (note := self._steps.sought(sought)) is not None:
            self._note(note)
        for note in self._steps.killed(killed):
            self._note(note)
        return self._steps.parked()

    def _note(self, note: Note) -> None:
        self._log.note(note.kind, note.key, **note.values)

    def park(self, items: tuple[Item, ...]) -> None:
        """Put messages of one key aside; returns when they are kept."""
        with self._log.lock:
            self._log.settle()
            fresh = [self._record(item) for item in self._steps.fresh(items)]
            if fresh:
                self._log.append(fresh)

    def _record(self, item: Item) -> Message:
        _, key, payload, timestamp_ms, headers, message_id = item.message
        own = headers_of(
            QuarantineRecord.PARKED,
            offset=item.offset,
            attempts=item.attempts,
            error=item.error,
            at_ms=wall_ms(),
            epoch=self._log.epoch,
        )
        return Message(
            self._log.partition,
            -1,
            key,
            payload,
            timestamp_ms,
            (*headers, *own),
            message_id,
        )

    def run(self) -> None:
        """Re-drive everything that operators want re-driven by now. Never on two threads at once:
        one that is at it already goes round once more."""
        with self._log.lock:
            self._wanted = True
            if self._busy:
                return
            self._busy = True
        while True:
            with self._log.lock:
                if not self._wanted or self._stopping.is_set():
                    self._busy = False
                    return
                self._wanted = False
            try:
                self._round()
            except Exception as error:  # noqa: BLE001 - or nothing would ever be re-driven again
                logger.error("re-driving partition %d waits: %s", self._log.partition, told(error))
                self._stopping.wait(AGAIN_S)
                self._wanted = True

    def _round(self) -> None:
        self._log.refresh()
        self._steps.begin()
        while not self._stopping.is_set():
            match step := self._steps.next(monotonic()):
                case None:
                    return
                case WaitUntil():
                    self._stopping.wait(max(0.0, step.until_s - monotonic()))
                case LetFlow():
                    self._let_flow(step)
                case GiveAgain():
                    if not self._give_again(step):
                        return

    def _let_flow(self, step: LetFlow) -> None:
        # Parking holds this lock: what is not in the log yet still has its lane.
        with self._log.lock:
            aside = self._log.state.keys.get(step.key)
            flows = aside is not None and aside.first is None and self._unpark(step.key)
        note = self._steps.freed(step, flows=flows, now_s=monotonic())
        if note is not None:
            self._note(note)
            self._log.tidy()

    def _give_again(self, step: GiveAgain) -> bool:
        """Deliver one parked message, once; False when nothing may begin any more."""
        position = step.entry.position
        [record] = self._log.records(position, 1)
        message = restored(record, self._log.partition)
        shared = self._shared_for(step.key, step.attempt, position)
        gate = self._handler.gate
        if gate is not None and not gate.wait(Delivery(message, shared), self._stopping):
            return False
        if not self._may_begin(self._stopping):
            return False
        if not self._entry.begin(position, position + 1, self._stopping):
            return False
        try:
            self._handler.call(Delivery(message, shared))
        except BaseException as error:  # noqa: BLE001 - also what `sys.exit()` raises
            leave_if_child(error)
            if isinstance(error, NotHeld) or not shared.title():
                return True
            logger.warning("%s, re-driven: %s", context_at(shared, message.offset), told(error))
            note = self._steps.failed(step, outcome(error), monotonic())
        else:
            leave_if_child()
            note = self._steps.worked(step)
        finally:
            self._entry.end()
        if note is not None:
            self._note(note)
        return True
