"""One client's connection: its packets in order, and its breaks at once.

Rules of this file. A thread of its own reads the socket, so that a break (the marker that the
driver sends when its call timeout is over) is heard while a statement runs: `on_break` is called
in that thread, and `broken` is set. The dance that follows is the session's: it sends a break
marker, discards everything up to the client's reset marker, answers with its own reset and then
with ORA-01013. A `deaf` channel hears no break until it is told to listen again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from enum import Enum

from tests.contract.oracle_stand_in.framing import (
    DATA,
    DATA_FLAGS_END,
    MARKER,
    Disconnected,
    PacketSocket,
)

_MARKER_BREAK = 1
_MARKER_RESET = 2
_PACKETS_MAX = 10_000


class Broken(Exception):
    """Raised when the client breaks off the call that is under way."""


class _Signal(Enum):
    BREAK = 1
    RESET = 2
    GONE = 3


class Channel:
    """Packets of one client, from the moment its connection was accepted."""

    def __init__(self, packets: PacketSocket, on_break: Callable[[], None]) -> None:
        self._packets = packets
        self._on_break = on_break
        self._incoming: queue.Queue[bytes | _Signal] = queue.Queue(_PACKETS_MAX)
        self.broken = threading.Event()
        self.deaf = False
        self._reader = threading.Thread(target=self._read, name="reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while True:
                kind, body = self._packets.read()
                if kind == MARKER:
                    self._hear(body[2])
                elif kind == DATA:
                    if body[:2] == DATA_FLAGS_END:
                        break
                    self._incoming.put(body[2:])
        except Disconnected:
            pass
        self._incoming.put(_Signal.GONE)

    def _hear(self, marker: int) -> None:
        if marker == _MARKER_RESET:
            self._incoming.put(_Signal.RESET)
        elif not self.deaf:
            self.broken.set()
            self._on_break()
            self._incoming.put(_Signal.BREAK)

    def next_data(self) -> bytes:
        """Wait for the next DATA packet; raises Broken or Disconnected where that comes first."""
        item = self._incoming.get()
        if isinstance(item, bytes):
            return item
        if item is _Signal.GONE:
            raise Disconnected
        raise Broken

    def reset(self) -> None:
        """Take the server's part in the reset after a break, up to the error that ends it."""
        self._packets.send(MARKER, bytes([1, 0, _MARKER_BREAK]))
        while (item := self._incoming.get()) is not _Signal.RESET:
            if item is _Signal.GONE:
                raise Disconnected
        self._packets.send(MARKER, bytes([1, 0, _MARKER_RESET]))
        self.broken.clear()

    def send(self, message: bytes) -> None:
        """Send one message."""
        self._packets.send_message(message)

    def cut(self) -> None:
        """Break the connection off, as a crash would; nothing that runs is ended by it."""
        self._packets.cut()
