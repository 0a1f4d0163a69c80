"""`AppendCalls`: the appends of one producer on their way to its buffers, and back.

Rules of this file. Nobody waits here: a buffer that is not known is looked for on a thread of its
own, and its call goes when it is found. A replica that is silent may be cut off, and another one
may lead in its place: so it is looked for whoever leads, and what the silent one has not answered
counts as failed once that is another one. A call lands once, whatever comes of it later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import BufferAway
from pxrs_ray.producer.in_flight import Call

# A buffer that is there answers so soon after the time for which it may hold a call.
DOUBT_MS = 400


class _Flight:
    """One call under way: to whom, and when it is late."""

    __slots__ = ("client", "late_ms")

    def __init__(self) -> None:
        self.client: BufferClient | None = None
        self.late_ms: int | None = None


class AppendCalls:
    """See the rules at the head of this file. Any thread makes calls; one at a time takes what has
    landed, and `landed` is called, on any thread, when there is something."""

    def __init__(self, queue: str, clients: BufferClients, landed: Callable[[], None]) -> None:
        self._clients = clients
        self._queue = queue
        self._tell = landed
        self._under_way: dict[Call, _Flight] = {}
        self._landed: deque[tuple[Call, Future[Any]]] = deque()

    def make(self, call: Call) -> None:
        """Make a call, now or when its buffer is found."""
        flight = self._under_way[call] = _Flight()
        client = self._clients.known(call.buffer)
        if client is not None:
            self._send(call, flight, client)
        else:
            found = self._clients.when_found(call.buffer)
            found.add_done_callback(partial(self._found, call, flight))

    def _found(self, call: Call, flight: _Flight, found: Future[BufferClient]) -> None:
        error = found.exception()
        if error is not None or call.abandoned:
            self._fail(call, flight, error or BufferAway("nobody waits for it any more"))
        else:
            self._send(call, flight, found.result())

    def _send(self, call: Call, flight: _Flight, client: BufferClient) -> None:
        now_ms = monotonic_ms()
        wait_ms = call.wait_ms(now_ms)
        flight.client, flight.late_ms = client, now_ms + wait_ms + DOUBT_MS
        try:
            frames, size_bytes = call.arguments(), call.size_bytes
            reply = client.append(self._queue, frames, wait_ms, size_bytes=size_bytes)
            reply.future().add_done_callback(partial(self._land, call, flight))
        except Exception as error:  # noqa: BLE001 - the receipts of the call's frames get it
            self._fail(call, flight, error)

    def _fail(self, call: Call, flight: _Flight, error: BaseException) -> None:
        failed: Future[Any] = Future()
        failed.set_exception(error)
        self._land(call, flight, failed)

    def _land(self, call: Call, flight: _Flight, done: Future[Any]) -> None:
        if self._under_way.pop(call, None) is flight:
            error = done.exception()
            if error is not None and flight.client is not None:
                self._clients.failed(call.buffer, error, flight.client)
            self._landed.append((call, done))
            self._tell()

    def take(self) -> tuple[Call, Future[Any]] | None:
        """A call that has landed; None where there is none more."""
        try:
            return self._landed.popleft()
        except IndexError:
            return None

    # --- silence ----------------------------------------------------------------------------------

    def next_look_ms(self, now_ms: int) -> int | None:
        """When to `look` next, also for calls that others make from now on; None where no buffer
        has replicas."""
        if not self._clients.has_replicas:
            return None
        late = [f.late_ms for f in list(self._under_way.values()) if f.late_ms is not None]
        return min([now_ms + DOUBT_MS, *late])

    def look(self, now_ms: int) -> None:
        """Look for whoever leads where an answer is late."""
        late: set[int] = set()
        for call, flight in list(self._under_way.items()):
            if call.abandoned:
                self._under_way.pop(call, None)
            elif flight.late_ms is not None and flight.late_ms <= now_ms:
                flight.late_ms = now_ms + DOUBT_MS
                late.add(call.buffer)
        for buffer in late:
            found = self._clients.doubt(buffer)
            if found is not None:
                found.add_done_callback(partial(self._leads, buffer))

    def _leads(self, buffer: int, found: Future[BufferClient]) -> None:
        if found.exception() is not None:
            return
        leads = found.result()
        for call, flight in list(self._under_way.items()):
            if call.buffer == buffer and flight.client not in (None, leads):
                self._fail(call, flight, BufferAway("another replica leads, and it is silent"))
