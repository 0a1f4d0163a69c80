"""Real buffers and real producers in one process: Ray's calls are replaced by direct ones.

Rules of this file. A buffer is the real class on an event loop of its own thread; its handle looks
like an actor's. A killed buffer loses what was in memory, and one whose power is cut also what was
not synced. A `Net` between producers and buffers decides of each call what becomes of it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pxrs_ray.actors.buffer import buffer_clients
from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.actors.client import producer_start
from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.data.batch import batches
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.data.protocol import Fetched, QueueSpec
from pxrs_ray.errors import BufferAway
from pxrs_ray.model import Message
from pxrs_ray.partitioning import Partitioner
from tests.leases import let_serve
from tests.settings import log_limits, producer_limits, sender_limits

WAIT_S = 30.0
QUEUE = "q"
# What becomes of one call: it is given the call itself, and answers what the caller gets.
Fate = Callable[["Buffers", int, Callable[[], "Future[Any]"]], "Future[Any]"]


def directly(_: Buffers, __: int, make: Callable[[], Future[Any]]) -> Future[Any]:
    """Nothing becomes of it but what it says."""
    return make()


class Handle:
    """A buffer as producers see it: `handle.append.remote(...).future()`."""

    def __init__(self, buffers: Buffers, index: int) -> None:
        self._buffers, self._index = buffers, index

    def __getattr__(self, name: str) -> Any:
        if name == "leads":  # it is no replica
            raise AttributeError(name)
        handle = self

        class Method:
            def __init__(self, coming: Future[Any] | None = None) -> None:
                self._coming = coming

            def remote(self, *arguments: Any) -> Method:
                buffers, index = handle._buffers, handle._index
                fate = buffers.fate if name in ("append", "begin_producer") else directly
                return Method(fate(buffers, index, lambda: buffers.call(index, name, *arguments)))

            def future(self) -> Future[Any]:
                assert self._coming is not None
                return self._coming

        return Method()


class Buffers:
    """Buffers of one topology with one queue, and no coordinator."""

    def __init__(self, folder: Path, partitions: int, count: int, limits: LogLimits) -> None:
        self.folder, self.partitions, self.count = folder, partitions, count
        self.spec = QueueSpec(QUEUE, partitions, limits)
        self.fate: Fate = directly
        self.handles: dict[int, Any] = {index: Handle(self, index) for index in range(count)}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._buffers: dict[int, Buffer | None] = dict.fromkeys(range(count))
        for index in range(count):
            self.start(index)

    def on_loop(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, index: int, name: str, *arguments: Any) -> Future[Any]:
        """Call a method of a buffer, as Ray does: on its own loop, or not at all."""
        buffer = self._buffers[index]
        if buffer is None or name == "line":
            gone: Future[Any] = Future()
            gone.set_exception(BufferAway(f"buffer {index} is not there"))
            return gone
        return self.on_loop(getattr(buffer, name)(*arguments))

    def start(self, index: int) -> None:
        async def make() -> Buffer:
            buffer = Buffer("t", index, self.count, str(self.folder))
            await buffer.open(self.spec, {}, make=True)
            await let_serve(buffer)
            return buffer

        self._buffers[index] = self.on_loop(make()).result(WAIT_S)

    def kill(self, index: int) -> None:
        """As SIGKILL does: what the system has stays, what the process knew is gone."""
        buffer, self._buffers[index] = self._buffers[index], None
        if buffer is None:
            return

        async def end() -> None:
            for log in buffer._manager.all_logs():
                log.abandon()
            await buffer.close()

        self.on_loop(end()).result(WAIT_S)

    def restart(self, index: int) -> None:
        self.kill(index)
        self.start(index)

    def stop(self, index: int) -> None:
        """As `pxrs down` does."""
        buffer, self._buffers[index] = self._buffers[index], None
        if buffer is not None:
            self.on_loop(buffer.close()).result(WAIT_S)

    def producer(self, name: str | None = None, **limits: Any) -> Producer:
        identity = None
        if name is not None:
            identity = producer_start.begin_producer("t", QUEUE, self.count, name)
        sender = sender_limits(append_timeout_ms=limits.pop("append_timeout_ms", 30_000))
        given = producer_limits(**{"sender": sender, **limits})
        partitioner = Partitioner(self.partitions)
        return Producer(
            "t", QUEUE, self.count, partitioner, given, producer_id=identity, handles=self.handles
        )

    def messages(self, partition: int) -> list[Message]:
        """Everything that one partition holds, in order."""
        index, at, found = partition % self.count, 0, []
        while True:
            positions = {partition: (0, at)}
            answers = self.call(index, "fetch", QUEUE, "test", positions, 8 << 20, 0).result(WAIT_S)
            if not answers:
                return found
            (fetched,) = answers
            assert isinstance(fetched, Fetched), fetched
            for batch in batches(fetched, at):
                found.extend(batch)
            at = fetched.next_offset

    def close(self) -> None:
        for index in range(self.count):
            self.stop(index)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


@contextmanager
def in_process(
    folder: Path, partitions: int = 4, count: int = 2, limits: LogLimits | None = None
) -> Iterator[Buffers]:
    """Buffers that producers find without Ray."""
    buffers = Buffers(folder, partitions, count, limits or log_limits())
    find = patch.object(buffer_clients, "find_buffer", lambda _, index, *__: buffers.handles[index])
    try:
        with find:
            yield buffers
    finally:
        buffers.close()


def until(condition: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """Return when it holds."""
    end_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < end_s, "it does not come about"
        time.sleep(0.005)
