"""`ServerEnd`: a buffer's end of one connection.

Rules of this file. Until the greeting is whole and right, nothing else is kept or answered. From
then on so many calls are under way as `LinkRoom` has room for; more is not read. An end that takes
no answers for too long is hung up on. What is large is received where it stays, and sent from where
it lies, piece by piece: a transport copies what it cannot send at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.buffer import local_socket, tcp_socket
from pxrs_ray.actors.buffer.link_calls import LinkCalls
from pxrs_ray.data import link_messages, link_room
from pxrs_ray.data.link_door import GREETING_BYTES
from pxrs_ray.data.link_messages import CALLS, MUCH_CALLS, LinkKind, LinkMessage
from pxrs_ray.data.link_reader import LinkReader
from pxrs_ray.data.link_tls import TlsStream
from pxrs_ray.errors import ProtocolError

if TYPE_CHECKING:
    from pxrs_ray.actors.buffer.socket_server import SocketServer

# What goes in answer over a connection: that does not carry much, and that does.
REPLIES_BYTES_MAX = REPLY_BYTES_MAX, MUCH_REPLY_BYTES_MAX = 256 << 10, 7 << 20
# What the transport is given at once; and of it what is joined to the few bytes before it.
PIECE_BYTES = 128 << 10
JOINED_BYTES = 16 << 10

_ANSWERS: dict[LinkKind, Callable[..., Sequence[Any]]] = {
    LinkKind.APPEND: link_messages.appended_answer,
    LinkKind.FETCH: link_messages.fetched_answer,
    LinkKind.HEAR: link_messages.heard_answer,
}


def _no_replica(*_: Any) -> None:
    raise ProtocolError("this buffer is no replica: nothing is said to it")


class ServerEnd(asyncio.BufferedProtocol):
    """See the rules at the head of this file."""

    def __init__(
        self,
        server: SocketServer,
        methods: Mapping[str, Callable[..., Any]],
        *,
        network: bool = False,
    ) -> None:
        self.network = network
        self._server = server
        self._methods = methods
        self._tls: TlsStream | None = None
        self._greeting: bytearray | None = bytearray()
        self._reader = LinkReader({})
        self._much = self._is_in_place = False
        self._waiting: deque[LinkMessage] = deque()
        self._unsaid: deque[memoryview] = deque()
        self._room = link_room.LinkRoom()
        self._calls = LinkCalls(self._room, self._say, self._breathe)
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle

    @property
    def stranger(self) -> bool:
        """Whether it is not known yet who this is."""
        return self._greeting is not None

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`, as of the methods below that it has."""
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # the rest waits here, and is not copied
        strangers = self._server.strangers(network=self.network)
        self._server.ends.add(self)
        self._limit = asyncio.get_running_loop().call_later(link_room.GREETING_WAIT_S, self.hang_up)
        if not link_room.admits(strangers):
            self._server.counts["strangers_refused"] += 1
            self.hang_up()
        elif not self.network:
            if not local_socket.is_ours(transport.get_extra_info("socket")):
                self.hang_up()
        else:
            tcp_socket.tune(transport.get_extra_info("socket"))
            if self._server.context is not None:
                self._tls = TlsStream(self._server.context, server_side=True)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget it; calls under way run to their end."""
        self._limit.cancel()
        self._waiting.clear()
        self._unsaid.clear()
        self._server.counts["links"] -= self.network and not self.stranger
        self._server.ends.discard(self)

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        """Where what comes next is received: the rest of a large call where it stays."""
        room = self._reader.room() if self._tls is None else None
        self._is_in_place = room is not None
        return self._server.stage if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        """So much was received where `get_buffer` said."""
        if self._is_in_place:
            self._hear(lambda: self._reader.came(nbytes))
        else:
            self.data_received(bytes(memoryview(self._server.stage)[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take in what has come; whatever is wrong with it ends this connection alone."""
        self._hear(lambda: self._messages_in(data))

    def _messages_in(self, data: bytes) -> Sequence[LinkMessage]:
        if self._tls is not None:
            data, said = self._tls.received(data)
            if said:
                self._transport.write(said)
        if self._greeting is not None:
            data = self._meet(self._greeting, data)
        return self._reader.feed(data) if data else ()

    def _hear(self, messages: Callable[[], Sequence[LinkMessage]]) -> None:
        try:
            for message in messages():
                if message.kind is LinkKind.PING:
                    self._say([link_messages.pong(message.number)])
                else:
                    self._waiting.append(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, this connection alone ends
            self._server.counts["strangers_refused"] += self.stranger
            self._server.tell("hung up on a caller: %s", error)
            self.hang_up()
            return
        self._breathe()

    def _meet(self, begun: bytearray, data: bytes) -> bytes:
        missing = GREETING_BYTES - len(begun)
        begun += data[:missing]
        if len(begun) < GREETING_BYTES:
            return b""
        admit, now_s = self._server.tickets.admit, time.monotonic()
        proof, self._much = admit(bytes(begun), now_s, network=self.network)
        self._say([proof])
        self._limit.cancel()
        self._greeting = None
        self._server.counts["links"] += self.network
        if self._much and not self.network:
            local_socket.widen(self._transport.get_extra_info("socket"))
        self._reader = LinkReader(MUCH_CALLS if self._much else CALLS)
        return data[missing:]

    def _begin(self, message: LinkMessage) -> None:
        kind = message.kind
        method = "fetch_much" if self._much and kind is LinkKind.FETCH else kind.name.lower()
        self._server.counts["link_calls"] += self.network
        self._calls.make(
            message.number,
            self._methods.get(method, _no_replica),
            message.content,
            _ANSWERS[kind],
            self._weight(message),
            changes=kind is LinkKind.APPEND,
        )

    def _weight(self, message: LinkMessage) -> int:
        """What it holds, or may be answered with."""
        if message.kind is LinkKind.APPEND:
            return sum(len(frame[2]) for frame in message.content[1])
        if message.kind is LinkKind.HEAR:
            return sum(map(len, message.content[0]))
        most = MUCH_REPLY_BYTES_MAX if self._much else REPLY_BYTES_MAX
        return int(min(message.content[3], most))

    def _breathe(self) -> None:
        """Begin what waits, and read on, where there is room for more calls and their answers."""
        if self._transport.is_closing():
            return
        while self._waiting and self._room.has_room():
            self._begin(self._waiting.popleft())
        if self._room.has_room():
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The other end takes no answers now."""
        self._room.stuck = True
        self._limit.cancel()
        self._limit = asyncio.get_running_loop().call_later(link_room.STUCK_S, self.hang_up)
        self._breathe()

    def resume_writing(self) -> None:
        """It takes answers again."""
        self._room.stuck = False
        self._limit.cancel()
        self._say_on()
        self._breathe()

    def _say(self, said: Sequence[Any]) -> None:
        if not self._unsaid and sum(map(len, said)) <= PIECE_BYTES:
            self._write(b"".join(said))
            return
        self._unsaid += [memoryview(part) for part in said if len(part)]
        self._say_on()

    def _say_on(self) -> None:
        """Give the transport one piece after the other, until it is stuck."""
        while self._unsaid and not self._room.stuck and not self._transport.is_closing():
            self._write(self._piece())

    def _piece(self) -> bytes | memoryview:
        """The next of what is to be said; few bytes go with the beginning of what follows."""
        few: list[memoryview] = []
        unsaid, left = self._unsaid, JOINED_BYTES
        while unsaid and left and (few or len(unsaid[0]) < left):
            few.append(self._cut_off(left))
            left -= len(few[-1])
        return b"".join(few) if few else self._cut_off(PIECE_BYTES)

    def _cut_off(self, size: int) -> memoryview:
        part = self._unsaid.popleft()
        if len(part) > size:
            self._unsaid.appendleft(part[size:])
        return part[:size]

    def _write(self, said: bytes | memoryview) -> None:
        if not self._transport.is_closing():
            self._transport.write(said if self._tls is None else self._tls.sealed(said))

    def hang_up(self) -> None:
        """End the line; calls under way run to their end and are not answered."""
        self._transport.abort()
