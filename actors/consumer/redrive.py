"""`Redriver`: gives quarantined messages to the handler again, key by key, each in its order.

Rules of this file. A key stays parked until nothing waits behind it: messages that come meanwhile
are parked behind the rest. A message that fails again, as often as any message may, ends the
re-driving of its key, and the key waits for an operator. Each step is in the log before the next
message is begun, so that another owner goes on behind it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from pxrs_ray.actors.consumer.call_record import RecordSlot
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.quarantine_log import QuarantineLog
from pxrs_ray.clock import wall_ms
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext, context_at
from pxrs_ray.errors import HandlerKilled, NotHeld
from pxrs_ray.model import Epoch, Message, Offset
from pxrs_ray.processing.quarantine_state import Parked, Record, headers_of, restored
from pxrs_ray.processing.retry_rules import RetryAfter, RetryRules, after_failure
from pxrs_ray.processing.scheduler import Item
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told

logger = logging.getLogger(__name__)

PAUSE_S = 0.01
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
        slot: RecordSlot,
        may_begin: Callable[[threading.Event], bool],
    ) -> None:
        self._log = log
        self._handler = handler
        self._rules = rules
        self._shared_for = shared_for
        self._unpark = unpark
        self._stopping = stopping
        self._slot = slot
        self._may_begin = may_begin
        self._busy = False
        self._wanted = False

    def load(
        self, killed: Collection[Offset] = (), sought: tuple[Offset, Epoch] | None = None
    ) -> set[bytes]:
        """Read the log, and answer the keys that are parked.

        Re-driving the messages at positions `killed` ended their process: that is a failure. What
        was parked before a seek (`sought`: to which offset, with which epoch) comes again.
        """
        if sought is not None and self._log.refresh().comes_again(*sought):
            offset, epoch = sought
            self._log.note(Record.SOUGHT, None, offset=offset, epoch=epoch)
        for key, aside in list(self._log.refresh().keys.items()):
            entry = aside.first
            if entry is not None and aside.retrying and entry.position in killed:
                error = repr(HandlerKilled("its process died while the message was re-driven"))
                self._note_failed(key, entry, entry.attempts + 1, error)
        return {key for key in self._log.state.keys if key is not None}

    def _note_failed(self, key: bytes | None, entry: Parked, attempts: int, error: str) -> None:
        self._log.note(Record.FAILED, key, position=entry.position, attempts=attempts, error=error)

    def park(self, items: tuple[Item, ...]) -> None:
        """Put messages of one key aside; returns when they are kept.

        What a former owner parked already, and did not live to commit, is not kept twice.
        """
        with self._log.lock:
            aside = self._log.state.keys.get(items[0].key)
            last = aside.last_offset if aside is not None and items[0].key is not None else -1
            fresh = [self._record(item) for item in items if item.offset > last]
            if fresh:
                self._log.append(fresh)

    def _record(self, item: Item) -> Message:
        _, key, payload, timestamp_ms, headers, message_id = item.message
        own = headers_of(
            Record.PARKED,
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
        keys = self._log.refresh().keys
        for key in [key for key, aside in keys.items() if aside.retrying]:
            self._redrive(key)

    def _redrive(self, key: bytes | None) -> None:
        while not self._stopping.is_set():
            aside = self._log.state.keys.get(key)
            if aside is None or not aside.retrying:
                return
            entry = aside.first
            if entry is not None:
                if not self._once_more(key, entry):
                    return
                continue
            # Parking holds this lock: what is not in the log yet still has its lane.
            with self._log.lock:
                free = aside.first is None and self._unpark(key)
            if free:
                self._log.note(Record.RELEASED, key)
                self._log.tidy()
                return
            self._stopping.wait(PAUSE_S)

    def _once_more(self, key: bytes | None, entry: Parked) -> bool:
        """Deliver one parked message until it succeeds; False when it does not."""
        [record] = self._log.records(entry.position, 1)
        message = restored(record, self._log.partition)
        failed = 0
        while not self._stopping.is_set():
            if not self._may_begin(self._stopping):
                return False
            attempt = entry.attempts + failed + 1
            shared = self._shared_for(key, attempt, entry.position)
            if not self._slot.begin(entry.position, entry.position + 1, self._stopping):
                return False
            try:
                self._handler.call(Delivery(message, shared))
            except BaseException as error:  # noqa: BLE001 - also what `sys.exit()` raises
                leave_if_child(error)
                if isinstance(error, NotHeld) or not shared.title():
                    continue
                failed += 1
                logger.warning("%s, re-driven: %s", context_at(shared, message.offset), told(error))
                verdict = after_failure(self._rules, failed)
                if isinstance(verdict, RetryAfter):
                    self._stopping.wait(verdict.delay_ms / 1_000)
                    continue
                self._note_failed(key, entry, attempt, told(error))
                return False
            finally:
                self._slot.end()
            leave_if_child()
            self._log.note(Record.REDRIVEN, key, position=entry.position)
            return True
        return False
