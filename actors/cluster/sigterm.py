"""`on_terminate`: reports a SIGTERM to an event loop of any thread.

Python runs signal handlers on the main thread alone. In a Ray actor that thread waits in C++ for as
long as a call is pending, so the handler never runs. `faulthandler` handles a signal where it
arrives, by writing to a file; here that file is a socket, and the loop reads its other end. A
library that installs a SIGTERM handler of its own loses it again within a second; child processes
get the system's default (see `forks`).
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import socket
from collections.abc import Callable

from pxrs_ray.supervision.forks import in_children, keep_children_apart

HINT_BYTES = 64 << 10
TAKE_BACK_S = 1.0


class Termination:
    """One process's SIGTERM, reported to one loop. Close it."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        keep_children_apart()
        in_children(self._in_child)
        self._loop.add_reader(self._reader, self._heard)
        self._pythons = signal.getsignal(signal.SIGTERM)
        self._take()

    def _heard(self) -> None:
        self._reader.recv(HINT_BYTES)
        self._tell()

    def _take(self) -> None:
        """Have the signal, also when somebody else's code took it since."""
        if signal.getsignal(signal.SIGTERM) is not self._pythons:
            # Set through Python, which faulthandler does not see: from the beginning, then.
            faulthandler.unregister(signal.SIGTERM)
            self._pythons = signal.getsignal(signal.SIGTERM)
        faulthandler.register(
            signal.SIGTERM, file=self._writer.fileno(), all_threads=False, chain=False
        )
        self._again = self._loop.call_later(TAKE_BACK_S, self._take)

    def _in_child(self) -> None:
        # The loop is the parent's, its selector too: nothing of them is touched here.
        faulthandler.unregister(signal.SIGTERM)
        self._reader.close()
        self._writer.close()

    def close(self) -> None:
        """Leave the signal alone, once or again."""
        if self._reader.fileno() < 0:
            return
        self._again.cancel()
        faulthandler.unregister(signal.SIGTERM)
        self._loop.remove_reader(self._reader)
        self._reader.close()
        self._writer.close()


def on_terminate(tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` on the running loop at a SIGTERM, which does nothing else any more.

    Answers how to stop that, once or again. Where Python has no such handlers (Windows), `tell`
    is never called.
    """
    if not hasattr(faulthandler, "register"):
        return lambda: None
    return Termination(tell).close
