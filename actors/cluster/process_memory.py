"""Settings of malloc and the garbage collector for our own actor processes. Never called in a
user's process."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_KEEP_BYTES = 256 << 20
_MMAP_BYTES = 32 << 20


def keep_freed_memory() -> None:
    """Let malloc reuse freed batches instead of giving them back to the system.

    A fresh page costs a fault, which is ten times the copy of the bytes that go into it. Where
    the C library has no `mallopt`, nothing changes but the speed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        # The arenas of threads give memory back whatever the threshold is; the main one does not.
        mallopt(_M_ARENA_MAX, 1)


def keep_what_is_loaded() -> None:
    """Let the garbage collector pass over everything that is there now: modules, mostly.

    Looking through all of it takes a tenth of a second, in which nobody is answered.
    """
    gc.freeze()


def settle() -> None:
    """Both of these, for a process that holds messages."""
    keep_freed_memory()
    keep_what_is_loaded()


def resident_bytes() -> int:
    """What this process holds in memory now, shared memory left out."""
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
