"""`GroupHost`: runs one group's `GroupCoordinator`. Records durable, then replies and effects.

Rules of this file. Each event is decided at once, in memory; its records go to a `WriteQueue`,
and one writer takes them to the store, in order. Whatever a decision says to anybody waits until
`WriteQueue.durable` has reached `decision.after`. A store that is down makes commits wait; the
writer repeats the same batch until its outcome is known. A store that contradicts us is read
again: a newer generation ends this process, a loss of accepted writes halts the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from pxrs_ray.actors.store_thread import StoreThread
from pxrs_ray.clock import Clock
from pxrs_ray.coordinator import GroupCoordinator
from pxrs_ray.errors import StoreCorrupted, StoreError, StoreUnavailable
from pxrs_ray.events import (
    Assignment,
    Decision,
    Dismiss,
    Effect,
    Event,
    FenceReaders,
    Heartbeat,
    Reply,
    Tick,
)
from pxrs_ray.group_state import GroupSettings
from pxrs_ray.journal import tell_changes
from pxrs_ray.model import Generation, MemberId, Outcome, Snapshot
from pxrs_ray.store.base import RegistryStore
from pxrs_ray.tally import Tally
from pxrs_ray.write_queue import WriteBatch, WriteQueue, check_stored

logger = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 1_024
TICK_MS_MAX = 1_000
TICK_MS_MIN = 5
TOLD_LOOK_S = 0.005
# The history is trimmed when it has grown by this part of what is to be kept.
TRIM_PART = 10


class Shell(Protocol):
    """What a group needs done by the actor that hosts it. Nothing here may block."""

    def fence(self, group: str, epochs: dict[int, int]) -> None:
        """Tell the buffers which epochs are over."""

    def dismissed(self, group: str, dismiss: Dismiss) -> None:
        """An incarnation is no member any more."""

    def deposed(self, group: str, error: BaseException) -> None:
        """A newer coordinator leads the group: this one must end."""

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
        shell: Shell,
        history_keep: int,
    ) -> None:
        self.group = group
        self.core: GroupCoordinator
        self.halted: StoreError | None = None
        self.tally = Tally()
        self._store = store
        self._thread = thread
        self._clock = clock
        self._shell = shell
        self._history_keep = history_keep
        self._trim_at = 0
        self._queue = WriteQueue()
        self._wake = asyncio.Event()
        self._changes = asyncio.Event()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._watchers: dict[MemberId, asyncio.Event] = {}
        self._seen: dict[MemberId, tuple[Generation, int]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, snapshot: Snapshot, settings: GroupSettings) -> None:
        """Go on from what `lead` returned."""
        now = self._clock.now()
        self.core = GroupCoordinator(snapshot, settings, now)
        self._tasks = [
            asyncio.create_task(self._guard(self._write_loop())),
            asyncio.create_task(self._guard(self._tick_loop())),
            asyncio.create_task(self._guard(self._renew_loop())),
        ]
        self._take(None, self.core.start(self._clock.now()))

    async def close(self) -> None:
        """End the loops; what is not durable yet is decided anew by the next incarnation."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guard(self, loop: Coroutine[Any, Any, None]) -> None:
        """A fault in here is our own: better a coordinator that recovers than a deaf one."""
        try:
            await loop
        except Exception as error:
            logger.exception("group %s failed", self.group)
            self._shell.deposed(self.group, error)

    # --- events ---------------------------------------------------------------------------------

    async def submit(self, event: Event) -> Reply:
        """Decide `event`, and answer when what the answer rests on is durable."""
        if self.halted is not None:
            raise self.halted
        decision = self.core.handle(event, self._clock.now())
        self._take(event, decision)
        await self.durable(decision.after)
        assert decision.reply is not None
        return decision.reply

    async def durable(self, after: int) -> None:
        """Return when that many records are durable."""
        if self._queue.durable >= after:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish() -> None:
            if done.done():
                return
            if self.halted is None:
                done.set_result(None)
            else:
                done.set_exception(self.halted)

        self._waiting.append((after, finish))
        await done

    async def settle(self) -> None:
        """Return when everything decided so far is durable."""
        await self.durable(self.core.records_emitted)

    async def change(self) -> None:
        """Return after the next change of ownership or membership that is durable."""
        self._changes.clear()
        await self._changes.wait()

    async def told(self, timeout_s: float) -> bool:
        """Return when every live member has its newest assignment; False when that takes longer."""
        end_s = asyncio.get_running_loop().time() + timeout_s
        generation = self.core.state.generation
        while any(
            self._seen.get(slot.member.member, (0, 0)) < (generation, slot.sequence)
            for slot in self.core.live_slots()
        ):
            if asyncio.get_running_loop().time() > end_s:
                return False
            await asyncio.sleep(TOLD_LOOK_S)
        return True

    async def watch(self, heartbeat: Heartbeat, wait_ms: int) -> Assignment | None:
        """The member's assignment when it is newer than what it has seen, waiting for one."""
        member = heartbeat.member
        self._seen[member] = heartbeat.seen
        newest = (await self.submit(heartbeat)).assignment
        if newest is not None:
            return newest
        event = self._watchers.setdefault(member, asyncio.Event())
        event.clear()
        try:
            await asyncio.wait_for(event.wait(), wait_ms / 1_000)
        except TimeoutError:
            return None
        return (await self.submit(heartbeat)).assignment

    def _take(self, event: Event | None, decision: Decision) -> None:
        self.tally.note(event, decision)
        self.tally.note_hand_overs(decision, self._clock.now().monotonic_ms)
        if decision.records:
            self._queue.push(decision.records)
            self._wake.set()
            tell_changes(self.group, decision.records)
        if decision.effects:
            effects = decision.effects
            self._after(decision.after, lambda: self._carry_out(effects))

    def _after(self, after: int, do: Callable[[], None]) -> None:
        if self._queue.durable >= after:
            do()
        else:
            self._waiting.append((after, do))

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        if self.halted is not None:
            return
        self._changes.set()
        for effect in effects:
            match effect:
                case FenceReaders():
                    self._shell.fence(self.group, dict(effect.epochs))
                case Dismiss():
                    self._seen.pop(effect.member, None)
                    self._wake_watcher(effect.member)
                    self._shell.dismissed(self.group, effect)
                case Assignment():
                    self._wake_watcher(effect.member)

    def _wake_watcher(self, member: MemberId) -> None:
        watcher = self._watchers.pop(member, None)
        if watcher is not None:
            watcher.set()

    # --- the store ------------------------------------------------------------------------------

    async def _write_loop(self) -> None:
        while self.halted is None:
            await self._wake.wait()
            self._wake.clear()
            while (batch := self._queue.take(BATCH_RECORDS_MAX)) is not None:
                try:
                    await self._write(batch)
                except StoreError as error:
                    self._halt(error)
                    return
                self._queue.done()
                self._release()
            await self._trim()

    async def _write(self, batch: WriteBatch) -> None:
        generation = self.core.state.generation
        outcomes = await self._thread.call_until_known(
            self._store.write, self.group, generation, batch.records
        )
        if any(outcome is not Outcome.APPLIED for outcome in outcomes):
            await self._judge(batch)
        versions = [record.version for record in batch.records if record.version]
        if versions:
            self._shell.led(self.group, generation, max(versions))

    async def _judge(self, batch: WriteBatch) -> None:
        """Find out what a refusal means; return when `batch` is stored all the same.

        Raises CoordinatorDeposed, which ends this process (see `_guard`), or StoreCorrupted.
        """
        snapshot = await self._thread.call_until_known(self._store.load, self.group)
        check_stored(batch, snapshot, self.core.state.generation)

    async def _trim(self) -> None:
        """Forget old history, now and then; what is not forgotten now is forgotten later."""
        version = self.core.state.version
        if version < self._trim_at:
            return
        if self._trim_at:
            try:
                await self._thread.call(
                    self._store.trim_changes,
                    self.group,
                    self.core.state.generation,
                    self._history_keep,
                )
            except StoreUnavailable as error:
                logger.info("the history of %s is trimmed later: %s", self.group, error)
        self._trim_at = version + max(1, self._history_keep // TRIM_PART)

    def _release(self) -> None:
        """Let go of everything that waited for what is durable now, in order."""
        while self._waiting and self._waiting[0][0] <= self._queue.durable:
            self._waiting.popleft()[1]()

    def _halt(self, error: StoreError) -> None:
        """Refuse everything from now on: the registry cannot be trusted."""
        logger.error("group %s is halted: %s", self.group, error)
        self.halted = error
        while self._waiting:
            self._waiting.popleft()[1]()

    # --- time -----------------------------------------------------------------------------------

    async def _tick_loop(self) -> None:
        while self.halted is None:
            lease_ms = self.core.settings.lease_ms
            await asyncio.sleep(self._until_tick_ms(lease_ms) / 1_000)
            self._take(Tick(), self.core.handle(Tick(), self._clock.now()))

    def _until_tick_ms(self, lease_ms: int) -> float:
        """At the next deadline, yet often enough to notice that this process stood still."""
        pause_ms = min(TICK_MS_MAX, lease_ms // 10)
        due_ms = self.core.next_wake_ms()
        if due_ms is None:
            return pause_ms
        return max(TICK_MS_MIN, min(pause_ms, due_ms - self._clock.now().monotonic_ms))

    async def _renew_loop(self) -> None:
        while self.halted is None:
            lease_ms = self.core.settings.lease_ms
            await asyncio.sleep(lease_ms / 3_000)
            await self._renew(lease_ms)

    async def _renew(self, lease_ms: int) -> None:
        """Keep the store's leases of live members; for tools that look there while we are gone.

        An idle coordinator writes nothing else, so here it learns that another one leads.
        """
        members = [(s.member.member, s.member.incarnation) for s in self.core.live_slots()]
        if not members:
            return
        try:
            outcomes = await self._thread.call(
                self._store.renew, self.group, self.core.state.generation, members, lease_ms
            )
            if Outcome.FENCED in outcomes:
                await self._judge(WriteBatch((), 0))
        except StoreCorrupted as error:
            self._halt(error)
        except StoreError as error:
            logger.warning("leases of %s are not renewed: %s", self.group, error)
