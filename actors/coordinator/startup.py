"""`Startup`: begins something that callers wait for, and tries again until it has begun.

Rules of this file. Passing trouble (a buffer that is slow to open its logs, a full disk) is tried
again by itself for as long as it lasts; a waiting caller gets the error at its deadline. A lasting
error is raised at once, and the next caller makes it be tried anew: no error is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pxrs_ray.backoff import Backoff
from pxrs_ray.errors import DeadlineExceeded, NotFound, StoreUnavailable
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import is_asked_for, off_loop

T = TypeVar("T")
logger = logging.getLogger(__name__)

PAUSE_FIRST_MS = 100
PAUSE_MOST_MS = 5_000
SHOWN_CHARS = 500

# What a start reads on its node is waited for so long; then it goes on without, and says so.
NOTES_WAIT_S = 5.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Startup:
    """`begin` is tried until it returns; before each new try, `undo` takes back what it left."""

    def __init__(self, what: str, begin: Work, undo: Work) -> None:
        self.done = False
        self._what = what
        self._begin = begin
        self._undo = undo
        self._tried = False
        self._trouble: BaseException | None = None
        self._task: asyncio.Task[Exception | None] | None = None

    async def wait(self, wait_s: float) -> None:
        """Return when it has begun. Raises what lasts, or DeadlineExceeded saying what passes."""
        if self.done:
            return
        # One that is being deleted (NotFound) is not begun again: what it left is needed to finish.
        over = self._task is not None and self._task.done()
        if self._task is None or (over and not isinstance(self._task.result(), NotFound)):
            self._task = asyncio.get_running_loop().create_task(self._run())
        task = self._task
        await asyncio.wait({task}, timeout=wait_s)
        if self.done:
            return
        if task.done() and (error := task.result()) is not None:
            raise error
        why = told(self._trouble, SHOWN_CHARS) if self._trouble else "it takes its time"
        raise DeadlineExceeded(f"{self._what} is starting, and tried again until it has: {why}")

    def close(self) -> None:
        """Try no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> Exception | None:
        backoff = Backoff(PAUSE_FIRST_MS / 1_000, PAUSE_MOST_MS / 1_000)
        while True:
            try:
                if self._tried:
                    await self._undo()
                self._tried = True
                await self._begin()
            except BaseException as error:
                if is_asked_for(error, asyncio.current_task()):
                    raise
                self._trouble = error
                logger.warning("%s does not start: %s", self._what, told(error))
                # The error of a registry that is away goes out at once: who asks has more to do.
                if isinstance(error, StoreUnavailable) or not passes(error):
                    return error if isinstance(error, Exception) else RuntimeError(told(error))
            else:
                self.done, self._trouble = True, None
                return None
            await asyncio.sleep(backoff.failed())


async def patiently(read: Callable[[bool], T]) -> T:
    """What `read(True)` answers, tried again while its OSError may pass; at last `read(False)`.

    For notes on this node's disk: descriptors come free again, but a disk that is broken for good
    must not keep a topology down whose registry is elsewhere.
    """
    backoff = Backoff(PAUSE_FIRST_MS / 1_000, PAUSE_MOST_MS / 1_000)
    end_s = time.monotonic() + NOTES_WAIT_S
    while True:
        try:
            return await off_loop(read, True)
        except OSError as error:
            if not passes(error) or time.monotonic() >= end_s:
                return await off_loop(read, False)
        await asyncio.sleep(backoff.failed())
