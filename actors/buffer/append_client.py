"""`AppendClient`: carries a producer's appends to the buffers. Runs in the producer's process.
Large appends go through Ray, which moves them without a copy; small ones go through a local socket
where the buffer is on this node."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from pxrs_ray.actors.buffer.local_socket import CALL_BYTES_MAX, SocketClient, connect
from pxrs_ray.actors.cluster.ray_errors import find_buffer
from pxrs_ray.producer.sender import Call

# Who makes a few small calls only, as a router does, is served well enough by Ray.
CALLS_BEFORE_A_LINE = 3
CALLS_BEFORE_ANOTHER_TRY = 1_000


class AppendClient:
    """The handles of a topology's buffers, and sockets to those of this node. Any thread may use
    it; close it."""

    def __init__(self, topology: str, handles: Mapping[int, Any]) -> None:
        self._topology = topology
        self._handles = dict(handles)
        self._lines: dict[int, SocketClient] = {}
        self._small_calls: Counter[int] = Counter()
        self._asked: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def handle(self, buffer: int) -> Any:
        """The buffer's actor. Raises NotFound."""
        handle = self._handles.get(buffer)
        if handle is None:
            handle = self._handles[buffer] = find_buffer(self._topology, buffer)
        return handle

    def append(self, queue: str, call: Call, wait_ms: int) -> Future[Any]:
        """Make the call. Raises NotFound, and what Ray raises."""
        handle = self.handle(call.buffer)
        if call.size_bytes <= CALL_BYTES_MAX:
            line = self._lines.get(call.buffer)
            if line is not None and not line.broken:
                return line.call("append", queue, call.arguments(), wait_ms)
            self._ask(call.buffer, handle)
        answer: Future[Any] = handle.append.remote(queue, call.arguments(), wait_ms).future()
        return answer

    def forget(self, buffer: int) -> None:
        """The buffer restarts, or is gone: find it anew."""
        self._handles.pop(buffer, None)

    def _ask(self, buffer: int, handle: Any) -> None:
        """Ask for a line, once it is worth it; calls go through Ray until there is one."""
        with self._lock:
            self._small_calls[buffer] += 1
            if buffer in self._asked or self._small_calls[buffer] <= CALLS_BEFORE_A_LINE:
                return
            self._asked.add(buffer)
        handle.line.remote().future().add_done_callback(partial(self._told, buffer))

    def _told(self, buffer: int, done: Future[str]) -> None:
        connected = connect(done.result()) if done.exception() is None else None
        with self._lock:
            self._asked.discard(buffer)
            if connected is None:  # of another node, or just gone
                self._small_calls[buffer] = -CALLS_BEFORE_ANOTHER_TRY
            elif self._closed:
                connected.close()
            else:
                self._lines[buffer] = SocketClient(connected)

    def close(self) -> None:
        """End the lines."""
        with self._lock:
            self._closed = True
            lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()
