"""Local sockets: small calls to a buffer from processes of its node, without Ray.

Rules of this file. A call through Ray passes several threads on either side, which makes a small
call ten times as expensive; on a socket it is one write and one read. The socket only shortens the
path. It carries the same calls as Ray does, each of which may be repeated. A caller without a
socket (another node, another system than Linux, a buffer that restarts) calls through Ray. Both
ends check that the other one runs as the same user before they unpickle a byte of it. The socket
has no file: it ends with its process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import struct
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future
from itertools import count
from typing import Any

from pxrs_ray.data.protocol import Fetched, Refused
from pxrs_ray.errors import BufferAway
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, beside, contained

logger = logging.getLogger(__name__)

CALL_BYTES_MAX = 64 << 10
REPLY_BYTES_MAX = 256 << 10
MESSAGE_BYTES_MAX = 64 << 20
CALLS_MAX = 1_000
BACKLOG = 128
SEND_WAIT_S = 1
RECEIVE_BYTES = 64 << 10
_LENGTH = struct.Struct("<I")
_PEER = struct.Struct("3i")  # process, user, group


def reply_bytes(found: Collection[Fetched | Refused]) -> int:
    """What a reply to `Buffer.fetch` weighs."""
    chunks = (chunk for part in found if isinstance(part, Fetched) for chunk in part.chunks)
    return sum(memoryview(chunk).nbytes for chunk in chunks)


def _packed(message: Any) -> bytes:
    data = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(data)) + data


class _Unpacker:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Every message that is whole now. Raises ValueError for what is none."""
        self._data += data
        found, position = [], 0
        while len(self._data) >= position + _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data, position)
            if size > MESSAGE_BYTES_MAX:
                raise ValueError(f"a message of {size} bytes on a line")
            end = position + _LENGTH.size + size
            if len(self._data) < end:
                break
            with memoryview(self._data) as view:
                found.append(pickle.loads(view[position + _LENGTH.size : end]))  # noqa: S301 - ours
            position = end
        del self._data[:position]
        return found


def _is_ours(found: socket.socket) -> bool:
    """Whether the other end is of our user, and not in another container (there it has no id)."""
    credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    process, user, _ = _PEER.unpack(credentials)
    return bool(process and user == os.geteuid())


class SocketServer:
    """The buffer's end: calls the buffer's methods on their event loop."""

    def __init__(self, methods: Mapping[str, Callable[..., Coroutine[Any, Any, Any]]]) -> None:
        self._methods = methods
        self._name = ""
        self._server: asyncio.Server | None = None
        self._ends: set[_ServerEnd] = set()

    async def open(self) -> str:
        """The name to `connect` to; '' where there are no lines."""
        if not self._name and sys.platform == "linux":
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            name = self._name = f"\0pxrs-{uuid.uuid4().hex}"
            listening.bind(name)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(
                lambda: _ServerEnd(self._methods, self._ends), sock=listening, backlog=BACKLOG
            )
        return self._name

    def close(self) -> None:
        """Take no more calls, and let those who wait call through Ray."""
        if self._server is not None:
            self._server.close()
        for end in list(self._ends):
            end.hang_up()


class _ServerEnd(asyncio.Protocol):
    """One caller's connection."""

    def __init__(
        self,
        methods: Mapping[str, Callable[..., Coroutine[Any, Any, Any]]],
        ends: set[_ServerEnd],
    ) -> None:
        self._methods = methods
        self._ends = ends
        self._unpacker = _Unpacker()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ends.add(self)
        if not _is_ours(transport.get_extra_info("socket")):
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._ends.discard(self)

    def data_received(self, data: bytes) -> None:
        for number, method, arguments in self._unpacker.feed(data):
            task = beside(self._answer, number, self._methods[method], arguments)
            self._tasks.add(task)
            task.add_done_callback(self._answered)
        if len(self._tasks) >= CALLS_MAX:
            self._transport.pause_reading()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if len(self._tasks) < CALLS_MAX and not self._transport.is_closing():
            self._transport.resume_reading()

    async def _answer(
        self, number: int, method: Callable[..., Coroutine[Any, Any, Any]], arguments: Any
    ) -> None:
        try:
            reply = (number, True, await contained(method(*arguments)))
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            reply = (number, False, error)
        try:
            packed = _packed(reply)
        except Exception as error:  # noqa: BLE001 - an answer that cannot travel is told as such
            packed = _packed((number, False, RuntimeError(told(error))))
        if not self._transport.is_closing():
            self._transport.write(packed)

    def hang_up(self) -> None:
        """End the line; calls under way run to their end and are not answered."""
        self._transport.abort()


def connect(name: str) -> socket.socket | None:
    """A connection to the `SocketServer` of this name; None when it is not of this node."""
    if not name or sys.platform != "linux":
        return None
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(SEND_WAIT_S)
        found.connect(name)
        if _is_ours(found):
            return found
    except OSError:
        pass
    found.close()
    return None


class SocketClient:
    """The caller's end. Once `broken`, it stays broken: make another.

    Without a `loop` any thread may call, and answers arrive on a thread of its own, as
    `concurrent.futures.Future`. With one, calls are made on that event loop and answered there.
    Either way a call is written by who makes it: to hand it to another thread first would double
    what it takes.
    """

    def __init__(
        self, connected: socket.socket, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.broken = False
        self._socket = connected
        self._loop = loop
        self._new_answer: Callable[[], Any] = Future if loop is None else loop.create_future
        self._unpacker = _Unpacker()
        self._numbers = count()
        self._lock = threading.Lock()
        self._calls: dict[int, Any] = {}
        if loop is None:
            connected.settimeout(None)
            wait = struct.pack("@ll", SEND_WAIT_S, 0)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
            Supervisor("a line").thread("pxrs-line", self._receive_all).start()
        else:
            connected.setblocking(False)
            loop.add_reader(connected, self._receive_some)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the buffer; BufferAway in the answer when the line breaks."""
        answer = self._new_answer()
        number = next(self._numbers)
        message = _packed((number, method, arguments))
        with self._lock:
            if self.broken:
                answer.set_exception(_broken())
                return answer
            self._calls[number] = answer
            try:
                # An event loop does not wait here for a buffer that takes nothing more.
                self._socket.sendall(message)
                return answer
            except OSError:
                pass
        # Half a message may be out: nothing can follow it.
        self.close()
        return answer

    def _receive_all(self) -> None:
        while not self.broken:
            self._receive_some()

    def _receive_some(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
            for number, succeeded, value in self._unpacker.feed(data):
                answer = self._calls.pop(number)
                if answer.done():
                    continue  # cancelled: nobody wants it any more
                if succeeded:
                    answer.set_result(value)
                else:
                    answer.set_exception(value)
            if data:
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # what it means is told to the calls
        except BaseException:  # whatever it is, the calls under way are answered
            logger.exception("a line got what is no answer")
        self._end()

    def _end(self) -> None:
        with self._lock:
            if self.broken:
                return
            self.broken = True
            calls, self._calls = self._calls, {}
            if self._loop is not None:
                self._loop.remove_reader(self._socket)
            self._socket.close()
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(_broken())

    def close(self) -> None:
        """End the line; calls under way are answered with BufferAway."""
        if self._loop is not None:
            self._end()
            return
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is over already


def _broken() -> BufferAway:
    return BufferAway("the line to the buffer broke: it restarts, or this process let go of it")
