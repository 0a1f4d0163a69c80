"""`BufferClient`: every call to one buffer, typed, from a process that is not the buffer's.

Rules of this file. A call is made at once and answers a `BufferReply`: an event loop awaits it, a
thread waits for its result. What either raises is one of our errors, and `failure_of` says what it
means. Nothing is repeated here, but for a read whose socket broke: who calls has the deadline.
Little goes through a local socket where the buffer is on this node; Ray carries what is large,
without a copy, and everything else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pxrs_ray.actors.buffer.call_failure import ours
from pxrs_ray.actors.buffer.local_socket import (
    CALL_BYTES_MAX,
    REPLY_BYTES_MAX,
    SocketClient,
    connect,
    reply_bytes,
)
from pxrs_ray.data.protocol import (
    Appended,
    BufferGrant,
    BufferInfo,
    BufferStats,
    Fetched,
    LogEnds,
    OutFrame,
    Position,
    QueueSpec,
    Refused,
)
from pxrs_ray.errors import BufferAway, DeadlineExceeded, PxrsError
from pxrs_ray.model import Epoch, Message, Offset, PartitionId
from pxrs_ray.supervision.supervisor import within

if TYPE_CHECKING:
    import socket

    from pxrs_ray.actors.buffer.coordinator_recovery import RecoveryPlan
    from pxrs_ray.log.identity import Identity
    from pxrs_ray.log.log_copy import Bytes, FileState, Piece
    from pxrs_ray.log.producer_fence import Generation

logger = logging.getLogger(__name__)

T = TypeVar("T")

FETCH_BYTES_MAX = 8 << 20
# Who makes a few small calls only is served well enough by Ray.
CALLS_BEFORE_A_SOCKET = 3
ASK_AGAIN_S = 10.0


class BufferReply(Generic[T]):
    """The answer to one call, on its way. Take it once: await it, or wait for its `result`."""

    __slots__ = ("_coming", "_what")

    def __init__(self, what: str, coming: Any) -> None:
        self._what = what
        self._coming = coming

    def __await__(self) -> Generator[Any, None, T]:
        try:
            found: T = yield from self._coming.__await__()
        except Exception as error:
            if (told := ours(error)) is error:
                raise
            raise told from error
        return found

    async def within(self, wait_s: float) -> T:
        """The answer, on an event loop. Raises DeadlineExceeded when there is none by then."""
        try:
            return await within(wait_s, self)
        except TimeoutError as error:
            if isinstance(error, PxrsError):
                raise
            raise self._silent(wait_s) from None

    def _silent(self, wait_s: float) -> DeadlineExceeded:
        return DeadlineExceeded(f"it did not answer {self._what} in {wait_s:g} s")

    def future(self) -> Future[T]:
        """The answer for a thread, with what carried it raises: `ours` translates that."""
        coming: Future[T] = (
            self._coming if isinstance(self._coming, Future) else self._coming.future()
        )
        return coming

    def result(self, wait_s: float) -> T:
        """The answer. Raises DeadlineExceeded when there is none by then, and what `ours` says."""
        coming = self.future()
        try:
            return coming.result(wait_s)
        except Exception as error:
            if not coming.done():
                raise self._silent(wait_s) from None
            if (told := ours(error)) is error:
                raise
            raise told from error


class BufferClient:
    """One caller's calls to the buffer actor `handle`. See the rules at the head of this file.

    With a `loop` it is for that event loop alone; without, any thread may use it. With `sockets` it
    opens one when that is worth it: close it then. A thread's fetches all go through Ray.
    """

    def __init__(
        self,
        handle: Any,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        sockets: bool = False,
    ) -> None:
        self.handle = handle
        self._loop = loop
        self._sockets = sockets
        self._socket: SocketClient | None = None
        self._lock = threading.Lock()
        self._asking = False
        self._small_calls = 0
        self._ask_at_s = 0.0
        self._much = False

    # ---- messages

    def append(
        self, queue: str, frames: Sequence[OutFrame], wait_ms: int = 0, *, size_bytes: int = 0
    ) -> BufferReply[list[Appended | Refused]]:
        """See `Buffer.append`. `size_bytes` is what the frames weigh: a little goes by a socket."""
        if self._sockets and size_bytes <= CALL_BYTES_MAX:
            line = self._line()
            if line is not None:
                return BufferReply("append", line.call("append", queue, frames, wait_ms))
        return self._through_ray("append", self.handle.append, queue, frames, wait_ms)

    def fetch(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, Position],
        bytes_max: int = FETCH_BYTES_MAX,
        wait_ms: int = 1_000,
        reader: str = "",
    ) -> BufferReply[list[Fetched | Refused]]:
        """See `Buffer.fetch`."""
        arguments = (queue, group, positions, bytes_max, wait_ms, reader)
        if self._loop is None or not self._sockets:
            return self._through_ray("fetch", self.handle.fetch, *arguments)
        line = None if self._much else self._line()
        if line is None:
            coming = self._through_ray("fetch", self.handle.fetch, *arguments)
            return BufferReply("fetch", self._noting_its_size(coming))
        return BufferReply("fetch", self._fetched(line.call("fetch", *arguments), arguments))

    async def _fetched(
        self, answer: asyncio.Future[Any], arguments: tuple[Any, ...]
    ) -> list[Fetched | Refused]:
        found: list[Fetched | Refused] | None
        try:
            found = await answer
        except BufferAway:
            found = None
        if found is None:  # too much for a socket, or no socket any more
            coming = self._through_ray("fetch", self.handle.fetch, *arguments)
            return await self._noting_its_size(coming)
        return found

    async def _noting_its_size(
        self, coming: BufferReply[list[Fetched | Refused]]
    ) -> list[Fetched | Refused]:
        found = await coming
        self._much = reply_bytes(found) > REPLY_BYTES_MAX
        return found

    def begin_producer(
        self, queue: str, producer: str, number: int, token: str
    ) -> BufferReply[Generation | None]:
        """See `Buffer.begin_producer`."""
        return self._through_ray(
            "begin_producer", self.handle.begin_producer, queue, producer, number, token
        )

    # ---- looking

    def ends(self, queue: str) -> BufferReply[dict[PartitionId, LogEnds]]:
        """See `Buffer.ends`."""
        return self._through_ray("ends", self.handle.ends, queue)

    def offset_at(self, queue: str, timestamp_ms: int) -> BufferReply[dict[PartitionId, Offset]]:
        """See `Buffer.offset_at`."""
        return self._through_ray("offset_at", self.handle.offset_at, queue, timestamp_ms)

    def timestamps(
        self, queue: str, offsets: Mapping[PartitionId, Offset]
    ) -> BufferReply[dict[PartitionId, int]]:
        """See `Buffer.timestamps`."""
        return self._through_ray("timestamps", self.handle.timestamps, queue, offsets)

    def get_message(
        self, queue: str, partition: PartitionId, offset: Offset
    ) -> BufferReply[Message]:
        """See `Buffer.get_message`."""
        return self._through_ray("get_message", self.handle.get_message, queue, partition, offset)

    def stats(self) -> BufferReply[BufferStats]:
        """See `Buffer.stats`."""
        return self._through_ray("stats", self.handle.stats)

    def slot_files(self) -> BufferReply[list[FileState]]:
        """See `Buffer.slot_files`."""
        return self._through_ray("slot_files", self.handle.slot_files)

    def read_piece(self, piece: Piece) -> BufferReply[Bytes]:
        """See `Buffer.read_piece`."""
        return self._through_ray("read_piece", self.handle.read_piece, piece)

    # ---- the life of the logs

    def open(
        self, spec: QueueSpec, expected_ends: Mapping[PartitionId, Offset], make: bool
    ) -> BufferReply[dict[PartitionId, LogEnds]]:
        """See `Buffer.open`."""
        return self._through_ray("open", self.handle.open, spec, expected_ends, make)

    def passed(
        self, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> BufferReply[None]:
        """See `Buffer.passed`."""
        return self._through_ray("passed", self.handle.passed, queue, group, checkpoints)

    def truncate(
        self, queue: str, offsets: Mapping[PartitionId, Offset]
    ) -> BufferReply[dict[PartitionId, LogEnds | Refused]]:
        """See `Buffer.truncate`."""
        return self._through_ray("truncate", self.handle.truncate, queue, offsets)

    def accept_loss(self, queue: str, partition: PartitionId) -> BufferReply[LogEnds]:
        """See `Buffer.accept_loss`."""
        return self._through_ray("accept_loss", self.handle.accept_loss, queue, partition)

    def fence(
        self, queue: str, group: str, epochs: Mapping[PartitionId, Epoch]
    ) -> BufferReply[None]:
        """See `Buffer.fence`."""
        return self._through_ray("fence", self.handle.fence, queue, group, epochs)

    def fences(self, queue: str, group: str) -> BufferReply[dict[PartitionId, Epoch]]:
        """See `Buffer.fences`."""
        return self._through_ray("fences", self.handle.fences, queue, group)

    def belong(self, claim: Identity, adopt: bool) -> BufferReply[Identity]:
        """See `Buffer.belong`."""
        return self._through_ray("belong", self.handle.belong, claim, adopt)

    def drop_group(self, queue: str, group: str) -> BufferReply[None]:
        """See `Buffer.drop_group`."""
        return self._through_ray("drop_group", self.handle.drop_group, queue, group)

    def drop_queue(self, queue: str) -> BufferReply[None]:
        """See `Buffer.drop_queue`."""
        return self._through_ray("drop_queue", self.handle.drop_queue, queue)

    def forget(self, queues: Sequence[str]) -> BufferReply[None]:
        """See `Buffer.forget`."""
        return self._through_ray("forget", self.handle.forget, queues)

    # ---- the life of the buffer

    def ping(self, grant: BufferGrant | None = None) -> BufferReply[BufferInfo]:
        """See `Buffer.ping`."""
        return self._through_ray("ping", self.handle.ping, grant)

    def inherit(self, will: RecoveryPlan) -> BufferReply[None]:
        """See `Buffer.inherit`."""
        return self._through_ray("inherit", self.handle.inherit, will)

    def stop(self) -> BufferReply[None]:
        """See `Buffer.close`: the buffer's own end, and not this client's."""
        return self._through_ray("close", self.handle.close)

    # ---- what carries them

    def _through_ray(self, what: str, method: Any, *arguments: object) -> BufferReply[Any]:
        try:
            return BufferReply(what, method.remote(*arguments))
        except Exception as error:
            if (told := ours(error)) is error:
                raise
            raise told from error

    def _line(self) -> SocketClient | None:
        """The socket to the buffer, once there is one; until then calls go through Ray."""
        line = self._socket
        if line is not None and not line.broken:
            return line
        with self._lock:
            self._small_calls += 1
            if (
                self._asking
                or self._small_calls <= CALLS_BEFORE_A_SOCKET
                or time.monotonic() < self._ask_at_s
            ):
                return None
            self._asking = True
        try:
            self.handle.line.remote().future().add_done_callback(self._told)
        except Exception:  # noqa: BLE001 - the call that comes now meets the same
            self._no_socket()
        return None

    def _told(self, done: Future[str]) -> None:
        """The buffer has said where it listens. Called on a thread of Ray's."""
        connected = connect(done.result()) if done.exception() is None else None
        if connected is None:  # of another node, or just gone
            self._no_socket()
            return
        if self._loop is None:
            self._take(connected)
            return
        try:
            self._loop.call_soon_threadsafe(self._take, connected)
        except RuntimeError:  # the loop is closed
            connected.close()

    def _no_socket(self) -> None:
        self._ask_at_s = time.monotonic() + ASK_AGAIN_S
        self._asking = False

    def _take(self, connected: socket.socket) -> None:
        with self._lock:
            self._asking = False
            if not self._sockets:  # closed meanwhile
                connected.close()
            else:
                self._socket = SocketClient(connected, self._loop)

    def close(self) -> None:
        """End the socket; calls that are made after this go through Ray."""
        with self._lock:
            self._sockets = False
            line, self._socket = self._socket, None
        if line is not None:
            line.close()
