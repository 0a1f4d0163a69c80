"""`GroupRuntime`: runs one group's `GroupCoordinator`. Records become durable, then replies and
effects leave.

Rules of this file. Each event is decided at once, in memory; its records go to a `WriteQueue`, and
one writer takes them to the store, in order. A decision's reply and effects wait until
`WriteQueue.durable` has reached `decision.after`. A store that is down makes commits wait; the
writer repeats the same batch until its outcome is known. A store that contradicts us is read again:
a newer generation ends this process, a loss of accepted writes halts the group.

Any other failure fails this group alone: it goes on from what the store holds, under a new
generation. Callers wait meanwhile, and their requests are decided anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pxrs_ray.actors.coordinator.deferred_events import DeferredEvents
from pxrs_ray.actors.coordinator.group_supervision import (
    WELL_WAIT_S,
    GroupOwner,
    GroupSupervision,
    shown,
)
from pxrs_ray.actors.coordinator.heartbeat_waits import HeartbeatWaits
from pxrs_ray.actors.coordinator.store_leases import renew_leases
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import Clock
from pxrs_ray.errors import (
    CoordinatorDeposed,
    DeadlineExceeded,
    Fenced,
    NotFound,
    StoreCorrupted,
    StoreError,
    StoreSchemaError,
    StoreUnavailable,
    UsageError,
)
from pxrs_ray.group.counters import GroupCounters
from pxrs_ray.group.decision import refusal_after
from pxrs_ray.group.events import (
    AssignmentChanged,
    Decision,
    Dismiss,
    Effect,
    Event,
    FenceReaders,
    Heartbeat,
    Reply,
    Tick,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.group.write_queue import WriteBatch, WriteQueue, check_stored
from pxrs_ray.json_logging import tell_changes
from pxrs_ray.model import Outcome, Snapshot
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.supervision.registry_watch import notice_ms

logger = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 1_024
SWEEP_MS_MAX = 1_000
TICK_MS_MIN = 5
# The history is trimmed when it has grown by this part of what is to be kept.
TRIM_PART = 10
# A refusal changes nothing. Any other error of a decision leaves memory in doubt.
REFUSALS = (Fenced, NotFound, UsageError)
# What is read from the store again says the same.
LASTING = (StoreCorrupted, StoreSchemaError)


class _Interrupted(Exception):
    """A wait was ended by a fault: the request is to be decided anew."""


class GroupRuntime:
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
        self.core: GroupCoordinator
        self.halted: StoreError | None = None
        self.tally = GroupCounters()
        self._store = store
        self._thread = thread
        self._clock = clock
        self._controller = controller
        self.history_keep = history_keep
        self.sweep_ms_max = SWEEP_MS_MAX
        self._trim_at = 0
        self.queue = WriteQueue()
        self._wake = asyncio.Event()
        self._changes = asyncio.Event()
        self._afterwards = DeferredEvents()
        self._writing_since_ms: int | None = None
        self._waits = HeartbeatWaits()
        self._life = GroupSupervision(
            group,
            (self._write_loop, self._tick_loop, self._renew_loop),
            lambda: self._afterwards.let_go(_Interrupted()),
            self._load,
            self._is_over,
        )

    # --- life -----------------------------------------------------------------------------------

    async def start(self, snapshot: Snapshot, settings: GroupSettings) -> None:
        """Go on from what `lead` returned."""
        self._begin(snapshot, settings)
        self._life.start()

    def _begin(self, snapshot: Snapshot, settings: GroupSettings) -> None:
        now = self._clock.now()
        self.core = GroupCoordinator(snapshot, settings, now)
        self.queue = WriteQueue()
        self._trim_at = 0
        self._writing_since_ms = None
        self._take(None, self.core.start(now))

    async def _load(self) -> None:
        """Go on from what the store holds, as after a restart: it has news for everybody."""
        snapshot = await self._controller.lead_again(self.group)
        self._begin(snapshot, self.core.settings)
        self._controller.led(self.group, snapshot.generation, snapshot.last_version)
        epochs = {row.partition: row.epoch for row in self.core.state.rows if row.epoch}
        self._controller.fence(self.group, epochs)
        self._changes.set()
        self._waits.all_changed()

    def _is_over(self, error: BaseException) -> bool:
        if isinstance(error, CoordinatorDeposed):
            self._controller.deposed(self.group, error)
            return True
        if isinstance(error, LASTING) and self.halted is None:
            self.halt(error)
        return self.halted is not None

    async def close(self) -> None:
        """End the loops; what is not durable yet is decided anew by the next incarnation."""
        await self._life.close()

    @property
    def problem(self) -> str:
        """What is wrong with the group; it tells of a fault for a while after it is over."""
        return str(self.halted) if self.halted is not None else self._life.problem

    # --- events ---------------------------------------------------------------------------------

    async def submit(self, event: Event) -> Reply:
        """Decide `event`, and answer when what the answer rests on is durable.

        Raises what the decision refuses (that rests on what was decided before, and waits as an
        answer does); StoreCorrupted when the group is halted; DeadlineExceeded, which says to ask
        again, when it has failed and is not well in time.
        """
        return await self._retried(lambda: self._answer(event))

    async def heartbeat(self, heartbeat: Heartbeat, wait_s: float) -> Reply:
        """Renew a member's lease; answer when it has an assignment that it has not seen.

        After `wait_s` it is answered without one, also where the newest is not durable: that it
        was heard rests on no record. The lease counts from the beginning of this call. Raises as
        `submit` does, and DeadlineExceeded when a refusal is not durable in time.
        """
        end_s = time.monotonic() + wait_s
        return await self._retried(lambda: self._news(heartbeat, end_s))

    async def _retried(self, answer: Callable[[], Awaitable[Reply]]) -> Reply:
        end_s = 0.0
        while True:
            if not self._life.is_well:
                end_s = end_s or time.monotonic() + WELL_WAIT_S
                await self._life.until_well(end_s)
            if self.halted is not None:
                raise self.halted
            try:
                return await answer()
            except _Interrupted:
                continue

    async def _answer(self, event: Event) -> Reply:
        decision = await self._decide(event, lambda: self.core.handle(event, self._clock.now()))
        await self.durable(decision.after)
        assert decision.reply is not None
        return decision.reply

    async def _news(self, heartbeat: Heartbeat, end_s: float) -> Reply:
        look = partial(self.core.handle, heartbeat, self._clock.now())
        while True:
            decision = await self._decide(heartbeat, look, end_s)
            self._waits.note_seen(heartbeat.member, heartbeat.seen)
            reply, left_s = decision.reply, max(0.0, end_s - time.monotonic())
            assert reply is not None
            try:
                if reply.assignment is not None:
                    await self._durable(decision.after, left_s)
                    return reply
                await self._waits.change(heartbeat.member, left_s)
            except (TimeoutError, StoreUnavailable):
                return replace(reply, assignment=None)
            if not self._life.is_well:
                raise _Interrupted
            # To have waited is no sign of life: from here on the lease is not renewed.
            look = partial(self.core.news, heartbeat, reply.lease_ms)

    async def _decide(
        self, event: Event, decide: Callable[[], Decision], end_s: float | None = None
    ) -> Decision:
        try:
            decision = decide()
        except Fenced as refused:
            wait_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            try:
                await self._durable(refusal_after(refused, self.core.records_emitted), wait_s)
            except StoreUnavailable as error:
                # Not as one who is heard, and whose lease begins anew.
                raise DeadlineExceeded(f"{refused}; that waits: {error}") from None
            raise
        except REFUSALS:
            raise
        except BaseException as error:
            self._life.fail(error)
            what = f"group {self.group} cannot decide on {type(event).__name__}"
            raise UsageError(f"{what}: {shown(error)}") from error
        try:
            self._take(event, decision)
        except BaseException as error:
            self._life.fail(error)
            raise _Interrupted from error
        return decision

    async def durable(self, after: int) -> None:
        """Return when that many records are durable."""
        await self._durable(after, None)

    async def _durable(self, after: int, wait_s: float | None) -> None:
        if self.queue.durable >= after:
            return
        if self.halted is not None:
            raise self.halted
        await asyncio.wait((mark := self._afterwards.mark(after),), timeout=wait_s)
        if not mark.done():
            raise StoreUnavailable(
                f"what is new in {self.group} waits for the registry: {self._thread.problem}"
            )
        mark.result()

    async def settle(self) -> None:
        """Return when everything decided so far is durable, or forgotten after a fault."""
        with suppress(_Interrupted):
            await self.durable(self.core.records_emitted)

    async def change(self) -> None:
        """Return after the next change of ownership or membership that is durable."""
        self._changes.clear()
        await self._changes.wait()

    async def until_moved(self, wait_s: float) -> None:
        """Return when no partition is being handed over, or after `wait_s`; all is durable then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.core.state.revoking:
                    await self.change()
        await self.settle()

    async def told(self, timeout_s: float) -> bool:
        """Return when every live member has its newest assignment; False when that takes longer."""
        return await self._waits.told(lambda: self.core, timeout_s)

    def _take(self, event: Event | None, decision: Decision) -> None:
        if decision.records:
            self.queue.push(decision.records)
            self._wake.set()
            tell_changes(self.group, decision.records)
        self.tally.note(event, decision)
        now_ms = self._clock.now().monotonic_ms
        self.tally.note_hand_overs(self.core.state.revoking, decision, now_ms)
        if decision.effects:
            effects = decision.effects
            # Also a decision without records may rest on earlier ones that are not durable yet.
            if self.queue.durable >= decision.after:
                self._carry_out(effects)
            else:
                self._afterwards.add(decision.after, lambda: self._carry_out(effects))

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        self._changes.set()
        for effect in effects:
            match effect:
                case FenceReaders():
                    self._controller.fence(self.group, dict(effect.epochs))
                case Dismiss():
                    self._waits.ended(effect.member)
                    self._controller.dismissed(self.group, effect)
                case AssignmentChanged():
                    self._waits.changed(effect.member)

    # --- the store ------------------------------------------------------------------------------

    async def _write_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (batch := self.queue.take(BATCH_RECORDS_MAX)) is not None:
                self._writing_since_ms = self._clock.now().monotonic_ms
                await self._write(batch)
                self._writing_since_ms = None
                self.queue.done()
                self._afterwards.release(self.queue.durable)
            await self._trim()

    async def _write(self, batch: WriteBatch) -> None:
        generation = self.core.state.generation
        outcomes = await self._thread.call_until_known(
            self._store.write, self.group, generation, batch.records
        )
        if any(outcome is not Outcome.APPLIED for outcome in outcomes):
            await self._judge(batch)
        if versions := [record.version for record in batch.records if record.version]:
            self._controller.led(self.group, generation, max(versions))

    async def _judge(self, batch: WriteBatch) -> None:
        """Find out what a refusal means; return when `batch` is stored all the same.

        Raises CoordinatorDeposed, which ends this process (see `_live`), or StoreCorrupted.
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
                generation = self.core.state.generation
                trim = self._store.trim_changes
                await self._thread.call(trim, self.group, generation, self.history_keep)
            except StoreUnavailable as error:
                logger.info("the history of %s is trimmed later: %s", self.group, error)
        self._trim_at = version + max(1, self.history_keep // TRIM_PART)

    def halt(self, error: StoreError) -> None:
        """Refuse everything from now on: the registry cannot be trusted."""
        logger.error("group %s is halted: %s", self.group, error)
        self.halted = error
        self._afterwards.let_go(error)
        self._life.fail(error)

    # --- time -----------------------------------------------------------------------------------

    async def _tick_loop(self) -> None:
        while True:
            lease_ms = self.core.settings.lease_ms
            await asyncio.sleep(self._until_tick_ms(lease_ms) / 1_000)
            if self._life.is_well:
                tick = Tick(registry_away=self.registry_away(notice_ms(lease_ms)))
                self._take(tick, self.core.handle(tick, self._clock.now()))

    def registry_away(self, notice_ms: int) -> bool:
        """Whether the registry is away, or this group's records wait for it, longer than that."""
        since_ms = self._writing_since_ms
        waits = since_ms and self._clock.now().monotonic_ms - since_ms >= notice_ms
        return bool(waits) or self._thread.away_ms(notice_ms) is not None

    def _until_tick_ms(self, lease_ms: int) -> float:
        """At the next deadline, yet often enough to notice that this process stood still."""
        pause_ms = min(self.sweep_ms_max, lease_ms // 10)
        due_ms = self.core.next_wake_ms()
        left_ms = pause_ms if due_ms is None else due_ms - self._clock.now().monotonic_ms
        return max(TICK_MS_MIN, min(pause_ms, left_ms))

    async def _renew_loop(self) -> None:
        """An idle coordinator writes nothing else, so here it learns that another one leads."""
        while True:
            lease_ms = self.core.settings.lease_ms
            await asyncio.sleep(lease_ms / 3_000)
            if await renew_leases(self._store, self._thread, self.core, lease_ms):
                await self._judge(WriteBatch((), 0))
