"""`DelayedSends`: what a producer sends with a delay: it goes into the tiers beside its queue.

Rules of this file. Which tier, and what a message bears there, `pxrs_ray.data.delay` says. The
producer of the tiers is made with the first delayed message: whoever sends none pays nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pxrs_ray.clock import wall_ms
from pxrs_ray.data.batch import Headers
from pxrs_ray.data.delay import DelayedMessage, due_at, refuse_delays, tier_for

if TYPE_CHECKING:
    from pxrs_ray.actors.client.producer import Producer
    from pxrs_ray.producer.receipt import Receipt


class DelayedSends:
    """The delayed messages of one producer. Any thread may use it."""

    def __init__(self, queue: str, make: Callable[[], Producer] | None) -> None:
        """`make` makes the producer of the tiers; None where the queue takes no delays."""
        self._queue, self._make = queue, make
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def send(
        self,
        key: bytes | str | None,
        payload: bytes | str,
        headers: Headers,
        timestamp: int | None,
        message_id: str | None,
        delay_s: float | None,
        deliver_at_ms: int | None,
        timeout_s: float | None,
    ) -> Receipt | None:
        """Send it into its tier; None: it is due already. Raises as `Producer.send`."""
        if self._make is None:
            raise refuse_delays(self._queue)
        now_ms = wall_ms()
        due_ms = due_at(delay_s, deliver_at_ms, now_ms)
        if due_ms <= now_ms:
            return None
        waiting = DelayedMessage.sent(headers, timestamp, due_ms, now_ms)
        tier = tier_for(due_ms - now_ms)
        borne, until_ms = waiting.sent_on(tier, None)
        return self._made().send(
            key, payload, borne, until_ms, message_id, scope=str(tier), timeout_s=timeout_s
        )

    def _made(self) -> Producer:
        with self._lock:
            if self._producer is None:
                assert self._make is not None, "`send` has looked"
                self._producer = self._make()
            return self._producer

    def flush(self, timeout_s: float | None) -> None:
        """As `Producer.flush`."""
        if self._producer is not None:
            self._producer.flush(timeout_s)

    def close(self, timeout_s: float | None) -> None:
        """As `Producer.close`."""
        if self._producer is not None:
            self._producer.close(timeout_s)
