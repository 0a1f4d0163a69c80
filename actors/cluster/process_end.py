"""`process_end`: a future that is done as soon as a process of this machine has ended.

Ray tells of a killed process after 10 to 20 ms; a process file descriptor (Linux) is readable as
soon as it is dead. How it ended stands in two places: until its parent has taken note of it in
`/proc`, and from then on (in kernels from 6.15 on) behind the descriptor, for others than its
parent too. Where there is no descriptor, Ray is waited for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pxrs_ray.processing.suspects import EXITED

_INFO = struct.Struct("Q8x44xi")
_INFO_EXIT = 1 << 3
# _IOWR(0xFF, 11, struct pidfd_info), in its first version.
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11

KERNEL_TELLS = hasattr(os, "pidfd_open")

# While its parent takes note of it, a moment long, neither place says how a process ended.
LOOK_AGAIN_S = 0.003
LOOKS_AGAIN = 5

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

    looking: list[asyncio.TimerHandle] = []

    def tell(again: int = LOOKS_AGAIN) -> None:
        loop.remove_reader(descriptor)
        status = how_it_ended(pid, descriptor)
        if not status and again:
            looking[:] = [loop.call_later(LOOK_AGAIN_S, tell, again - 1)]
        elif not ended.done():
            ended.set_result(status)

    loop.add_reader(descriptor, tell)
    try:
        yield ended
    finally:
        loop.remove_reader(descriptor)
        for timer in looking:
            timer.cancel()
        os.close(descriptor)


def how_it_ended(pid: int, descriptor: int) -> int:
    """How a dead process ended, as `process_end` tells it, whether it is a zombie or is gone."""
    status = _noted_in_proc(pid, descriptor)
    if status is None:
        # Looked at last: once its parent has taken note, this holds for ever.
        status = _noted_by_kernel(descriptor)
    if status is None:
        return 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else EXITED + os.WEXITSTATUS(status)


def _noted_in_proc(pid: int, descriptor: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # It fails when the process is gone, and then what was read may be of another.
        signal.pidfd_send_signal(descriptor, 0)
    except OSError:
        return None
    return int(fields[-1]) if fields and fields[0] == "Z" else None


def _noted_by_kernel(descriptor: int) -> int | None:
    import fcntl

    asked = bytearray(_INFO.size)
    _INFO.pack_into(asked, 0, _INFO_EXIT, 0)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, asked)
    except OSError:
        return None
    told, status = _INFO.unpack(asked)
    return status if told & _INFO_EXIT else None
