"""`process_end`: the moment at which a process of this machine ends, told by the kernel at once.

Ray tells of a killed process after 10 to 20 ms; a process file descriptor (Linux) is readable as
soon as it is dead. Where there is none, Ray is waited for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# No process has this number: its end is never told.
NO_PROCESS = -1


@asynccontextmanager
async def process_end(pid: int) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done when the process ends; never, where the kernel does not tell."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        ended.set_result(None)
        yield ended
        return
    except (OSError, AttributeError):
        yield ended
        return

    def tell() -> None:
        loop.remove_reader(descriptor)
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        yield ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
