"""`Producer`: sends messages to a queue's buffers, from any thread, task, actor or event loop.

Rules of this file. The pure `Accumulator` and `Sender` decide what is sent, in which order, and
when it is repeated; one lock guards both. One thread of the producer's own waits for time and for
answers; every thread that has work makes the calls, and one that sends takes the answers that are
there by itself: where it is busy between its sends, another thread would wait for its turn longer
than the buffer takes to answer. Ray carries calls in any order and may repeat them: the frames'
numbers put that right. Nothing waits without a deadline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn

from pxrs_ray.actors.buffer.answer_poll import AnswerPoll, AnswerSource
from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.actors.buffer.buffer_client import CALL_BYTES_MAX
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.call_failure import ours
from pxrs_ray.actors.client.append_calls import AppendCalls
from pxrs_ray.actors.client.delayed_sends import DelayedSends
from pxrs_ray.actors.client.queue_look import QueueLook
from pxrs_ray.clock import Instant, SystemClock, monotonic_ms, wall_ms
from pxrs_ray.data.batch import Batch, Headers
from pxrs_ray.data.message_form import batch_bytes
from pxrs_ray.data.tables import batch_of_table
from pxrs_ray.errors import DeadlineExceeded, PartitionFull, ProducerError, ProducerFenced
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.producer.accumulator import Accumulator, ProducerLimits
from pxrs_ray.producer.receipt import BatchReceipt, Receipt
from pxrs_ray.producer.sender import Call, Sender
from pxrs_ray.supervision.supervisor import Supervisor, off_loop

logger = logging.getLogger(__name__)

LOOK_FOR_S = 30.0
FAULT_PAUSE_S = 0.1
_CLOCK = SystemClock()
_NO_TIME = Instant(0, 0)


class Producer(QueueLook):
    """A producer of one queue. Close it (or use `with`): closing sends what was not sent yet.

    `producer_id` is the identity in its frames: that of a block that is sent again (see the
    routers), or of one life of a producer that comes back (see `begin_producer`). By default each
    producer has a new one. `buffers` is the topology's number of buffer actors.
    """

    def __init__(
        self,
        topology: str,
        queue: str,
        buffers: int,
        partitioner: Partitioner,
        limits: ProducerLimits,
        *,
        producer_id: bytes | None = None,
        handles: Mapping[int, Any] | None = None,
        delayed: DelayedSends | None = None,
    ) -> None:
        self._buffers = BufferClients(topology, handles, answers := AnswerPoll())
        self._calls = AppendCalls(queue, self._buffers, self._tell_landed)
        super().__init__(queue, BlockingBufferClient(topology, buffers, LOOK_FOR_S, self._buffers))
        self._delayed = delayed or DelayedSends(queue, None)
        self._limits = limits
        self._partitions = partitioner.partitions
        self._sender = Sender(buffers, self._limits.sender)
        self._accumulator = Accumulator(partitioner, self._sender, self._limits, producer_id)
        self._answers = answers
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self._taking = self._timed = self._closed = self._sends_much = False
        self._thread = Supervisor(f"producer of {queue}").thread(
            "pxrs-producer", self._run, again=lambda: not self._closed
        )
        self._thread.start()

    def connect(self) -> None:
        """Connect to the buffers; otherwise the first messages take longer than all others."""
        self._buffers.connect(range(self._sender.buffers))

    # ---- sending

    def send(
        self,
        key: bytes | str | None,
        payload: bytes | str,
        headers: Headers = None,
        timestamp: int | None = None,
        id: str | None = None,  # noqa: A002 - the name that users know
        *,
        scope: str | None = None,
        timeout_s: float | None = None,
        delay_s: float | None = None,
        deliver_at_ms: int | None = None,
    ) -> Receipt:
        """Send one message; the receipt tells where it is once that is known.

        `timestamp` is milliseconds since 1970 (now, when left out). `scope` is the tenant or label
        of a queue whose strategy is one of these. With `delay_s`, or `deliver_at_ms` (milliseconds
        since 1970), it takes its place in the queue no sooner: see docs/processing.md, 'Delayed
        messages'. Waits while too much is unacknowledged, up to `timeout_s` (the limits' `block_ms`
        when left out); then raises PartitionFull or DeadlineExceeded, naming the fullest partition.
        Raises MessageTooLarge and UsageError at once, and ProducerFenced once a newer producer of
        this id took over.
        """
        if delay_s is not None or deliver_at_ms is not None:
            later = (headers, timestamp, id, delay_s, deliver_at_ms, timeout_s)
            if (waits := self._delayed.send(key, payload, *later)) is not None:
                return waits
        accumulator = self._accumulator
        with self._lock:
            if headers is None and timestamp is None and id is None and scope is None:
                added = accumulator.add_plain(key, payload)
                if added is not None:
                    return added
            if self._closed or self._sender.fenced:
                self._refuse()
            if accumulator.pending_bytes >= self._limits.pending_bytes_max:
                self._wait_for_room(timeout_s)
            first = not accumulator.opened
            receipt = accumulator.add(
                key, payload, _CLOCK.now() if first else _NO_TIME, headers, timestamp, id, scope
            )
            calls: Sequence[Call] = ()
            if accumulator.full():
                calls = self._close_open()
            else:
                calls = self._look()
        if calls:
            self._make(calls)
        return receipt

    def send_batch(
        self,
        keys: Any,
        payloads: Any = None,
        *,
        headers: Sequence[Headers] | None = None,
        timestamps: Any = None,
        ids: Any = None,
        scopes: Any = None,
        timeout_s: float | None = None,
    ) -> BatchReceipt:
        """Send columns: lists, Arrow, numpy or pandas columns of bytes or str.

        Or one table, in the place of `keys`: a Batch, an Arrow Table or RecordBatch or a pandas
        frame with a column `payload` and, where there are, `key`, `timestamp_ms`, `headers`, `id`,
        `scope`.
        Waits and raises as `send`; on an error in the middle of large columns, what was sent
        stays sent.
        """
        now_ms = wall_ms()
        if isinstance(keys, Batch):
            batch = keys
        elif payloads is None:
            batch, found = batch_of_table(keys, now_ms)
            scopes = found if scopes is None else scopes
        else:
            batch = Batch.of(
                keys,
                payloads,
                timestamp_ms=now_ms,
                timestamps_ms=timestamps,
                headers=headers,
                ids=ids,
            )
        pieces = self._accumulator.pieces(batch, scopes)
        if not self._sends_much and batch_bytes(batch) > CALL_BYTES_MAX:
            # Until there is a connection for what is large Ray carries it, at many times the cost.
            self._sends_much = True
            self._buffers.connect(range(self._sender.buffers), much=True)
        shipments = []
        for piece, part in pieces:
            with self._lock:
                if self._closed or self._sender.fenced:
                    self._refuse()
                self._wait_for_room(timeout_s)
                shipments.append(self._accumulator.add_batch(piece, monotonic_ms(), part))
                calls = list(self._accumulator.calls(monotonic_ms()))
            self._make(calls)
        return BatchReceipt(shipments)

    def broadcast(
        self, payload: bytes | str, key: bytes | str | None = None, headers: Headers = None
    ) -> BatchReceipt:
        """Send one message to every partition."""
        now_ms = monotonic_ms()
        batch = Batch.of(
            [key], [payload], timestamp_ms=wall_ms(), headers=[headers] if headers else None
        )
        with self._lock:
            if self._closed or self._sender.fenced:
                self._refuse()
            self._wait_for_room(None)
            shipment = self._accumulator.add_everywhere(batch, range(self._partitions), now_ms)
            calls = list(self._accumulator.calls(now_ms))
        self._make(calls)
        return BatchReceipt([shipment])

    async def send_async(
        self,
        key: bytes | str | None,
        payload: bytes | str,
        headers: Headers = None,
        timestamp: int | None = None,
        id: str | None = None,  # noqa: A002 - the name that users know
        *,
        scope: str | None = None,
        delay_s: float | None = None,
        deliver_at_ms: int | None = None,
    ) -> Receipt:
        """As `send`, for event loops: a wait for room does not hold up the loop."""
        is_late = delay_s is not None or deliver_at_ms is not None
        send = partial(self.send, key, payload, headers, timestamp, id, scope=scope)
        if is_late or self.pending_bytes >= self._limits.pending_bytes_max:
            return await off_loop(partial(send, delay_s=delay_s, deliver_at_ms=deliver_at_ms))
        return send()

    # ---- waiting

    @property
    def pending_bytes(self) -> int:
        """What was given and is not acknowledged."""
        return self._accumulator.pending_bytes

    def flush(self, timeout_s: float | None = 30.0) -> None:
        """Send what lingers, and return when all is acknowledged or given up.

        Whether it was given up, the receipts tell. Raises DeadlineExceeded.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._delayed.flush(timeout_s)
        with self._lock:
            calls = self._close_open(all_of_it=True)
        self._make(calls)
        with self._progress:
            while self._accumulator.pending_batches:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise DeadlineExceeded(
                        f"{self._accumulator.pending_batches} batches are not acknowledged after "
                        f"{timeout_s} s: {self._sender.trouble()}"
                    )
                self._progress.wait(left)

    async def flush_async(self, timeout_s: float | None = 30.0) -> None:
        """As `flush`, for event loops."""
        await off_loop(self.flush, timeout_s)

    def _refuse(self) -> NoReturn:
        if self._sender.fenced is not None:
            raise ProducerFenced(*self._sender.fenced.args)
        raise ProducerError("the producer is closed")

    def _wait_for_room(self, timeout_s: float | None) -> None:
        """With the lock held: return when more may be given. Raises PartitionFull."""
        limit = self._limits.pending_bytes_max
        if self._accumulator.pending_bytes < limit:
            return
        wait_s = self._limits.block_ms / 1_000 if timeout_s is None else timeout_s
        if not self._progress.wait_for(
            lambda: self._closed or self._accumulator.pending_bytes < limit, wait_s
        ):
            raise PartitionFull(
                f"{self._accumulator.pending_bytes} bytes wait for acknowledgement, and after "
                f"{wait_s:g} s still not less than pending_bytes_max={limit}: "
                f"{self._sender.trouble()}"
            )
        if self._closed:
            raise ProducerError("the producer was closed while waiting for room")

    # ---- the calls

    def _look(self) -> Sequence[Call]:
        """With the lock held, by who sends: take what is answered, and send what is due."""
        calls: Sequence[Call] = ()
        now_ms = monotonic_ms()
        if self._sender.awaits() and self._take_answers():
            calls = list(self._accumulator.calls(now_ms))
        due_ms = self._accumulator.due_ms
        if due_ms is not None and due_ms <= now_ms:
            return [*calls, *self._close_open()]
        self._accumulator.looked()
        if due_ms is not None and not self._timed:  # otherwise the thread waits for an answer
            self._timed = True
            self._answers.wake()
        return calls

    def _close_open(self, *, all_of_it: bool = False) -> list[Call]:
        """`all_of_it`: whoever asks waits for what is open, and what comes next may go at once."""
        # The work of this thread alone: where it waits for a core, nothing else should wait longer.
        now_ms, began_ns = monotonic_ms(), time.thread_time_ns()
        self._accumulator.close_open(now_ms)
        calls = list(self._accumulator.calls(now_ms))
        self._timed = False
        if not all_of_it:
            took_us = (time.thread_time_ns() - began_ns) // 1_000
            self._accumulator.rest(now_ms, took_us)
        return calls

    def _make(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._calls.make(call)

    def _tell_landed(self) -> None:
        if not self._taking:  # Ray's answer, or a line that broke: who takes answers looks anyway
            self._answers.wake()

    def _run(self) -> None:
        """The producer's own thread: answers, linger, new attempts, deadlines."""
        while not (self._closed and self._accumulator.pending_batches == 0):
            try:
                self._step(self._answers.wait(self._patience_s()))
            except Exception:
                # The frames' deadlines still hold; a fault here must not silence them.
                logger.exception("a fault in the producer of %s", self._queue)
                time.sleep(FAULT_PAUSE_S)

    def _step(self, ready: Collection[AnswerSource]) -> None:
        with self._progress:
            self._take_answers(ready)
            now_ms = monotonic_ms()
            due_ms = self._accumulator.due_ms
            calls = self._close_open() if due_ms is not None and due_ms <= now_ms else []
            self._sender.expire(now_ms)
            calls += self._accumulator.calls(now_ms)
            self._progress.notify_all()
        self._make(calls)
        self._calls.look(now_ms)

    def _patience_s(self) -> float:
        """How long nothing is to do without an answer or word of another thread."""
        with self._lock:
            look_ms = self._calls.next_look_ms(monotonic_ms())
            moments = (self._accumulator.due_ms, self._sender.next_look_ms(), look_ms)
            self._timed = moments[0] is not None
        # What is sent from now on, by other threads, has its deadline no sooner than this.
        soonest = monotonic_ms() + self._limits.sender.append_timeout_ms
        nearest = min((moment for moment in moments if moment is not None), default=soonest)
        return max(0, nearest - monotonic_ms()) / 1_000

    def _take_answers(self, ready: Collection[AnswerSource] | None = None) -> bool:
        """With the lock held: tell the `Sender` what was answered, if anything was."""
        self._taking = True
        try:
            self._answers.take(ready)
        finally:
            self._taking = False
        landed = self._calls.take()
        if landed is None:
            return False
        now_ms = monotonic_ms()
        while landed is not None:
            self._take_in(*landed, now_ms)
            landed = self._calls.take()
        if self._sender.fenced:
            self._accumulator.look_now()
        self._progress.notify_all()
        return True

    def _take_in(self, call: Call, done: Future[Any], now_ms: int) -> None:
        error = done.exception()
        if error is None:
            self._sender.answered(call, done.result(), now_ms)
            return
        self._sender.failed(call, ours(error), now_ms)

    # ---- the end

    def close(self, timeout_s: float | None = 30.0) -> None:
        """Flush, and end; calling it again is harmless. Raises DeadlineExceeded."""
        if self._closed:
            return
        try:
            self.flush(timeout_s)
        finally:
            with self._progress:
                self._closed = True
                self._progress.notify_all()
            self._answers.wake()
            self._thread.join(timeout_s)
            self._buffers.close()
            if not self._thread.is_alive():
                self._answers.close()
            self._delayed.close(timeout_s)
