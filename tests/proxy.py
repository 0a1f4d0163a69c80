"""A small TCP proxy between a client and a real server, which can misbehave on demand.

with Proxy(server.port) as proxy:
    connect_to(proxy.port)
    proxy.cut_before()   # the next request never reaches the server: not applied
    proxy.cut_after()    # the server answers the next request, the client never hears: applied
    proxy.hang()         # connections stay open, no byte passes, until `flow()`
    proxy.delay(20)      # every read of bytes waits 20 ms first
    proxy.cut()          # every open connection is reset now; new ones are accepted
    proxy.refuse()       # ... and new ones are reset at once, until `flow()`
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self

CHUNK_BYTES = 65_536
CONNECT_SECONDS_MAX = 5
RESET_ON_CLOSE = b"\x01\0\0\0\0\0\0\0"  # SO_LINGER on, 0 seconds


class Proxy:
    """Passes bytes between its own `port` and `target_port`, both on 127.0.0.1."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._cut_when: str | None = None
        self._refusing = False
        self._closed = False
        self._delay_seconds = 0.0
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()

    def hang(self) -> None:
        """Let no byte pass any more; what arrives waits for `flow`."""
        self._flowing.clear()

    def flow(self) -> None:
        """Behave again: pass what waited and all that follows, and accept connections."""
        self._refusing = False
        self._delay_seconds = 0.0
        self._cut_when = None
        self._flowing.set()

    def delay(self, milliseconds: float) -> None:
        """Hold every chunk of bytes for `milliseconds` before it passes."""
        self._delay_seconds = milliseconds / 1_000

    def cut_before(self) -> None:
        """Reset the connection of the next request, which the server then never sees."""
        self._cut_when = "request"

    def cut_after(self) -> None:
        """Reset the connection of the next answer: the server did it, the client never hears."""
        self._cut_when = "answer"

    def cut(self) -> None:
        """Reset every open connection now."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._reset(pair)

    def refuse(self) -> None:
        """Reset every open connection, and each new one at once, until `flow`."""
        self._refusing = True
        self.cut()

    def close(self) -> None:
        """End it; calling it again is harmless."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self._listener.close()
        self.cut()
        self._flowing.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                _close_with_reset(client)
                continue
            try:
                server = socket.create_connection(
                    ("127.0.0.1", self._target_port), CONNECT_SECONDS_MAX
                )
            except OSError:
                _close_with_reset(client)
                continue
            server.settimeout(None)
            pair = (client, server)
            for end in pair:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add(pair)
            for source, sink, kind in ((client, server, "request"), (server, client, "answer")):
                threading.Thread(
                    target=self._pump, args=(pair, source, sink, kind), daemon=True
                ).start()

    def _pump(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        sink: socket.socket,
        kind: str,
    ) -> None:
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if self._takes_cut(kind):
                    return
                if self._delay_seconds:
                    time.sleep(self._delay_seconds)
                self._flowing.wait()
                sink.sendall(chunk)
        except OSError:
            pass
        finally:
            self._reset(pair)

    def _takes_cut(self, kind: str) -> bool:
        with self._lock:
            if self._cut_when != kind:
                return False
            self._cut_when = None
            self.cuts += 1
            return True

    def _reset(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            if pair not in self._pairs:
                return
            self._pairs.discard(pair)
        for end in pair:
            _close_with_reset(end)


def _close_with_reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        end.shutdown(socket.SHUT_RDWR)
    end.close()
