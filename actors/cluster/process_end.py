"""`process_end`: a future that is done as soon as a process of this machine has ended.

Ray reports a killed process after 10 to 20 ms; a process file descriptor (Linux) is readable as
soon as it is dead. Kernels from 6.15 on also tell how the process ended, to others than its parent
too. Where there is no such descriptor, Ray's report is awaited.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pxrs_ray.processing.suspects import EXITED

_INFO = struct.Struct("Q8x44xi")
_INFO_EXIT = 1 << 3
# _IOWR(0xFF, 11, struct pidfd_info), in its first version.
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11

# No process has this number: its end is never told.
NO_PROCESS = -1


@asynccontextmanager
async def process_end(pid: int) -> AsyncIterator[asyncio.Future[int]]:
    """A future that is done when the process ends; never, where the kernel does not tell.

    Its result is how it ended: a signal, `EXITED` and an exit code, or 0 where that is not known.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        ended.set_result(0)
        yield ended
        return
    except (OSError, AttributeError):
        yield ended
        return

    def tell() -> None:
        loop.remove_reader(descriptor)
        if not ended.done():
            ended.set_result(_how(descriptor))

    loop.add_reader(descriptor, tell)
    try:
        yield ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _how(descriptor: int) -> int:
    import fcntl

    asked = bytearray(_INFO.size)
    _INFO.pack_into(asked, 0, _INFO_EXIT, 0)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, asked)
    except OSError:
        return 0
    told, status = _INFO.unpack(asked)
    if not told & _INFO_EXIT:
        return 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else EXITED + os.WEXITSTATUS(status)
