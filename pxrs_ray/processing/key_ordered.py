"""`KeyLanes`: works many keys of one partition at once, each key in order.

Rules of this file. Every key is a lane, worked one message at a time; a message without a key is a
lane of its own. The checkpoint is the lowest offset that is not done; the gap map keeps what is
done above it. A message that fails holds up its own lane only, with growing pauses, until the
failure policy takes it; under QUARANTINE its key is parked, with all later messages of it. Lanes
take turns fairly between tenants. When the gap map might not fit into a row's detail any more, and
no gap log takes it, only the lowest offset may begin, until it fits again.

What is done is noted run by run, not message by message: `_noted` is what reads the gap map.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from pxrs_ray.errors import ConfigError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Offset, Progress
from pxrs_ray.processing.done_ranges import DoneRanges, NamedGaps, written
from pxrs_ray.processing.fair_queue import ArrivalQueue, FairQueue
from pxrs_ray.processing.gap_map import GapMap, GapRecord
from pxrs_ray.processing.key_lane import KeyLane
from pxrs_ray.processing.retry_rules import (
    Deferred,
    FailurePolicy,
    RetryRules,
    TryAgain,
    after_failure,
    backoff,
)
from pxrs_ray.processing.scheduler import Item, Task, Work
from pxrs_ray.processing.suspects import Suspect
from pxrs_ray.store.registry import DETAIL_CHARS_MAX

# How far, in offsets, the work may run ahead of the lowest message that is not done.
WINDOW_RECORDS_MAX = 1 << 20
PARKED_AT_ONCE = 16
# Where nobody shares, so many lanes that may begin are enough: those of later messages come later.
READY_ENOUGH = 256
_SPARE_CHARS = 32


@dataclass(frozen=True, slots=True)
class LaneRules:
    """How lanes are worked: see `GroupConfig` for what each field means to a user."""

    retry: RetryRules
    timeout_ms: int | None
    lookahead_records: int
    lookahead_bytes: int
    weights: Mapping[str, float]
    fair: bool
    gap_log: bool
    detail_chars: int = DETAIL_CHARS_MAX
    window: int = WINDOW_RECORDS_MAX

    def __post_init__(self) -> None:
        if self.lookahead_records < 1 or self.lookahead_bytes < 1 or self.detail_chars < 100:
            raise ConfigError(f"lanes need room to look ahead, got {self}")

    @property
    def shared(self) -> bool:
        """Whether tenants take turns: then all that there is room for is known, to choose from."""
        return self.fair or bool(self.weights)


class KeyLanes:
    """See the rules at the head of this file, and `WorkScheduler` for the contract."""

    def __init__(self, progress: Progress, rules: LaneRules) -> None:
        self._rules = rules
        self._map = GapMap(progress, rules.detail_chars, has_log=rules.gap_log)
        self._suspicion = self._map.suspicion_at_first
        if progress.attempts and not self._map.failing:
            self._map.has_failed(progress.checkpoint, progress.attempts)
        self._known_end = self._known_to()
        self._end = progress.checkpoint
        self._pending: dict[Offset, KeyLane] = {}
        self._bytes = 0
        self._lanes: dict[Hashable, KeyLane] = {}
        # The offsets of lanes' first messages; one that has begun by another way is passed over.
        self._ready: FairQueue[Offset] | ArrivalQueue = (
            FairQueue(rules.weights) if rules.shared else ArrivalQueue()
        )
        self._pausing: list[tuple[int, Offset, KeyLane]] = []
        self._running: set[Task] = set()
        self._running_items = 0
        self._done: list[Offset] = []
        self._chars: int | None = None
        self._stopped_by: Item | None = None
        self.parked: set[bytes] = set()

    def _known_to(self) -> Offset:
        """Behind this offset nothing is known of any message."""
        failed = (offset + 1 for offset in self._map.failing)
        return max(self._map.done.high, self._suspicion.end, *failed)

    # --- what comes in ----------------------------------------------------------------------------

    def offer(self, items: Sequence[Item]) -> None:
        """Take the next messages; those that are done already are left out."""
        for item in items:
            offset = item.offset
            assert offset >= self._end, "offers come in the order of offsets"
            self._end = offset + 1
            if offset < self._known_end:
                if offset in self._map.done:
                    continue
                item.attempts = self._map.failing.get(offset, 0)
                item.suspect = self._suspicion.of(offset) if self._suspicion else None
            self._line_up(item)

    def _line_up(self, item: Item) -> None:
        # A message without a key belongs to nobody and waits for nobody.
        name = item.key if item.key is not None else item.offset
        lane = self._lanes.get(name)
        self._bytes += item.size_bytes
        if lane is not None:
            lane.last.behind = item
            lane.last = item
            self._pending[item.offset] = lane
            return
        lane = self._lanes[name] = self._pending[item.offset] = KeyLane(
            name, item.tenant, item, item
        )
        if item.key in self.parked:
            lane.work = Work.PARK
        self._make_ready(lane)

    def skip(self, to: Offset) -> None:
        """The log has nothing before `to` that was not offered."""
        self._noted()
        self._map.pass_to(self._end, to)
        self._chars = None
        self._end = max(self._end, to)

    def has_room(self) -> bool:
        """Whether more messages should be offered."""
        return (
            len(self._pending) < self._rules.lookahead_records
            and self._bytes < self._rules.lookahead_bytes
            and (self._rules.shared or len(self._ready) < READY_ENOUGH)
            and self._end - self._noted().low < self._rules.window
        )

    def park(self, key: bytes) -> None:
        """Messages of `key` are put aside from now on: so it was when the partition came to us."""
        assert key not in self._lanes, "keys are parked before their messages are offered"
        self.parked.add(key)

    def unpark(self, key: bytes) -> bool:
        """Let `key` flow again; False, and nothing is changed, while messages of it are waiting."""
        if key in self._lanes:
            return False
        self.parked.discard(key)
        return True

    # --- what goes out ----------------------------------------------------------------------------

    def take(self, now_ms: int, room: int) -> list[Task]:
        """Up to `room` tasks, one a lane, in turn between tenants."""
        if self._stopped_by is not None:
            return []
        while self._pausing and self._pausing[0][0] <= now_ms:
            self._make_ready(heappop(self._pausing)[2])
        found: list[Task] = []
        if room <= 0 or not len(self._ready):
            return found
        gaps, exact = self._noted(), False
        # What one message more that is in work may take of the detail.
        digits = len(written(max(self._end, gaps.high) - gaps.low)) + 4
        spare = self._spare_chars(digits)
        while len(found) < room and len(self._ready):
            if spare < 0 and not exact:
                exact, spare = True, self._spare_chars(digits, exact=True)
            if spare < 0:
                lowest = self._pending.get(gaps.low)
                if lowest is not None and lowest.ready:
                    found.append(self._begin(lowest, now_ms, 1))
                break
            lane = self._pending.get(self._ready.pop()[1])
            if lane is not None and lane.ready:
                task = self._begin(lane, now_ms, PARKED_AT_ONCE)
                spare -= digits * len(task.items)
                found.append(task)
        return found

    def _spare_chars(self, digits: int, *, exact: bool = False) -> int:
        """What is left of the detail when all that runs, and one more, have ended anyhow.

        It is looked up only where an upper bound of it does not fit.
        """
        running = (self._running_items + PARKED_AT_ONCE) * digits
        spare = self._map.chars_max - _SPARE_CHARS - running
        if exact:
            if self._chars is None:
                self._above_low()
                self._chars = self._map.chars(self._suspicion)
            return spare - self._chars
        return spare - self._map.chars_at_most(digits - 4) - self._suspicion_chars()

    def _suspicion_chars(self) -> int:
        return len(self._suspicion.encode(self._map.done.low)) if self._suspicion else 0

    def _make_ready(self, lane: KeyLane) -> None:
        item = lane.first
        if item.suspect is not None:
            self._condemn_if_doomed(lane, item, item.suspect)
        lane.ready = True
        self._ready.put(lane.tenant, item.offset, item.offset)

    def _condemn_if_doomed(self, lane: KeyLane, item: Item, suspect: Suspect) -> None:
        retry = self._rules.retry
        if lane.work is Work.HANDLE and suspect.is_doomed(item.attempts, retry.attempts_max):
            item.error = suspect.told()
            self._condemn(lane, item, retry.policy)

    def _begin(self, lane: KeyLane, now_ms: int, parked_max: int) -> Task:
        assert not lane.busy
        lane.ready, lane.busy = False, True
        item = lane.first
        if lane.work is Work.HANDLE:
            due_ms = now_ms + self._rules.timeout_ms if self._rules.timeout_ms else None
            task = Task(Work.HANDLE, (item,), item.attempts + 1, due_ms)
        elif lane.work is Work.GIVE_UP:
            task = Task(Work.GIVE_UP, (item,), item.attempts)
        else:
            task = Task(Work.PARK, lane.items(parked_max), item.attempts)
        self._running.add(task)
        self._running_items += len(task.items)
        return task

    # --- what happened ----------------------------------------------------------------------------

    def ended(self, task: Task, error: str | None, now_ms: int) -> None:
        """A task has ended; one that had timed out is not listened to."""
        if task.over:
            return
        task.over = True
        self._running.discard(task)
        self._running_items -= len(task.items)
        self._chars = None
        lane = self._pending[task.item.offset]
        lane.busy = False
        if error is None:
            self._are_done(lane, task.items)
        elif task.work is Work.HANDLE:
            self._acquit(task.item)
            self._failed(lane, task.item, error, now_ms)
        else:
            lane.trouble += 1
            self._pause(lane, now_ms + backoff(self._rules.retry, lane.trouble))

    def _are_done(self, lane: KeyLane, items: Sequence[Item]) -> None:
        behind: Item | None = None
        for item in items:
            offset, behind = item.offset, item.behind
            assert lane.first is item
            del self._pending[offset]
            if self._map.failing:
                self._map.has_not_failed(offset)
            if item.suspect is not None:
                self._acquit(item)
            self._bytes -= item.size_bytes
            self._done.append(offset)
            if behind is not None:
                lane.first = behind
        if behind is None:
            del self._lanes[lane.name]
            return
        lane.trouble = 0
        if lane.work is Work.GIVE_UP:
            lane.work = Work.HANDLE
        self._make_ready(lane)

    def _noted(self) -> DoneRanges:
        """The gap map, with everything that is done by now."""
        if self._done:
            self._map.add_each(self._done)
            self._done.clear()
        return self._map.done

    def _acquit(self, item: Item) -> None:
        """Its call has ended: it is not what killed a process."""
        if item.suspect is not None:
            item.suspect = None
            self._suspicion = self._suspicion.without(item.offset)

    def _failed(self, lane: KeyLane, item: Item, error: str, now_ms: int) -> None:
        if isinstance(error, Deferred):
            self._pause(lane, now_ms + error.delay_ms)
            return
        item.attempts += 1
        item.error = error
        self._map.has_failed(item.offset, item.attempts)
        verdict = after_failure(self._rules.retry, item.attempts)
        if isinstance(verdict, TryAgain):
            self._pause(lane, now_ms + verdict.delay_ms)
            return
        self._condemn(lane, item, verdict)
        if verdict is not FailurePolicy.STOP:
            self._make_ready(lane)

    def _condemn(self, lane: KeyLane, item: Item, policy: FailurePolicy) -> None:
        """The policy decides about an item that is not tried again."""
        if policy is FailurePolicy.STOP:
            self._stopped_by = self._stopped_by or item
        elif policy is FailurePolicy.QUARANTINE:
            lane.work = Work.PARK
            if item.key is not None:
                self.parked.add(item.key)
        else:
            lane.work = Work.GIVE_UP

    def _pause(self, lane: KeyLane, until_ms: int) -> None:
        heappush(self._pausing, (until_ms, lane.first.offset, lane))

    def expire(self, now_ms: int) -> list[Task]:
        """End the wait for handlers that have taken too long: each has failed once more."""
        if self._rules.timeout_ms is None:
            return []
        late = [t for t in self._running if t.due_ms is not None and t.due_ms <= now_ms]
        for task in sorted(late, key=lambda task: task.item.offset):
            self.ended(task, f"HandlerTimeout: not done in {self._rules.timeout_ms} ms", now_ms)
        return late

    # --- how far it is ----------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """When a lane's pause is over, or a handler has taken too long."""
        if self._stopped_by is not None:
            return None
        moments: list[int] = []
        if self._rules.timeout_ms is not None:
            moments = [task.due_ms for task in self._running if task.due_ms is not None]
        if self._pausing:
            moments.append(self._pausing[0][0])
        return min(moments, default=None)

    def progress(self) -> Progress:
        """Where the partition is."""
        self._noted()
        low = self._above_low()
        detail = self._map.detail(self._suspicion)
        assert len(detail) <= self._rules.detail_chars, "the gap map outgrew its row"
        return Progress(low, self._map.failing.get(low, 0), detail)

    def _above_low(self) -> Offset:
        low = self._map.done.low
        if self._suspicion:
            self._suspicion = self._suspicion.above(low)
        return low

    # --- the gap log ------------------------------------------------------------------------------

    @property
    def named_gaps(self) -> NamedGaps | None:
        """Which records of the gap log are to be read before anything is offered."""
        return self._map.named if self._map.is_unread else None

    def restore_gaps(self, texts: Iterable[bytes]) -> int:
        """Take those records in, as far as they were found; answers how many were of use."""
        assert self._end == self._map.done.low, "nothing was offered before"
        used = self._map.restore(texts)
        self._known_end = self._known_to()
        return used

    @property
    def is_behind(self) -> bool:
        """Whether the row has no room for all that is done."""
        self.progress()
        return self._map.is_behind

    def gap_record(self, epoch: Epoch) -> GapRecord | None:
        """What is to be appended to the gap log now, and then told with `gaps_kept`."""
        gaps = self._noted()
        digits = len(written(max(self._end, gaps.high) - gaps.low))
        return self._map.record(epoch, digits, self._suspicion_chars())

    def gaps_kept(self, record: GapRecord, base: Offset | None) -> None:
        """The gap log has it from `base` on; None: it does not, or nobody knows where."""
        self._map.sent(record, base)
        self._chars = None

    def redriving_ended(self) -> None:
        """What is known of re-driving that killed a process is in the quarantine's log by now."""
        self._suspicion = replace(self._suspicion, redriven=())

    @property
    def redriven(self) -> tuple[Offset, ...]:
        """Positions of the quarantine whose re-driving has killed a process."""
        return self._suspicion.redriven

    @property
    def stopped_by(self) -> Item | None:
        """The message that failed for good under the policy to stop."""
        return self._stopped_by
