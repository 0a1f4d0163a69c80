"""`SocketClient`: a caller's end of one connection to a buffer.

Rules of this file. Any thread may call, and nobody waits for the socket: what it does not take now
waits, up to a bound. The other end is believed nothing before it has proven that it is the one that
was meant. An end that is silent for too long is taken for frozen, and hung up on. Once `broken`, a
line stays broken: make another.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

from pxrs_ray.actors.buffer.answer_poll import AnswerPoll
from pxrs_ray.actors.buffer.socket_writes import SocketWrites
from pxrs_ray.data import link_messages, link_plan
from pxrs_ray.data.link_door import PROOF_BYTES, LinkOffer, check_welcome, greeting
from pxrs_ray.data.link_messages import ANSWERS, LinkKind, LinkMessage
from pxrs_ray.data.link_plan import LinkLife, Sign
from pxrs_ray.data.link_reader import LinkReader
from pxrs_ray.data.link_tls import TlsStream
from pxrs_ray.errors import BufferAway, LogError, ProtocolError, PxrsError

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 64 << 10
MUCH_RECEIVE_BYTES = 256 << 10
# What may wait for the socket; over the network they are the callers' own bytes and no copies.
WAITING_BYTES_MAX = 4 << 20
MUCH_WAITING_BYTES_MAX = 64 << 20


class SocketClient:
    """See the rules at the head of this file.

    Where `hears` is an `AnswerPoll`, whoever takes from the poll takes the answers, as
    `concurrent.futures.Future`. Where it is an event loop, calls are made on that and answered
    there. Either way a call is written by who makes it: to hand it to another thread first would
    double what it takes. No call should be made before the line is `welcome`.
    """

    def __init__(
        self,
        connected: socket.socket,
        offer: LinkOffer,
        hears: AnswerPoll | asyncio.AbstractEventLoop,
        tls: TlsStream | None = None,
        *,
        much: bool = False,
    ) -> None:
        self.broken = False
        self._life = LinkLife(time.monotonic())
        self._socket = connected
        self._hears = hears
        self._tls = tls
        self._much = much
        self._receive_bytes = MUCH_RECEIVE_BYTES if much else RECEIVE_BYTES
        self._writes = SocketWrites(MUCH_WAITING_BYTES_MAX if much else WAITING_BYTES_MAX, tls)
        self._writes_asked = False
        self._reader = LinkReader(ANSWERS)
        self._begun = b""
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._calls: dict[int, Any] = {}
        self._new_answer: Callable[[], Any]
        said, self._expected = greeting(offer)
        connected.setblocking(False)
        if isinstance(hears, AnswerPoll):
            self._new_answer = Future
            hears.add(self)
        else:
            self._new_answer = hears.create_future
            hears.add_reader(connected, self.receive)
            self._beat = hears.call_later(_look_every_s(), self._look)
        if tls is not None:
            self._writes.put_sealed(tls.begin())
        self._write([said])

    @property
    def welcome(self) -> bool:
        """Whether the other end has proven itself."""
        return self._life.welcome

    @property
    def since_s(self) -> float:
        """Since when there is this line."""
        return self._life.since_s

    @property
    def awaits(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._calls) or not self.welcome

    def fileno(self) -> int:
        """Its socket."""
        return self._socket.fileno()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the buffer; BufferAway in the answer when the line breaks.

        Raises ProtocolError for what cannot travel here.
        """
        answer = self._new_answer()
        number = next(self._numbers)
        try:
            parts = self._said(method, number, arguments)
        except (struct.error, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"it cannot be said here: {error}") from error
        if not self._calls:
            self._life.heard(time.monotonic())
        self._calls[number] = answer
        try:
            self._write(parts)
        except ProtocolError:  # too much waits: nothing of it went
            self._calls.pop(number, None)
            raise
        if self.broken:  # it may have ended before this call was noted
            self._tell_broken()
        return answer

    def _said(self, method: str, number: int, arguments: Any) -> list[Any]:
        if method == "fetch":
            return [link_messages.fetch_call(number, *arguments)]
        if method == "hear":
            return link_messages.hear_parts(number, *arguments)
        if self._much:
            return link_messages.append_parts(number, *arguments)
        return [link_messages.append_call(number, *arguments)]

    def _write(self, parts: list[Any]) -> None:
        with self._lock:
            if self.broken:
                return
            self._writes.put(parts)
            if not self._writes_asked:
                self._send()

    def _send(self) -> None:
        """With the lock held: give the socket what it takes, and learn when it takes more."""
        try:
            self._writes.send(self._socket)
        except (OSError, ProtocolError):
            self._hang_up()
            return
        if self._writes.empty == self._writes_asked:
            self._writes_asked = not self._writes_asked
            if isinstance(self._hears, AnswerPoll):
                self._hears.ask_for_room(self, asked=self._writes_asked)
            elif self._writes_asked:
                self._hears.add_writer(self._socket, self._has_room)
            else:
                self._hears.remove_writer(self._socket)

    def _has_room(self) -> None:
        with self._lock:
            if not self.broken and self._writes_asked:
                self._send()

    def receive(self) -> bool:
        """Take in what has come, and give what waits to go; waits for nothing. For one thread at a
        time. Whether something had come."""
        self._has_room()
        room = self._reader.room() if self._tls is None else None
        try:
            if room is not None:  # the rest of a large answer, which is received where it stays
                count = self._socket.recv_into(room, 0, socket.MSG_DONTWAIT)
                if count:
                    self._life.heard(time.monotonic())
                    self._answer(self._reader.came(count))
                    return True
            elif data := self._socket.recv(self._receive_bytes, socket.MSG_DONTWAIT):
                self._life.heard(time.monotonic())
                self._take(self._opened(data))
                return True
        except BlockingIOError:
            if isinstance(self._hears, AnswerPoll):
                self._check_life()
            return False
        except OSError:
            pass  # the calls hear what it means
        except BaseException:  # whatever it is, the calls under way are answered
            logger.exception("a line got what is no answer")
        self._end()
        return True

    def _opened(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        with self._lock:
            data, said = self._tls.received(data)
            self._writes.put_sealed(said)
            if not self.broken:
                self._send()
        return data

    def _take(self, data: bytes) -> None:
        if not self.welcome:
            self._begun += data
            if len(self._begun) < PROOF_BYTES:
                return
            check_welcome(self._begun[:PROOF_BYTES], self._expected)
            data, self._begun = self._begun[PROOF_BYTES:], b""
            self._life.welcome = True
        self._answer(self._reader.feed(data))

    def _answer(self, messages: list[LinkMessage]) -> None:
        for kind, number, content in messages:
            if kind is LinkKind.PONG:
                continue
            answer = self._calls.pop(number, None)
            if answer is None:
                raise ProtocolError(f"an answer to call {number}, which nobody made")
            if answer.done():
                continue  # cancelled: nobody wants it any more
            if kind is LinkKind.FAILED:
                answer.set_exception(content if isinstance(content, PxrsError) else LogError())
            else:
                answer.set_result(content)

    def check_welcome_in_time(self) -> None:
        """Hang up on an end that has not proven itself in time."""
        if self._life.is_late(time.monotonic()):
            self.close()

    def _check_life(self) -> None:
        """Ask for a sign of life where an answer is late, and hang up when none comes."""
        now_s = time.monotonic()
        sign = self._life.look(now_s, awaits=self.awaits)
        if sign is Sign.GIVE_UP:
            silent_s = self._life.silent_s(now_s)
            logger.warning("a buffer is silent for %.0f s: its line is given up", silent_s)
            self.close()
        elif sign is Sign.ASK:
            try:
                self._write([link_messages.ping(next(self._numbers))])
            except ProtocolError:
                pass  # it takes nothing, which says the same

    def _look(self) -> None:
        """On an event loop, now and then."""
        if not self.broken and not isinstance(self._hears, AnswerPoll):
            self._check_life()
        if not self.broken and not isinstance(self._hears, AnswerPoll):
            self._beat = self._hears.call_later(_look_every_s(), self._look)

    def _end(self) -> None:
        with self._lock:
            if not self.broken:
                self.broken = True
                if isinstance(self._hears, AnswerPoll):
                    self._hears.remove(self)
                else:
                    self._beat.cancel()
                    self._hears.remove_reader(self._socket)
                    self._hears.remove_writer(self._socket)
                self._socket.close()
        self._tell_broken()

    def _tell_broken(self) -> None:
        while self._calls:
            try:
                _, answer = self._calls.popitem()
            except KeyError:
                return
            if not answer.done():
                answer.set_exception(_broken())

    def _hang_up(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is over already

    def close(self) -> None:
        """End the line; calls under way are answered with BufferAway."""
        if isinstance(self._hears, AnswerPoll):
            self._hang_up()
        else:
            self._end()


def _look_every_s() -> float:
    return min(link_plan.WELCOME_S, link_plan.SILENT_S)


def _broken() -> BufferAway:
    return BufferAway("the line to the buffer broke: it restarts, or this process let go of it")
