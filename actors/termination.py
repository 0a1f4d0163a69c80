"""`on_terminate`: a SIGTERM, told to an event loop of whatever thread.

Python's own signal handlers run on the main thread alone, and in a Ray actor that waits in C++ for
as long as a call is pending: Ray's handler never comes to run. `faulthandler` deals with a signal
where it arrives, by writing to a file; here that is a socket, and the loop reads its other end.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import socket
from collections.abc import Callable

HINT_BYTES = 64 << 10


def on_terminate(tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` on the running loop at a SIGTERM, which does nothing else any more.

    Answers how to stop that, once or again. Where Python has no such handlers (Windows), nothing
    is told.
    """
    if not hasattr(faulthandler, "register"):
        return lambda: None
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)

    def heard() -> None:
        reader.recv(HINT_BYTES)
        tell()

    loop.add_reader(reader, heard)
    faulthandler.register(signal.SIGTERM, file=writer.fileno(), all_threads=False, chain=False)

    def close() -> None:
        if reader.fileno() < 0:
            return
        faulthandler.unregister(signal.SIGTERM)
        loop.remove_reader(reader)
        reader.close()
        writer.close()

    return close
