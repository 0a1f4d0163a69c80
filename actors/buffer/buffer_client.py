"""`BufferClient`: every call to one buffer, typed, from a process that is not the buffer's.

Rules of this file. A call is made at once and answers a `BufferReply`: an event loop awaits it, a
thread waits for its result. What either raises is one of our errors, and `failure_of` says what it
means. Nothing is repeated here, but for a read whose socket broke: who calls has the deadline.
Messages go by a socket, what is large on a connection of its own: a call through Ray costs as much
as some megabytes on a socket. Ray carries the rest, and takes over whenever there is no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pxrs_ray.actors.buffer.answer_poll import AnswerPoll
from pxrs_ray.actors.buffer.buffer_link import BufferLink, LinkWay
from pxrs_ray.actors.buffer.call_failure import ours
from pxrs_ray.actors.buffer.server_end import MUCH_REPLY_BYTES_MAX, REPLY_BYTES_MAX
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.data.link_messages import reply_bytes
from pxrs_ray.data.protocol import (
    Appended,
    BufferGrant,
    BufferInfo,
    BufferStats,
    ChangedEnds,
    Fetched,
    LogEnds,
    OutFrame,
    QueueSpec,
    ReadPosition,
    Refused,
)
from pxrs_ray.errors import BufferAway, DeadlineExceeded, ProtocolError, PxrsError
from pxrs_ray.model import Epoch, Message, Offset, PartitionId
from pxrs_ray.supervision.supervisor import within

if TYPE_CHECKING:
    from pxrs_ray.actors.buffer.coordinator_recovery import RecoveryPlan
    from pxrs_ray.log.identity import Identity
    from pxrs_ray.log.log_copy import Bytes, FileState, Piece
    from pxrs_ray.log.producer_fence import ProducerLife
    from pxrs_ray.replication.placement import LeaderEpoch
    from pxrs_ray.replication.replica_calls import GroupKnown, LeadFound

T = TypeVar("T")

FETCH_BYTES_MAX = 8 << 20
# What goes by the connection for what is small; the rest has one of its own.
CALL_BYTES_MAX = 64 << 10
# What one read by such a connection asks for at once: more would hold up who reads beside it.
MUCH_FETCH_BYTES_MAX = 4 << 20


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


def _hand_on(done: Future[Any], to: Future[Any]) -> None:
    if to.done():
        return
    if (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(done.result())


class BufferClient:
    """One caller's calls to the buffer actor `handle`. See the rules at the head of this file.

    Where `hears` is an event loop it is for that alone; otherwise any thread may use it. Where
    `hears` is given it opens a socket when that is worth it, whose answers are heard there: close
    it then. A thread's fetches go through Ray where the buffer is on this node.
    """

    def __init__(
        self, handle: Any, hears: AnswerPoll | asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.handle = handle
        self._hears = hears
        self._closed = False
        self._here = BufferLink(handle, hears, LinkWay.HERE)
        self._here_much = BufferLink(handle, hears, LinkWay.HERE_MUCH)
        self._small = BufferLink(handle, hears, LinkWay.SMALL)
        self._much = BufferLink(handle, hears, LinkWay.MUCH)
        # What the last reply weighed that did not come by the connection for what is small.
        self._reply_bytes = 0

    # ---- messages

    def append(
        self, queue: str, frames: Sequence[OutFrame], wait_ms: int = 0, *, size_bytes: int = 0
    ) -> BufferReply[list[Appended | Refused]]:
        """See `Buffer.append`. `size_bytes` is what the frames weigh: much has a connection of its
        own."""
        line = self._line(much=size_bytes > CALL_BYTES_MAX)
        if line is not None:
            try:
                return BufferReply("append", line.call("append", queue, frames, wait_ms))
            except ProtocolError:
                pass  # Ray carries it, or says what is wrong with it
        return self._through_ray("append", self.handle.append, queue, frames, wait_ms)

    def fetch(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, ReadPosition],
        bytes_max: int = FETCH_BYTES_MAX,
        wait_ms: int = 1_000,
        reader: str = "",
    ) -> BufferReply[list[Fetched | Refused]]:
        """See `Buffer.fetch`."""
        arguments = (queue, group, positions, bytes_max, wait_ms, reader)
        on_loop = not (self._hears is None or isinstance(self._hears, AnswerPoll))
        line, much = self._line_of_fetch(on_loop)
        try:
            if line is not None:
                most = min(bytes_max, MUCH_FETCH_BYTES_MAX) if much else bytes_max
                answer = line.call("fetch", queue, group, positions, most, wait_ms, reader)
                if on_loop:
                    return BufferReply("fetch", self._fetched(answer, arguments, much))
                return BufferReply("fetch", self._or_through_ray(answer, arguments))
        except ProtocolError:
            pass  # Ray carries it, or says what is wrong with it
        coming = self._through_ray("fetch", self.handle.fetch, *arguments)
        return BufferReply("fetch", self._noting_its_size(coming)) if on_loop else coming

    def _line_of_fetch(self, on_loop: bool) -> tuple[SocketClient | None, bool]:
        """The connection for the next read, and whether it is one for what is large. On this node
        the former reply says what is to be expected."""
        here = self._here.line()
        if here is None:
            return (self._much.line() if self._here.elsewhere else None), True
        if not on_loop or self._reply_bytes > MUCH_REPLY_BYTES_MAX:
            return None, False
        if self._reply_bytes > REPLY_BYTES_MAX:
            return self._here_much.line(), True
        return here, False

    def _or_through_ray(self, answer: Future[Any], arguments: tuple[Any, ...]) -> Future[Any]:
        """A thread's answer: what the line brings, or Ray where the line does not bring it."""
        found: Future[Any] = Future()

        def heard(done: Future[Any]) -> None:
            error = done.exception()
            if (error is None and done.result() is not None) or found.done():
                _hand_on(done, found)
                return
            if error is not None and not isinstance(error, BufferAway):
                found.set_exception(error)
                return
            try:
                coming = self._through_ray("fetch", self.handle.fetch, *arguments).future()
                coming.add_done_callback(lambda done: _hand_on(done, found))
            except PxrsError as raised:
                found.set_exception(raised)

        answer.add_done_callback(heard)
        return found

    async def _fetched(
        self, answer: asyncio.Future[Any], arguments: tuple[Any, ...], much: bool
    ) -> list[Fetched | Refused]:
        found: list[Fetched | Refused] | None
        try:
            found = await answer
        except BufferAway:
            found = None
        if found is None:  # too much for a socket, or no socket any more
            coming = self._through_ray("fetch", self.handle.fetch, *arguments)
            return await self._noting_its_size(coming)
        if much:
            self._reply_bytes = reply_bytes(found)
        return found

    async def _noting_its_size(
        self, coming: BufferReply[list[Fetched | Refused]]
    ) -> list[Fetched | Refused]:
        found = await coming
        self._reply_bytes = reply_bytes(found)
        return found

    def begin_producer(
        self, queue: str, producer: str, number: int, token: str
    ) -> BufferReply[ProducerLife | None]:
        """See `Buffer.begin_producer`."""
        return self._through_ray(
            "begin_producer", self.handle.begin_producer, queue, producer, number, token
        )

    # ---- looking

    def ends(self, queue: str) -> BufferReply[dict[PartitionId, LogEnds]]:
        """See `Buffer.ends`."""
        return self._through_ray("ends", self.handle.ends, queue)

    def changed_ends(self, heard: tuple[str, int]) -> BufferReply[ChangedEnds]:
        """See `Buffer.changed_ends`."""
        return self._through_ray("changed_ends", self.handle.changed_ends, heard)

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

    def step_back(self, generation: int, left_for: int, moves: int) -> BufferReply[None]:
        """See `Buffer.step_back`."""
        step_back = self.handle.step_back
        return self._through_ray("step_back", step_back, generation, left_for, moves)

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
        self, queue: str, offsets: Mapping[PartitionId, Offset], force: bool = False
    ) -> BufferReply[dict[PartitionId, LogEnds | Refused]]:
        """See `Buffer.truncate`."""
        return self._through_ray("truncate", self.handle.truncate, queue, offsets, force)

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

    def take_lead(
        self, claim: Identity, adopt: bool, groups: Sequence[tuple[str, str]]
    ) -> BufferReply[LeadFound]:
        """See `ReplicaBuffer.take_lead`."""
        return self._through_ray("take_lead", self.handle.take_lead, claim, adopt, groups)

    def serve(
        self, grant: BufferGrant, epoch: LeaderEpoch, groups: Sequence[GroupKnown]
    ) -> BufferReply[BufferInfo]:
        """See `ReplicaBuffer.serve`."""
        return self._through_ray("serve", self.handle.serve, grant, epoch, groups)

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

    def _line(self, *, much: bool = False) -> SocketClient | None:
        """The connection for what is small or for `much`, once there is one."""
        line = self._here.line()
        if line is not None:
            return self._here_much.line() if much else line
        return (self._much if much else self._small).line() if self._here.elsewhere else None

    def connect(self, *, much: bool = False) -> bool:
        """Have the connection for what is small made now, and not after some calls, or also that
        for `much`; whether it is still to come."""
        coming = self._here.is_coming()
        if self._here.elsewhere:
            return (self._much if much else self._small).is_coming()
        return self._here_much.is_coming() if much and not coming else coming

    def close(self) -> None:
        """End the connections; calls that are made after this go through Ray."""
        self._closed = True
        for link in (self._here, self._here_much, self._small, self._much):
            link.close()
