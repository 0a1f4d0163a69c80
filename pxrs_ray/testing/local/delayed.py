"""`LocalDelays`: what a test topology was sent with a delay, until its time comes.

Rules of this file: a message is kept in its queue's tiers too, as on Ray. It comes into its queue
with what it bears there, when time has passed: those of one moment in the order of their sending.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from pxrs_ray.clock import Clock
from pxrs_ray.config import QueueConfig
from pxrs_ray.data.batch import Headers
from pxrs_ray.data.delay import DELAYED_SUFFIX, DelayedMessage, due_at, refuse_delays, tier_for
from pxrs_ray.producer.receipt import Receipt
from pxrs_ray.testing.local.logs import LocalQueue

_Sent = tuple[bytes | str | None, bytes | str, str | None]


class LocalDelays:
    """See the rules at the head of this file."""

    def __init__(self, clock: Clock, queue: Callable[[str], LocalQueue]) -> None:
        self._clock, self._queue = clock, queue
        self._waiting: list[tuple[int, int, str, DelayedMessage, _Sent]] = []
        self._count = 0

    def send(
        self,
        name: str,
        queue: QueueConfig,
        sent: _Sent,
        headers: Headers,
        timestamp: int | None,
        due: tuple[float | None, int | None],
    ) -> Receipt | None:
        """Keep it for its time; None: it is due already. Raises as a producer's `send`."""
        if not queue.delays:
            raise refuse_delays(name)
        now = self._clock.now()
        due_ms = due_at(*due, now.wall_ms)
        if due_ms <= now.wall_ms:
            return None
        waiting = DelayedMessage.sent(headers, timestamp, due_ms, now.wall_ms)
        tier = tier_for(due_ms - now.wall_ms)
        borne, until_ms = waiting.sent_on(tier, None)
        key, payload, message_id = sent
        tiers = self._queue(name + DELAYED_SUFFIX).accumulator
        receipt = tiers.add(key, payload, now, borne, until_ms, message_id, str(tier))
        self._count += 1
        heappush(self._waiting, (due_ms, self._count, name, waiting, sent))
        return receipt

    def flush(self) -> None:
        """Send what is due by now."""
        now = self._clock.now()
        while self._waiting and self._waiting[0][0] <= now.wall_ms:
            _, count, name, waiting, (key, payload, message_id) = heappop(self._waiting)
            headers, dated_ms = waiting.delivered((0, count - 1))
            queue = self._queue(name)
            queue.accumulator.add(key, payload, now, headers, dated_ms, message_id)

    def next_ms(self) -> int | None:
        """When the next one is due, by the monotonic clock."""
        if not self._waiting:
            return None
        now = self._clock.now()
        return now.monotonic_ms + max(0, self._waiting[0][0] - now.wall_ms)
