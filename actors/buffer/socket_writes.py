"""`SocketWrites`: the bytes that wait until a socket takes more.

Rules of this file. Nothing here waits for the socket. Nothing is copied, except what TLS seals: the
queue holds the callers' own bytes, and a few sealed ones. A caller that needs more room than there
is gets ProtocolError, and calls through Ray.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

from pxrs_ray.data.link_tls import TlsStream
from pxrs_ray.errors import ProtocolError

# Pieces and bytes of one system call.
PIECES_MAX = 64
BYTES_AT_ONCE = 256 << 10


class SocketWrites:
    """See the rules at the head of this file. Not for two threads at once."""

    def __init__(self, bytes_max: int, tls: TlsStream | None) -> None:
        self.waiting_bytes = 0
        self._bytes_max = bytes_max
        self._tls = tls
        self._plain: deque[memoryview] = deque()
        self._ready: deque[memoryview] = deque()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._plain and not self._ready

    def put(self, parts: Sequence[Any]) -> None:
        """Have these bytes follow. Raises ProtocolError when too much waits already."""
        if self.waiting_bytes > self._bytes_max:
            raise ProtocolError(f"{self.waiting_bytes} bytes wait for the socket to take them")
        for part in parts:
            view = memoryview(part).cast("B")
            if view:
                self._plain.append(view)
                self.waiting_bytes += len(view)

    def put_sealed(self, data: bytes) -> None:
        """Have what TLS itself says follow."""
        if data:
            self._ready.append(memoryview(data))

    def send(self, found: socket.socket) -> None:
        """Give the socket what it takes. Raises OSError when it takes nothing any more."""
        while not self.empty:
            if not self._ready:
                self._make_ready()
            pieces = [piece for _, piece in zip(range(PIECES_MAX), self._ready, strict=False)]
            if not pieces:  # it waits for the TLS handshake
                return
            try:
                sent = found.sendmsg(pieces, (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self._drop(sent)

    def _make_ready(self) -> None:
        taken = 0
        while self._plain and len(self._ready) < PIECES_MAX and taken < BYTES_AT_ONCE:
            piece = self._plain.popleft()
            taken += len(piece)
            self.waiting_bytes -= len(piece)
            if self._tls is None:
                self._ready.append(piece)
            else:
                self.put_sealed(self._tls.sealed(piece))

    def _drop(self, sent: int) -> None:
        while sent:
            piece = self._ready.popleft()
            if len(piece) > sent:
                self._ready.appendleft(piece[sent:])
                return
            sent -= len(piece)
