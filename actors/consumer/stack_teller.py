"""Tells where the threads of a consumer are, also while its handler hangs.

Rules of this file. A handler that hangs on a thread leaves the event loop free: that one answers.
One that holds the interpreter itself, in C, leaves nothing free: then a signal has the
interpreter's own fault handler write every stack into a file in memory, which another process of
the node reads. The signal comes only from there, and only to a process that is seen to await it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.status.answers import CallUnderWay
from pxrs_ray.status.stacks import COROUTINES_MAX, ThreadStack, stack_of_coroutine, stacks_of

logger = logging.getLogger(__name__)

FILE = "pxrs-stacks"
STACKS_BYTES_MAX = 200_000
WRITES_S = 1.0
LOOK_S = 0.02
_file: int | None = None


def _signal_number() -> int:
    return signal.SIGRTMAX - 3


def answer_signals() -> None:
    """Have the signal write all stacks, from now on; called again, it does nothing."""
    global _file
    if _file is not None or sys.platform != "linux":
        return
    try:
        _file = os.memfd_create(FILE)
        fcntl.fcntl(_file, fcntl.F_SETFL, fcntl.fcntl(_file, fcntl.F_GETFL) | os.O_APPEND)
        faulthandler.register(_signal_number(), file=_file, all_threads=True)
    except (OSError, RuntimeError) as error:
        logger.warning("stacks are told only while the interpreter runs: %s", error)


class StackTeller:
    """The part of a consumer that tells its stacks."""

    _handler: Handler
    in_hand: CallRecord

    async def stacks(self) -> tuple[tuple[CallUnderWay, ...], tuple[ThreadStack, ...]]:
        """The calls that are under way, and where each thread is, and each coroutine."""
        names = {each.ident: each.name for each in threading.enumerate() if each.ident is not None}
        threads = stacks_of(sys._current_frames(), names)
        loop = self._handler.loop
        # A set of weak references that another thread changes: one look may fail, and says nothing.
        with suppress(RuntimeError):
            waiting = asyncio.all_tasks(loop) if loop is not None else set()
            threads += [
                stack_of_coroutine(f"coroutine {task.get_name()}", task.get_coro())
                for task in list(waiting)[:COROUTINES_MAX]
            ]
        return tuple(self.in_hand.look()), tuple(threads)


def stacks_from_outside(pid: int, kind: str) -> tuple[str, str]:
    """On its node: the state of a process that does not answer, in words, and its stacks as text.

    One that is stopped, gone, or not ours has no stacks.
    """
    place = Path(f"/proc/{pid}")
    try:
        if not (place / "cmdline").read_bytes().startswith(f"ray::{kind}".encode()):
            return "its process is gone", ""
        state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        if state in ("T", "t"):
            return (
                f"its process is frozen: it was stopped (SIGSTOP); `kill -CONT {pid}` there lets "
                "it go on",
                "",
            )
        told = "its process is busy where Python cannot run, or too short of time to answer"
        return told, _written(place, pid)
    except (FileNotFoundError, ProcessLookupError):
        return "its process is gone", ""
    except OSError as error:
        return f"its process cannot be looked into: {error}", ""


def _written(place: Path, pid: int) -> str:
    caught = next(
        int(line.split()[1], 16)
        for line in (place / "status").read_text().splitlines()
        if line.startswith("SigCgt:")
    )
    files = [each for each in (place / "fd").iterdir() if FILE in str(each.readlink())]
    if not caught >> (_signal_number() - 1) & 1 or not files:
        return ""  # to it the signal would be the end
    with files[0].open("rb") as written:
        written.seek(0, os.SEEK_END)
        before = written.tell()
        os.kill(pid, _signal_number())
        end_s, found = time.monotonic() + WRITES_S, b""
        while time.monotonic() < end_s:
            time.sleep(LOOK_S)
            written.seek(before)
            more = written.read(STACKS_BYTES_MAX)
            if more and more == found:
                break
            found = more
    return found.decode(errors="replace")
