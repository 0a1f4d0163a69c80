"""`GroupHost`: runs one group's `GroupRuntime` on the coordinator's event loop.

Rules of this file. Nothing is decided here. Requests, answers of the store and time go to the
runtime, and what it leaves is carried out. Whatever is raised here is a fault of this group, as
what is raised in the runtime is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import Clock
from pxrs_ray.errors import StoreError
from pxrs_ray.group.counters import GroupCounters
from pxrs_ray.group.events import Dismiss, Event, FenceReaders, Heartbeat, Response
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.group_runtime import GroupRuntime
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.group.runtime_effects import (
    Changed,
    Deposed,
    Faulted,
    GroupAnswer,
    LeadAgain,
    Led,
    LoadAgain,
    Output,
    Refusal,
    RenewLeases,
    StoreCall,
    TrimHistory,
    WriteRecords,
)
from pxrs_ray.group.ticks import SWEEP_MS_MAX
from pxrs_ray.group.write_queue import WriteQueue
from pxrs_ray.model import Generation, Snapshot
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.supervision.supervisor import Supervisor, is_asked_for

logger = logging.getLogger(__name__)

TOLD_LOOK_S = 0.005


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


class GroupHost:
    """One group of one coordinator incarnation, on that actor's event loop."""

    def __init__(
        self,
        group: str,
        store: RegistryStore,
        thread: StoreThread,
        clock: Clock,
        controller: GroupOwner,
        history_keep: int,
    ) -> None:
        self.group = group
        self.runtime = GroupRuntime(group, thread.watch, history_keep)
        self._store = store
        self._thread = thread
        self._clock = clock
        self._controller = controller
        self._supervisor = Supervisor(f"group {group}")
        self._changes = asyncio.Event()
        self._carrying_out = False
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False

    # --- life -------------------------------------------------------------------------------------

    async def start(self, snapshot: Snapshot, settings: GroupSettings) -> None:
        """Go on from what `lead` returned."""
        self._thread.when_back(self._registry_answers)
        self.runtime.begin(snapshot, settings, self._clock.now())
        self._carry_out()

    async def close(self) -> None:
        """End what runs; what is not durable yet is decided anew by the next incarnation."""
        self._closed = True
        self._thread.not_when_back(self._registry_answers)
        if self._alarm is not None:
            self._alarm.cancel()
        await self._supervisor.close()

    def follow(self, history_keep: int, sweep_ms: int) -> None:
        """Keep so much history, and look at the clock at least so often."""
        self.runtime.writer.history_keep = history_keep
        self.runtime.ticks.sweep_ms_max = min(SWEEP_MS_MAX, sweep_ms)

    @property
    def core(self) -> GroupCoordinator:
        """Who decides."""
        return self.runtime.core

    @property
    def queue(self) -> WriteQueue:
        """What is decided and not durable."""
        return self.runtime.queue

    @property
    def tally(self) -> GroupCounters:
        """What has happened so far, in numbers."""
        return self.runtime.tally

    @property
    def halted(self) -> StoreError | None:
        """Why everything is refused; None while it is not."""
        return self.runtime.halted

    @property
    def problem(self) -> str:
        """What is wrong with the group; it tells of a fault for a while after it is over."""
        return self.runtime.problem(self._clock.now())

    def halt(self, error: StoreError) -> None:
        """Refuse everything from now on: the registry cannot be trusted."""
        self.runtime.halt(error)
        self._carry_out()

    def registry_away(self, notice_ms: int) -> bool:
        """Whether the registry is away, or this group's records wait for it, longer than that."""
        return self.runtime.registry_away(notice_ms, self._clock.now())

    # --- requests ---------------------------------------------------------------------------------

    async def submit(self, event: Event) -> Response:
        """See `GroupRuntime.submit`."""
        reply = await self._asked(partial(self.runtime.submit, event))
        assert reply is not None
        return reply

    async def heartbeat(self, heartbeat: Heartbeat, wait_s: float) -> Response:
        """See `GroupRuntime.heartbeat`."""
        wait_ms = int(wait_s * 1_000)
        reply = await self._asked(partial(self.runtime.heartbeat, heartbeat, wait_ms))
        assert reply is not None
        return reply

    async def settle(self) -> None:
        """Return when everything decided so far is durable, or forgotten after a fault."""
        await self._asked(self.runtime.settle)

    async def _asked(self, ask: Callable[..., None]) -> Response | None:
        caller: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        ask(caller, self._clock.now())
        self._carry_out()
        return await caller

    async def change(self) -> None:
        """Return after the next change of ownership or membership that is durable."""
        self._changes.clear()
        await self._changes.wait()

    async def until_moved(self, wait_s: float) -> None:
        """Return when no partition is being handed over, or after `wait_s`; all is durable then."""
        try:
            async with asyncio.timeout(wait_s):
                while self.core.state.revoking:
                    await self.change()
        except TimeoutError:
            pass
        await self.settle()

    async def told(self, timeout_s: float) -> bool:
        """Return when every live member has its newest assignment; False when that takes longer."""
        end_s = time.monotonic() + timeout_s
        while not self.runtime.is_told():
            if time.monotonic() > end_s:
                return False
            await asyncio.sleep(TOLD_LOOK_S)
        return True

    # --- what the runtime wants done --------------------------------------------------------------

    def _carry_out(self) -> None:
        """Do everything that the runtime left, in order, and set the alarm for what comes next."""
        if self._carrying_out:
            return  # whoever is at it comes to this too
        self._carrying_out = True
        outputs = self.runtime.outputs
        try:
            while outputs:
                output = outputs.pop(0)
                try:
                    self._do(output)
                except BaseException as error:  # noqa: BLE001 - a fault of this group alone
                    self.runtime.failed(error, self._clock.now())
        finally:
            self._carrying_out = False
        self._set_alarm()

    def _do(self, output: Output) -> None:
        match output:
            case GroupAnswer(asyncio.Future() as caller, reply):
                if not caller.done():
                    caller.set_result(reply)
            case Refusal(asyncio.Future() as caller, error):
                if not caller.done():
                    caller.set_exception(error)
            case FenceReaders(epochs):
                self._controller.fence(self.group, dict(epochs))
            case Dismiss():
                self._controller.dismissed(self.group, output)
            case Led(generation, version):
                self._controller.led(self.group, generation, version)
            case Changed():
                self._changes.set()
            case Deposed(error):
                self._controller.deposed(self.group, error)
            case Faulted(error):
                logger.error("group %s failed", self.group, exc_info=error)
            case WriteRecords() | LoadAgain() | LeadAgain() | RenewLeases() | TrimHistory():
                self._supervisor.once("a call of the registry", self._call(output))

    async def _call(self, call: StoreCall) -> None:
        """Make a call of the store, and bring its answer."""
        answer: Any
        try:
            answer = await self._made(call)
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            answer = error
        self.runtime.answered(call, answer, self._clock.now())
        self._carry_out()

    def _made(self, call: StoreCall) -> Coroutine[Any, Any, Any]:
        thread, store, group = self._thread, self._store, self.group
        match call:
            case WriteRecords(generation, batch):
                return thread.call(store.write, group, generation, batch.records)
            case LoadAgain():
                return thread.call(store.load, group)
            case LeadAgain():
                return self._controller.lead_again(group)
            case RenewLeases(generation, members, lease_ms):
                return thread.call(store.renew, group, generation, members, lease_ms)
            case TrimHistory(generation, keep):
                return thread.call(store.trim_changes, group, generation, keep)

    def _registry_answers(self) -> None:
        self.runtime.registry_answers(self._clock.now())
        self._set_alarm()

    # --- time -------------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        wake_ms = self.runtime.wake_ms()
        if self._closed or wake_ms is None:
            return
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(0, wake_ms - self._clock.now().monotonic_ms) / 1_000
        if self._alarm is not None:
            if self._alarm.when() <= at_s:
                return  # it looks again then
            self._alarm.cancel()
        self._alarm = loop.call_at(at_s, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self.runtime.wake(self._clock.now())
        self._carry_out()
