"""How urgent an actor's process is to the system that runs it.

Ray starts its workers with a niceness of 15. For a batch job that is modest; but a process that
answers others then waits for tens of milliseconds behind any thread of the same machine that
computes, at each step of a message's way.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import ray

ORDINARY = 0
_THREADS = Path("/proc/self/task")


def be_as_nice_as(niceness: int = ORDINARY) -> None:
    """Give this actor's process that niceness, where the system lets it (root, or CAP_SYS_NICE).

    Nothing happens in a process that Ray did not start as an actor.
    """
    if sys.platform == "linux" and _in_actor():
        set_niceness(niceness)


def _in_actor() -> bool:
    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def set_niceness(niceness: int) -> None:
    """Set it for every thread that there is: each has its own, and hands it to those it starts."""
    for thread in _threads():
        try:
            os.setpriority(os.PRIO_PROCESS, thread, niceness)
        except OSError:
            continue  # it may not, or the thread has just ended


def _threads() -> list[int]:
    try:
        return [int(entry.name) for entry in _THREADS.iterdir()]
    except OSError:
        return [threading.get_native_id()]
