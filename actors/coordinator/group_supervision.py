"""`GroupSupervision`: keeps the loops of one group going, and reloads the group when any of them
fails.

Rules of this file. Whatever ends a loop (SystemExit, RecursionError and MemoryError included) is a
fault of this group and of no other. After a fault memory is not trusted: callers wait, nothing is
decided or written, and the group is loaded again, at once at first, later with longer pauses. The
group's owner says which errors a reload cannot cure.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.group.events import Dismiss
from pxrs_ray.model import Generation, Snapshot
from pxrs_ray.supervision.restart_rules import RestartRules
from pxrs_ray.supervision.supervisor import Supervisor, within

logger = logging.getLogger(__name__)

RELOAD_PAUSE_S = 0.05
RELOAD_PAUSE_MOST_S = 10.0
# Who asks a group that has failed waits for so long, and is told to ask again.
WELL_WAIT_S = 20.0
# A group that has failed says so for so long after it is well again.
SHOWN_S = 60.0

Loop = Callable[[], Coroutine[Any, Any, None]]


class GroupOwner(Protocol):
    """What a group needs of the actor that hosts it. Nothing here may block."""

    def fence(self, group: str, epochs: dict[int, int]) -> None:
        """Tell the buffers which epochs are over."""

    def dismissed(self, group: str, dismiss: Dismiss) -> None:
        """An incarnation is no member any more."""

    def deposed(self, group: str, error: BaseException) -> None:
        """A newer coordinator leads the group: this one must end."""

    async def lead_again(self, group: str) -> Snapshot:
        """Take the group's next generation. Raises CoordinatorDeposed when another one leads."""

    def led(self, group: str, generation: Generation, version: int) -> None:
        """These are durable now."""


class GroupSupervision:
    """See the rules at the head of this file.

    `interrupt` is called when the group has failed, and releases everybody who waits for it; `load`
    loads it anew. `is_over` handles an error that no reload cures, and says whether it was one.
    """

    def __init__(
        self,
        group: str,
        loops: Sequence[Loop],
        interrupt: Callable[[], None],
        load: Loop,
        is_over: Callable[[BaseException], bool],
    ) -> None:
        self.fault: BaseException | None = None
        self._group = group
        self._loops = loops
        self._interrupt = interrupt
        self._load = load
        self._is_over = is_over
        self._failed = asyncio.Event()
        self._well = asyncio.Event()
        self._faults = 0
        self._failed_s = 0.0
        self._told = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin: what `load` does has been done once."""
        self._well.set()
        rules = RestartRules(RELOAD_PAUSE_S, RELOAD_PAUSE_MOST_S)
        self._task = Supervisor(f"group {self._group}", rules).keep("its life", self._live)

    async def close(self) -> None:
        """End the loops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_well(self) -> bool:
        """Whether the group decides and writes."""
        return self._well.is_set()

    @property
    def problem(self) -> str:
        """What the last fault was, from when it came until a while after it is over."""
        if self.fault is not None or time.monotonic() - self._failed_s < SHOWN_S:
            return self._told
        return ""

    def fail(self, error: BaseException) -> None:
        """From here on nothing is decided or written until the group is loaded again."""
        if self.fault is None:
            self.fault = error
            self._well.clear()
            self._failed.set()

    async def until_well(self, end_s: float) -> None:
        """Wait until the group is well or over. Raises DeadlineExceeded at `end_s`."""
        try:
            await within(max(0.0, end_s - time.monotonic()), self._well.wait())
        except TimeoutError:
            raise DeadlineExceeded(
                f"group {self._group} {self._told or 'has failed'}: ask again"
            ) from None

    # --- the task -------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            await self._run_until_fault()
            if self.fault is None or self._give_up(self.fault):
                return
            self._note_fault(self.fault)
            while (error := await self._load_again()) is not None:
                if self._give_up(error):
                    return
                self._note_fault(error)

    def _give_up(self, error: BaseException) -> bool:
        if not self._is_over(error):
            return False
        # Whoever waits for the group to be well asks again, and is told that it will not be.
        self._well.set()
        return True

    def _note_fault(self, error: BaseException) -> None:
        logger.error("group %s failed", self._group, exc_info=error)
        now_s = time.monotonic()
        self._faults = self._faults + 1 if now_s - self._failed_s < SHOWN_S else 1
        self._failed_s = now_s
        times = f", {self._faults} times in a row" if self._faults > 1 else ""
        self._told = f"failed ({shown(error)}) and is loaded again from the registry{times}"
        self._interrupt()

    async def _run_until_fault(self) -> None:
        tasks = [asyncio.create_task(self._watched(loop)) for loop in self._loops]
        try:
            await self._failed.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watched(self, loop: Loop) -> None:
        self.fail(await caught(loop) or RuntimeError("a loop that has no end has ended"))

    async def _load_again(self) -> BaseException | None:
        doubling = min(self._faults - 1, 16)
        await asyncio.sleep(min(RELOAD_PAUSE_S * 2**doubling, RELOAD_PAUSE_MOST_S))
        self.fault = None
        self._failed.clear()
        error = await caught(self._load) or self.fault
        if error is not None:
            self.fault = error
            return error
        logger.warning("group %s is loaded again", self._group)
        self._well.set()
        return None


async def caught(work: Loop) -> BaseException | None:
    """What `work` raised; only being cancelled by whoever runs it goes on its way."""
    try:
        await work()
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        return error
    return None


def shown(error: BaseException) -> str:
    """An error in a few words, for a status."""
    try:
        lines = str(error).splitlines() or [""]
    except BaseException:  # noqa: BLE001 - an error of anybody's may have no words
        lines = [""]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines[0] else type(error).__name__
