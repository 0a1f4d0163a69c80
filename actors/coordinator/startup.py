"""`Startup`: begins something that callers wait for, and tries again until it has begun.

Rules of this file. `BeginTries` says when a try is made, after which pause the next, and when an
error goes out; a waiting caller gets what passes at its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.start_tries import BeginTries, ReadTries
from pxrs_ray.supervision.supervisor import is_asked_for, off_loop

T = TypeVar("T")
logger = logging.getLogger(__name__)

SHOWN_CHARS = 500

# What a start reads on its node is waited for so long; then it goes on without, and says so.
NOTES_WAIT_S = 5.0

StartWork = Callable[[], Coroutine[Any, Any, None]]


class Startup:
    """`begin` is tried until it returns; before each new try, `undo` takes back what it left."""

    def __init__(self, what: str, begin: StartWork, undo: StartWork) -> None:
        self._what = what
        self._begin = begin
        self._undo = undo
        self._tries = BeginTries()
        self._task: asyncio.Task[Exception | None] | None = None

    @property
    def done(self) -> bool:
        """Whether it has begun."""
        return self._tries.done

    async def wait(self, wait_s: float) -> None:
        """Return when it has begun. Raises what lasts, or DeadlineExceeded saying what passes."""
        if self.done:
            return
        if self._tries.asked():
            self._task = asyncio.get_running_loop().create_task(self._run())
        assert self._task is not None
        task = self._task
        await asyncio.wait({task}, timeout=wait_s)
        if self.done:
            return
        if task.done() and (error := task.result()) is not None:
            raise error
        trouble = self._tries.trouble
        why = told(trouble, SHOWN_CHARS) if trouble else "it takes its time"
        raise DeadlineExceeded(f"{self._what} is still starting, and is tried again: {why}")

    def close(self) -> None:
        """Try no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> Exception | None:
        tries = self._tries
        while True:
            try:
                if tries.begins():
                    await self._undo()
                await self._begin()
            except BaseException as error:
                if is_asked_for(error, asyncio.current_task()):
                    raise
                logger.warning("%s does not start: %s", self._what, told(error))
                pause_s = tries.failed(error)
                if pause_s is None:
                    return error if isinstance(error, Exception) else RuntimeError(told(error))
            else:
                tries.begun()
                return None
            await asyncio.sleep(pause_s)


async def patiently(read: Callable[[bool], T]) -> T:
    """What `read(True)` answers, tried again while its OSError may pass; at last `read(False)`.

    For notes on this node's disk: descriptors come free again, but a disk that is broken for good
    must not keep a topology down whose registry is elsewhere.
    """
    tries = ReadTries(time.monotonic() + NOTES_WAIT_S)
    while True:
        try:
            return await off_loop(read, True)
        except OSError as error:
            pause_s = tries.failed(error, time.monotonic())
        if pause_s is None:
            return await off_loop(read, False)
        await asyncio.sleep(pause_s)
