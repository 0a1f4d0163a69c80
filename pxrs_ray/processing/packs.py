"""`PackScheduler`: works messages pack by pack, as a submit and a processing strategy say.

Rules of this file. A pack is what is there when the former one is over, up to a number. It goes
through rounds; after each the processing strategy judges every message. A pack is over when all its
messages are done or given up. A message is noted in the gap map as soon as it is done and cannot be
tried again, so a crash repeats only the rest; the number of rounds survives as `attempts`. Where a
former owner left a large gap map, packs are small enough for it to fit into a row's detail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from pxrs_ray.errors import ConfigError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.pack_rules import (
    PACK_RECORDS_MAX,
    TABLE,
    Fate,
    Next,
    PackRules,
    SubmitStrategy,
    judge,
)
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.processing.scheduler import Item, Task, Work
from pxrs_ray.processing.submit_strategy import Submission, submission
from pxrs_ray.processing.suspects import decode_detail, encode_detail
from pxrs_ray.store.registry import DETAIL_CHARS_MAX

# How many characters one message that has killed its process takes in a row's detail, at most.
FAILING_CHARS = 12


@dataclass(frozen=True, slots=True)
class PackShape:
    """How packs are made and submitted; `batch_records` is for the strategy BATCH."""

    submit: SubmitStrategy
    pack_records: int
    batch_records: int

    def __post_init__(self) -> None:
        if not (1 <= self.pack_records <= PACK_RECORDS_MAX and self.batch_records >= 1):
            raise ConfigError(
                f"packs need pack_records of 1 to {PACK_RECORDS_MAX} and batch_records >= 1, "
                f"got {self}"
            )


class PackScheduler:
    """See the rules at the head of this file, and `WorkScheduler` for the contract."""

    def __init__(
        self,
        progress: Progress,
        shape: PackShape,
        rules: PackRules,
        policy: FailurePolicy,
        attempts_max: int = 0,
    ) -> None:
        assert policy is not FailurePolicy.QUARANTINE, "packs have no order to keep behind a key"
        self._shape, self._rules, self._policy = shape, rules, policy
        # Packs count rounds; what a message has failed by itself are deaths that it caused.
        self._gaps, self._failing, self._suspicion = decode_detail(
            progress.checkpoint, progress.detail
        )
        # Behind this offset nothing is known of any message.
        self._known_end = max(self._gaps.high, self._suspicion.end)
        self._attempts_max = attempts_max
        self._done_at_once = TABLE[rules.strategy][0] is Next.DONE
        self._rounds = progress.attempts
        # What was done since, which `_noted` notes in the gap map, run by run.
        self._done: list[Offset] = []
        self._end = progress.checkpoint
        self._waiting: deque[Item] = deque()
        self._pack_records = 0
        self._again: list[Item] = []
        self._resume_ms: int | None = None
        self._submission: Submission | None = None
        self._round: dict[Offset, Item] = {}
        self._fates: dict[Offset, Fate] = {}
        self._deadline_ms = 0
        self._running: set[Task] = set()
        self._give_up: deque[Item] = deque()
        self._giving_up = 0
        self._give_up_failures = 0
        self._give_up_from_ms = 0
        self._stopped_by: Item | None = None

    # --- what comes in ----------------------------------------------------------------------------

    def offer(self, items: Sequence[Item]) -> None:
        """Take the next messages; those that are done already are left out."""
        if items and self._known_end <= items[0].offset:
            assert items[0].offset >= self._end, "offers come in the order of offsets"
            self._waiting.extend(items)
            self._end = items[-1].offset + 1
            return
        for item in items:
            assert item.offset >= self._end, "offers come in the order of offsets"
            self._end = item.offset + 1
            if item.offset >= self._known_end:
                self._waiting.append(item)
            elif item.offset not in self._gaps:
                item.suspect = self._suspicion.of(item.offset)
                if not self._is_doomed(item):
                    self._waiting.append(item)

    def _is_doomed(self, item: Item) -> bool:
        """Whether it has killed too many processes to be in a pack: then the policy has it."""
        attempts = self._failing.get(item.offset, 0)
        if item.suspect is None or not item.suspect.is_doomed(attempts, self._attempts_max):
            return False
        item.attempts, item.error = attempts, item.suspect.told()
        if self._policy is FailurePolicy.STOP:
            self._stopped_by = self._stopped_by or item
        else:
            self._give_up.append(item)
        return True

    def skip(self, to: Offset) -> None:
        """The log has nothing before `to` that was not offered."""
        self._noted().add(self._end, to)
        self._end = max(self._end, to)

    def has_room(self) -> bool:
        """Whether the next pack is not yet full."""
        return len(self._waiting) < self._shape.pack_records

    # --- what goes out ----------------------------------------------------------------------------

    def take(self, now_ms: int, room: int) -> list[Task]:
        """Up to `room` tasks: first what is given up, then what the round may begin."""
        found: list[Task] = []
        if self._stopped_by is not None:
            return found
        while self._give_up and len(found) < room and now_ms >= self._give_up_from_ms:
            item = self._give_up.popleft()
            found.append(Task(Work.GIVE_UP, (item,), item.attempts))
            self._giving_up += 1
        if self._give_up or self._giving_up:
            return found
        if self._submission is None and not self._begin_round(now_ms):
            return found
        assert self._submission is not None
        attempt, begun = self._rounds, self._submission.begin(room - len(found))
        tasks = [Task(Work.HANDLE, (item,), attempt) for item in begun]
        self._running.update(tasks)
        return found + tasks if found else tasks

    def _begin_round(self, now_ms: int) -> bool:
        if self._again:
            if self._resume_ms is not None and now_ms < self._resume_ms:
                return False
            items, self._again, self._resume_ms = self._again, [], None
        elif self._waiting:
            most = self._shape.pack_records
            chars = DETAIL_CHARS_MAX - FAILING_CHARS * len(self._failing)
            count = self._noted().room_for([i.offset for i in islice(self._waiting, most)], chars)
            items = [self._waiting.popleft() for _ in range(count)]
            self._pack_records = len(items)
        else:
            return False
        self._rounds += 1
        self._round = {item.offset: item for item in items}
        self._fates = {}
        self._deadline_ms = now_ms + self._rules.timeout_ms
        self._submission = submission(self._shape.submit, items, self._shape.batch_records)
        return True

    # --- what happened ----------------------------------------------------------------------------

    def ended(self, task: Task, error: str | None, now_ms: int) -> None:
        """A task has ended; one that had timed out is not listened to."""
        if task.over:
            return
        task.over = True
        item = task.items[0]
        if task.work is Work.GIVE_UP:
            self._given_up(item, error, now_ms)
            return
        # What most messages need is here and not in calls: it is done for each of them.
        self._running.discard(task)
        if item.suspect is not None:
            self._acquit(item)
        if error is None:
            self._fates[item.offset] = Fate.SUCCEEDED
            item.error = ""
            if self._done_at_once:
                self._done.append(item.offset)
        else:
            self._fates[item.offset] = Fate.FAILED
            item.error = error
        assert self._submission is not None
        self._submission.ended(item)
        if len(self._fates) == len(self._round):
            self._round_over(now_ms)

    def _given_up(self, item: Item, error: str | None, now_ms: int) -> None:
        self._giving_up -= 1
        if error is not None:
            self._give_up.appendleft(item)
            self._give_up_failures += 1
            self._give_up_from_ms = now_ms + max(
                1, self._rules.pause_before(self._give_up_failures)
            )
            return
        self._give_up_failures = 0
        self._acquit(item)
        self._done.append(item.offset)
        self._pack_over()

    def _noted(self) -> DoneRanges:
        """The gap map, with everything that is done by now."""
        if self._done:
            self._gaps.add_each(self._done)
            self._done.clear()
        return self._gaps

    def _acquit(self, item: Item) -> None:
        """Its call has ended: it is not what killed a process."""
        if item.suspect is not None:
            item.suspect = None
            self._failing.pop(item.offset, None)
            self._suspicion = self._suspicion.without(item.offset)

    def expire(self, now_ms: int) -> list[Task]:
        """When the pack has taken its time: what is unfinished has timed out, or is named."""
        if self._submission is None or now_ms < self._deadline_ms:
            return []
        late = sorted(self._running, key=lambda task: task.item.offset)
        if self._rules.waits_for_late():
            self._deadline_ms = now_ms + self._rules.timeout_ms
            return late
        for task in late:
            task.over = True
        for offset, item in self._round.items():
            if offset not in self._fates:
                self._fates[offset] = Fate.TIMED_OUT
                ms = self._rules.timeout_ms
                item.error = f"HandlerTimeout: not done when its pack had taken {ms} ms"
        self._round_over(now_ms)
        return late

    def _round_over(self, now_ms: int) -> None:
        self._submission = None
        self._running.clear()
        verdict = judge(self._rules, self._fates, self._rounds, self._pack_records)
        for offset, item in self._round.items():
            match verdict[offset]:
                case Next.DONE:
                    if not (self._done_at_once and self._fates[offset] is Fate.SUCCEEDED):
                        self._done.append(offset)
                case Next.AGAIN:
                    self._again.append(item)
                case Next.GIVE_UP:
                    item.attempts = self._rounds
                    self._give_up.append(item)
        if self._give_up and self._policy is FailurePolicy.STOP:
            self._stopped_by = self._give_up[0]
            return
        if self._again:
            self._resume_ms = now_ms + self._rules.pause_before(self._rounds)
        self._pack_over()

    def _pack_over(self) -> None:
        if not (self._again or self._give_up or self._giving_up or self._submission):
            self._rounds = 0

    # --- how far it is ----------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """The end of the pause, or of the pack's time."""
        if self._stopped_by is not None:
            return None
        if self._give_up:
            return self._give_up_from_ms
        return self._resume_ms if self._submission is None else self._deadline_ms

    def progress(self) -> Progress:
        """Where the partition is; a round that is under way does not count as an attempt yet."""
        failed = self._rounds - (self._submission is not None)
        low = self._noted().low
        if not self._suspicion:
            return Progress(low, max(0, failed), self._gaps.encode())
        self._suspicion = self._suspicion.above(low)
        failing = {o: n for o, n in self._failing.items() if o >= low}
        detail = encode_detail(self._gaps, failing, self._suspicion)
        return Progress(low, max(0, failed), detail)

    @property
    def stopped_by(self) -> Item | None:
        """The first message that failed for good under the policy to stop."""
        return self._stopped_by
