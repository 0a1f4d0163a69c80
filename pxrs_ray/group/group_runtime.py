"""`GroupRuntime`: what surrounds one group's `GroupCoordinator`: records become durable, then
replies and effects leave. Pure.

Rules of this file. Each event is decided at once, in memory; its records go to a `RecordWriter`. A
decision's reply and effects wait until `durable` has reached its `after`. A newer generation in the
store ends this coordinator, a loss of accepted writes halts the group.

Whatever else is raised, by a decision or by a call, is a fault of this group alone. After it memory
is not trusted: nothing is decided or written until the group is loaded again under a new
generation, at once at first, later with longer pauses. Callers wait meanwhile, and their requests
are decided anew.

Nothing here waits or talks to anybody. Each step is given the time, and leaves what is to be done
in `outputs`; `wake_ms` says when to call `wake`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pxrs_ray.clock import Instant
from pxrs_ray.errors import (
    CoordinatorDeposed,
    DeadlineExceeded,
    Fenced,
    NotFound,
    StoreError,
    UsageError,
)
from pxrs_ray.group.counters import GroupCounters
from pxrs_ray.group.decision import refusal_after
from pxrs_ray.group.events import (
    AssignmentChanged,
    Decision,
    Dismiss,
    Event,
    FenceReaders,
    GroupEffect,
    Heartbeat,
    Response,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.group_health import GroupHealth, shown
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.group.lease_renewals import LeaseRenewals
from pxrs_ray.group.record_writer import RecordWriter
from pxrs_ray.group.runtime_effects import (
    Changed,
    Deposed,
    Faulted,
    LeadAgain,
    Led,
    Output,
    StoreCall,
)
from pxrs_ray.group.ticks import Ticks
from pxrs_ray.group.waiting_requests import GroupCall, WaitingRequests
from pxrs_ray.group.write_queue import WriteBatch, WriteQueue
from pxrs_ray.json_logging import tell_changes
from pxrs_ray.model import MemberId, Snapshot
from pxrs_ray.supervision.registry_watch import RegistryWatch

# Who asks a group that has failed waits for so long, and is told to ask again.
WELL_WAIT_MS = 20_000
# A refusal changes nothing. Any other error of a decision leaves memory in doubt.
REFUSALS = (Fenced, NotFound, UsageError)

MakeCoordinator = Callable[[Snapshot, GroupSettings, Instant], GroupCoordinator]


class GroupRuntime:
    """One group of one coordinator incarnation. Not thread-safe: one caller at a time."""

    def __init__(
        self,
        group: str,
        registry: RegistryWatch,
        history_keep: int,
        make_coordinator: MakeCoordinator = GroupCoordinator,
    ) -> None:
        self.group = group
        self.core: GroupCoordinator
        self.writer = RecordWriter(history_keep)
        self.tally = GroupCounters()
        self.ticks = Ticks(registry)
        self._make_coordinator = make_coordinator
        self.outputs: list[Output] = []
        self._waiting = WaitingRequests(self.outputs)
        self._health = GroupHealth()
        self._renewals = LeaseRenewals()
        self._leading: LeadAgain | None = None

    @property
    def queue(self) -> WriteQueue:
        """What is decided and not durable."""
        return self.writer.queue

    @property
    def halted(self) -> StoreError | None:
        """Why everything is refused; None while it is not."""
        return self._health.halted

    # --- life -------------------------------------------------------------------------------------

    def begin(self, snapshot: Snapshot, settings: GroupSettings, now: Instant) -> None:
        """Go on from what `lead` returned."""
        self.core = self._make_coordinator(snapshot, settings, now)
        self.writer.begin()
        self._take(None, self.core.start(now), now)
        self.ticks.begin(self.core, now.monotonic_ms)
        self._renewals.begin(settings.lease_ms, now.monotonic_ms)
        self._health.well()

    def problem(self, now: Instant) -> str:
        """What is wrong with the group; it tells of a fault for a while after it is over."""
        return self._health.problem(now.monotonic_ms)

    def failed(self, error: BaseException, now: Instant) -> None:
        """Something of this group has failed. It is over, or loaded again."""
        health = self._health
        if not health.counts:
            return
        health.failed(error, now.monotonic_ms)
        self._stop()
        deposed = isinstance(error, CoordinatorDeposed)
        self.outputs.append(Deposed(error) if deposed else Faulted(error))
        if health.over is not None:
            self._end(error)
            return
        with suppress(BaseException):  # before the group is loaded it is done once more
            self._interrupt(now)

    def halt(self, error: StoreError) -> None:
        """Refuse everything from now on: the registry cannot be trusted."""
        self._health.end(error)
        self._stop()
        self.outputs.append(Faulted(error))
        self._end(error)

    def _stop(self) -> None:
        """Wait for no answer of the store any more, and let no time pass."""
        self.writer.stop()
        self._renewals.stop()
        self.ticks.stop()
        self._leading = None

    def _end(self, error: BaseException) -> None:
        for call in self._waiting.all():
            self._waiting.refuse(call, error)

    def _interrupt(self, now: Instant) -> None:
        """What was waited for is forgotten: decide it anew, when the group is well."""
        self._waiting.interrupt(now.monotonic_ms + WELL_WAIT_MS, self._told())

    def _told(self) -> str:
        return f"group {self.group} {self._health.told}: ask again"

    # --- requests ---------------------------------------------------------------------------------

    def submit(self, event: Event, caller: object, now: Instant) -> None:
        """Decide `event`; answer when what the answer rests on is durable.

        Refused is what the decision refuses (that rests on what was decided before, and waits as an
        answer does); everything, when the group is halted or led by another. DeadlineExceeded says
        to ask again: the group has failed, and is not well in time.
        """
        self._step(now, lambda: self._ask(GroupCall(caller, event), now))

    def heartbeat(self, heartbeat: Heartbeat, wait_ms: int, caller: object, now: Instant) -> None:
        """Renew a member's lease; answer when it has an assignment that it has not seen.

        After `wait_ms` it is answered without one, also where the newest is not durable: that it
        was heard rests on no record. The lease counts from now. Refused as in `submit`; with
        DeadlineExceeded when a refusal is not durable in time.
        """
        end_ms = now.monotonic_ms + wait_ms
        self._step(now, lambda: self._ask(GroupCall(caller, heartbeat, end_ms), now))

    def settle(self, caller: object, now: Instant) -> None:
        """Answer when everything decided so far is durable, or forgotten after a fault."""
        call, after = GroupCall(caller, None), self.core.records_emitted
        if self._health.over is not None and self.queue.durable < after:
            self._waiting.refuse(call, self._health.over)
        elif self.queue.durable >= after or not self._health.is_well:
            self._waiting.answer(call, None)
        else:
            self._waiting.defer(after, call)

    def is_told(self) -> bool:
        """Whether every live member has said that it has its newest assignment."""
        seen = [(known.member.member, known.sequence) for known in self.core.live_members()]
        return self._waiting.have_seen(self.core.state.generation, seen)

    def _ask(self, call: GroupCall, now: Instant) -> None:
        try:
            self._ask_now(call, now)
        except BaseException:
            self._waiting.refuse(call, DeadlineExceeded(self._told()))
            raise

    def _ask_now(self, call: GroupCall, now: Instant) -> None:
        if (over := self._health.over) is not None:
            self._waiting.refuse(call, over)
        elif not self._health.is_well:
            self._waiting.park(call, now.monotonic_ms + WELL_WAIT_MS)
        elif (decision := self._decide(call, now)) is not None:
            assert decision.reply is not None
            if isinstance(call.event, Heartbeat) and call.end_ms is not None:
                self._hear(call, call.event, decision.reply, decision.after)
            else:
                self._after(decision.after, call, decision.reply)
        if call.end_ms is not None and not call.done:
            self._waiting.ends_at(call, call.end_ms)

    def _hear(self, call: GroupCall, heartbeat: Heartbeat, reply: Response, after: int) -> None:
        """Answer a heartbeat with news, or hold it until there are any."""
        self._waiting.seen[heartbeat.member] = heartbeat.seen
        call.heard = replace(reply, assignment=None) if reply.assignment is not None else reply
        if reply.assignment is not None:
            self._after(after, call, reply)
        else:
            self._waiting.await_news(heartbeat.member, call)

    def _decide(self, call: GroupCall, now: Instant) -> Decision | None:
        """What the core decides on a request; None where it was dealt with otherwise."""
        event, heard = call.event, call.heard
        assert event is not None
        try:
            if isinstance(event, Heartbeat) and heard is not None:
                # To have waited is no sign of life: the lease is not renewed once more.
                decision = self.core.news(event, heard.lease_ms)
            else:
                decision = self.core.handle(event, now)
        except Fenced as refused:
            call.refused = refused
            self._after(refusal_after(refused, self.core.records_emitted), call, None)
            return None
        except REFUSALS as refused:
            self._waiting.refuse(call, refused)
            return None
        except BaseException as error:  # noqa: BLE001 - whatever it is, memory is in doubt
            what = f"group {self.group} cannot decide on {type(event).__name__}"
            told = UsageError(f"{what}: {shown(error)}")
            told.__cause__ = error
            self._waiting.refuse(call, told)
            self.failed(error, now)
            return None
        try:
            self._take(event, decision, now)
        except BaseException as error:  # noqa: BLE001 - whatever it is, memory is in doubt
            self.failed(error, now)
            self._ask(call, now)
            return None
        return decision

    def _take(self, event: Event | None, decision: Decision, now: Instant) -> None:
        if decision.records:
            self.queue.push(decision.records)
            tell_changes(self.group, decision.records)
        self.tally.note(event, decision)
        self.tally.note_hand_overs(self.core.state.revoking, decision, now.monotonic_ms)
        if decision.effects:
            # Also a decision without records may rest on earlier ones that are not durable yet.
            if self.queue.durable >= decision.after:
                self._carry_out(decision.effects, now)
            else:
                self._waiting.defer(decision.after, decision.effects)
        self._write_next(now)

    # --- what leaves ------------------------------------------------------------------------------

    def _after(self, after: int, call: GroupCall, reply: Response | None) -> None:
        """Answer (or refuse, as the request says) when that many records are durable."""
        if self.queue.durable >= after:
            self._waiting.settled(call, reply)
        else:
            self._waiting.defer(after, call, reply)

    def _carry_out(self, effects: Sequence[GroupEffect], now: Instant) -> None:
        self.outputs.append(Changed())
        for effect in effects:
            match effect:
                case FenceReaders():
                    self.outputs.append(effect)
                case Dismiss():
                    self._waiting.seen.pop(effect.member, None)
                    self._look(effect.member, now)
                    self.outputs.append(effect)
                case AssignmentChanged():
                    self._look(effect.member, now)

    def _look(self, member: MemberId, now: Instant) -> None:
        """Have the heartbeats that wait for news of a member look again."""
        for call in self._waiting.for_news_of(member):
            self._ask(call, now)

    # --- the store --------------------------------------------------------------------------------

    def answered(self, call: StoreCall, answer: Any, now: Instant) -> None:
        """A call of the store is over. `answer` is what it returned, or the exception it raised.

        An answer to a call that nobody waits for any more is ignored.
        """
        self._step(now, lambda: self._answered(call, answer, now))

    def _answered(self, call: StoreCall, answer: Any, now: Instant) -> None:
        if call is self._leading:
            self._leading = None
            self._led_again(answer, now)
        elif self._renewals.waits_for(call):
            self._send(self._renewals.answered(call, answer, self.core))
        elif self.writer.waits_for(call):
            self._written(self.writer.answered(call, answer, self.core.state.generation, now))
            self._release(now)

    def registry_answers(self, now: Instant) -> None:
        """The store was away and is back: what was not answered is asked again at once."""
        self.writer.registry_answers(now)

    def _write_next(self, now: Instant) -> None:
        if not self._health.counts:
            return  # what was decided before a fault is not trusted
        self._send(self.writer.next(self.core.state.generation, self.core.state.version, now))

    def _send(self, call: StoreCall | None) -> None:
        if call is not None:
            self.outputs.append(call)

    def _written(self, found: WriteBatch | StoreCall | None) -> None:
        if not isinstance(found, WriteBatch):
            self._send(found)
        elif versions := [record.version for record in found.records if record.version]:
            self.outputs.append(Led(self.core.state.generation, max(versions)))

    def _release(self, now: Instant) -> None:
        for held, reply in self._waiting.released(self.queue.durable):
            if isinstance(held, GroupCall):
                self._waiting.settled(held, reply)
            else:
                self._carry_out(held, now)
        self._write_next(now)

    def _led_again(self, answer: Any, now: Instant) -> None:
        """Go on from what the store holds, as after a restart: it has news for everybody."""
        if isinstance(answer, BaseException):
            raise answer
        self._interrupt(now)
        self.begin(answer, self.core.settings, now)
        epochs = {row.partition: row.epoch for row in self.core.state.rows if row.epoch}
        led = Led(answer.generation, answer.last_version)
        self.outputs += [led, FenceReaders(epochs), Changed()]
        for call in self._waiting.unparked():
            self._ask(call, now)

    # --- time -------------------------------------------------------------------------------------

    def wake_ms(self) -> int | None:
        """When `wake` is to be called, by the monotonic clock; None while nothing is to come."""
        wake_ms = self._waiting.next_end_ms()
        others = (self.ticks.due_ms, self._renewals.due_ms, self._health.reload_ms)
        for due_ms in (*others, self.writer.again_ms):
            if due_ms is not None and (wake_ms is None or due_ms < wake_ms):
                wake_ms = due_ms
        return wake_ms

    def wake(self, now: Instant) -> None:
        """Do what is due."""
        self._step(now, lambda: self._do_what_is_due(now))

    def _do_what_is_due(self, now: Instant) -> None:
        now_ms = now.monotonic_ms
        if self._health.reload_ms is not None and now_ms >= self._health.reload_ms:
            self._health.reload_ms, self._leading = None, LeadAgain()
            self.outputs.append(self._leading)
        if self.writer.again_ms is not None and now_ms >= self.writer.again_ms:
            self.outputs.append(self.writer.again())
        if self.ticks.due_ms is not None and now_ms >= self.ticks.due_ms:
            tick = self.ticks.tick(self.core, self.writer.writing_since_ms, now)
            self._take(tick, self.core.handle(tick, now), now)
            if self._health.is_well:
                self.ticks.begin(self.core, now_ms)
        if self._renewals.due_ms is not None and now_ms >= self._renewals.due_ms:
            self._send(self._renewals.renew(self.core, now_ms))
        self._waiting.end(now_ms, self._told(), self.writer.problem)

    def registry_away(self, notice_ms: int, now: Instant) -> bool:
        """Whether the registry is away, or this group's records wait for it, longer than that."""
        return self.ticks.registry_away(notice_ms, self.writer.writing_since_ms, now)

    def _step(self, now: Instant, do: Callable[[], None]) -> None:
        """Whatever is raised in a step is a fault of the group, and of nobody else."""
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - see the head of this file
            self.failed(error, now)
