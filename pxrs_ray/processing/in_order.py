"""`InOrder`: processes a partition's messages, or batches, one after the other. Pure.

Rules of this file. The caller asks for the `next` step, makes it, and reports the result, with the
time. Consecutive messages without a history form one step: their progress is reported once, and the
record of calls in progress shows it meanwhile. A failed message is tried again before any other,
until the failure policy has dealt with it; the result is stored before the next message begins. A
message that was in progress when a process died runs alone after a pause, and not at all after too
many deaths. Progress may be read from any thread.
"""

from __future__ import annotations

from collections.abc import Callable

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.retry_rules import (
    Deferred,
    FailurePolicy,
    RetryRules,
    TryAgain,
    after_failure,
    backoff,
)
from pxrs_ray.processing.suspects import Suspect, decode_detail, encode_detail


@dataclass(frozen=True, slots=True)
class TakeBatch:
    """Nothing is in work: bring the next batch with `took`, or a gap with `skipped`."""


@dataclass(frozen=True, slots=True)
class RunOn:
    """Call with each message from `first` to, not including, `end`; tell it with `ran`.

    Before each it is looked whether it may begin: the lease, the own end, the gate. Once the
    message at `kick_from` is done that is said with `passed`.
    """

    first: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class CallOne:
    """Call with the messages from `first` to `end`, by themselves; tell it with `called`.

    A call that ended because our time was over says nothing about them: the step is made again.
    """

    first: Offset
    end: Offset
    attempt: int
    suspect: Suspect | None = None


@dataclass(frozen=True, slots=True)
class PauseUntil:
    """Do nothing until then."""

    until_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Keep these messages where the policy says; tell it with `kept` or `not_kept`."""

    first: Offset
    end: Offset
    attempts: int
    error: str
    policy: FailurePolicy


@dataclass(frozen=True, slots=True)
class Halt:
    """The policy is to stop: nothing more is begun until somebody acts."""

    given_up: GiveUp


@dataclass(frozen=True, slots=True)
class CommitNow:
    """Return when what is done is committed, or is not ours any more."""


InOrderStep = TakeBatch | RunOn | CallOne | PauseUntil | GiveUp | Halt | CommitNow


class InOrder:
    """See the rules at the head of this file. `commit_mode` is of `Ordered`; `commit_soon` is
    called when so much is done that it is to be committed."""

    def __init__(
        self,
        progress: Progress,
        rules: RetryRules,
        commit_mode: str,
        commit_records: int,
        commit_soon: Callable[[], None],
        *,
        wants_batch: bool,
        began_s: float,
        apart: bool = False,
    ) -> None:
        checkpoint = progress.checkpoint
        self.next_offset: Offset = checkpoint
        # Once this offset is done a commit is due.
        self.kick_from = checkpoint + commit_records - 1
        _, self._failing, self._suspicion = decode_detail(checkpoint, progress.detail)
        self.attempts = self._failing.pop(checkpoint, progress.attempts)
        # Behind this offset nothing is known of any message.
        self.known_end = max(self._suspicion.end, *(o + 1 for o in self._failing), 0)
        self._rules = rules
        # Nobody commits within a batch that its handler has worked as one.
        is_each = commit_mode == "message" and wants_batch
        self._commit_mode = "interval" if is_each else commit_mode
        self._commit_records, self._commit_soon = commit_records, commit_soon
        self._wants_batch, self._began_s = wants_batch, began_s
        # Each message is called by itself, though nothing is known of it: it waits for its turn.
        self._each_apart = apart
        # The batch in work: what is left of it begins at `next_offset`.
        self._end = checkpoint
        self._part_end = checkpoint
        self._commits = False
        self._pause_s = float("-inf")
        # What is known of the message that is next, once that was looked up; its call by itself.
        self._looked_up: Offset = -1
        self._suspect: Suspect | None = None
        self._apart: Offset = -1
        self._given_up: GiveUp | None = None
        self._not_kept = 0

    def configure(self, commit_records: int, in_hand: Offset = -1) -> None:
        """Where less may stay uncommitted, that holds from here on."""
        self._commit_records = commit_records
        reached = max(self.next_offset, in_hand)
        self.kick_from = min(self.kick_from, reached + commit_records - 1)

    # --- what comes in ----------------------------------------------------------------------------

    def took(self, first: Offset, end: Offset) -> None:
        """A batch; it must be the next one."""
        if first != self.next_offset:
            raise RuntimeError(f"offset {first} came, {self.next_offset} is next")
        self._end = self._part_end = end
        self._part_end = self._next_part() if self._wants_batch else end

    def skipped(self, to: Offset) -> None:
        """The log has nothing before `to`; what had failed there is nobody's attempt any more."""
        if to > self.next_offset:
            self.attempts = 0
        self.next_offset = self._end = to

    # --- what is next -----------------------------------------------------------------------------

    def next(self, now_s: float) -> InOrderStep:
        """The step to be made now."""
        if self._commits:
            self._commits = False
            return CommitNow()
        if self.next_offset >= self._end:
            return TakeBatch()
        if now_s < self._pause_s:
            return PauseUntil(self._pause_s)
        if self._given_up is not None:
            stops = self._given_up.policy is FailurePolicy.STOP
            return Halt(self._given_up) if stops else self._given_up
        first, end = self.next_offset, self._part_end if self._wants_batch else self._end
        is_single = not self._wants_batch or end - first == 1
        if is_single and first < self.known_end and self._looked_up != first:
            found = self._look_up(first, now_s)
            if found is not None:
                return found
        if self._wants_batch:
            return CallOne(first, end, self.attempts + 1, self._suspect)
        is_plain = first >= self.known_end and not self.attempts and self._apart != first
        if is_plain and self._commit_mode != "message" and not self._each_apart:
            return RunOn(first, end)
        return CallOne(first, first + 1, self.attempts + 1, self._suspect)

    def _look_up(self, offset: Offset, now_s: float) -> InOrderStep | None:
        """What has failed before, or was in hand at a death: its attempts, its pause, its doom."""
        self._looked_up = offset
        self.attempts = self._failing.get(offset, self.attempts)
        self._suspect = suspect = self._suspicion.of(offset)
        if suspect is None:
            return None
        if suspect.is_doomed(self.attempts, self._rules.attempts_max):
            self._give_up(suspect.told(), self._rules.policy)
            return self.next(now_s)
        self._pause_s = self._began_s + suspect.pause_ms / 1_000
        return PauseUntil(self._pause_s) if now_s < self._pause_s else None

    def _next_part(self) -> Offset:
        """Where the part ends that begins at `next_offset`: a message with a note comes alone."""
        start = self.next_offset
        for offset in range(start, min(self._end, self.known_end)):
            suspect = self._suspicion.of(offset)
            if offset in self._failing or (suspect is not None and suspect.apart):
                return offset if start < offset else offset + 1
        return self._end

    # --- what happened ----------------------------------------------------------------------------

    def ran(self, to: Offset, error: str | None, now_s: float) -> None:
        """A run came to `to`. With an `error`, its message has failed; without one, and before the
        end of the run, its message was not begun, and is called by itself."""
        self.passed(to)
        if error is not None:
            self._failed(error, now_s)
        elif to < self._end:
            self._apart = to

    def called(self, step: CallOne, error: str | None, now_s: float) -> None:
        """The call of a step has ended, well or with an error."""
        self.ended(step)
        if error is not None:
            self._failed(error, now_s)
            return
        self.attempts = 0
        self.passed(step.end)

    def ended(self, step: CallOne) -> None:
        """The call of a step has ended, however it did: it is not what killed a process."""
        if step.suspect is not None and self._suspect is step.suspect:
            self._suspicion, self._suspect = self._suspicion.without(step.first), None

    def _failed(self, error: str, now_s: float) -> None:
        """Count a failure, and judge it; what is deferred has not failed."""
        if isinstance(error, Deferred):
            self._pause_s = now_s + error.delay_ms / 1_000
            return
        self.attempts += 1
        verdict = after_failure(self._rules, self.attempts)
        if isinstance(verdict, TryAgain):
            self._pause_s = now_s + verdict.delay_ms / 1_000
        else:
            self._give_up(error, verdict)

    def _give_up(self, error: str, policy: FailurePolicy) -> None:
        first = self.next_offset
        end = self._part_end if self._wants_batch else first + 1
        self._given_up = GiveUp(first, end, self.attempts, error, policy)

    def kept(self) -> None:
        """What was given up is kept: that is as good as done."""
        assert self._given_up is not None
        self._suspicion = self._suspicion.without(self._given_up.first)
        end, self._given_up = self._given_up.end, None
        self._suspect, self._not_kept, self.attempts = None, 0, 0
        self.passed(end)

    def not_kept(self, now_s: float) -> None:
        """It cannot be kept now: that is tried again, with growing pauses."""
        self._not_kept += 1
        self._pause_s = now_s + backoff(self._rules, self._not_kept) / 1_000

    def passed(self, to: Offset) -> None:
        """All below `to` is done: let it be committed where that is due."""
        self.next_offset = to
        if self._wants_batch and to < self._end:
            self._part_end = self._next_part()
        if self._commit_mode == "message":
            self._commits = True
            return
        self._commits = self._commit_mode == "batch" and to >= self._end
        if to > self.kick_from:
            self.kick_from = to + self._commit_records - 1
            self._commit_soon()

    @property
    def paused_until_s(self) -> float:
        """Until when nothing is begun."""
        return self._pause_s

    # --- how far it is ----------------------------------------------------------------------------

    def progress(self, in_hand: Callable[[], Offset]) -> Progress:
        """How far it is; the attempts are those of the message that is next.

        `in_hand` says which message the handler is called with, as it is recorded; below 0: none.
        """
        while True:
            offset, attempts = self.next_offset, self.attempts
            suspicion, failing, reached = self._suspicion, self._failing, in_hand()
            if offset != self.next_offset:
                continue
            if reached > offset:  # all before it is done, and it has not failed yet
                offset, attempts = reached, 0
            if offset >= self.known_end:
                return Progress(offset, attempts)
            later = {o: n for o, n in failing.items() if o > offset}
            detail = encode_detail(DoneRanges(offset), later, suspicion.above(offset))
            # It may be next, and not begun: then nobody has looked up its attempts yet.
            return Progress(offset, max(attempts, failing.get(offset, 0)), detail)
