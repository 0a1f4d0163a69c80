"""`DeadLetters`: where messages go that no attempt could process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from pxrs_ray.actors.specs import GroupSpec
from pxrs_ray.actors.worker import Failure
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Message

SEND_WAIT_S = 60.0


class DeadLetters:
    """Sends messages to a group's dead-letter queue, with what went wrong in their headers."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._producer: Any = None

    def send(self, messages: Iterable[Message], failure: Failure) -> None:
        """Return when the messages are in the dead-letter queue. Called from worker threads."""
        producer = self._open()
        context = failure.context
        extra = (
            ("pxrs-queue", context.queue.encode()),
            ("pxrs-group", context.group.encode()),
            ("pxrs-partition", str(context.partition).encode()),
            ("pxrs-attempts", str(context.attempt).encode()),
            ("pxrs-error", failure.error.encode()),
        )
        receipts = [
            producer.send(
                message.key,
                message.payload,
                headers=(*message.headers, *extra, ("pxrs-offset", str(message.offset).encode())),
                id=message.id,
            )
            for message in messages
        ]
        producer.flush(SEND_WAIT_S)
        for receipt in receipts:
            receipt.result(SEND_WAIT_S)

    def close(self) -> None:
        """Close the producer, if there was need of one."""
        with self._lock:
            if self._producer is not None:
                self._producer.close()
                self._producer = None

    def _open(self) -> Any:
        from pxrs_ray.actors.topology import attach

        with self._lock:
            if self._producer is None:
                queue = self._spec.config.dead_letter_queue
                if queue is None:
                    raise UsageError(f"group {self._spec.group} has no dead-letter queue")
                self._producer = attach(self._spec.topology).producer(queue)
            return self._producer
