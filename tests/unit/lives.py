"""One partition worked by one owner after another, each killed at a commit: what all of them did.

Rules of this file. The session and the courses are the real ones; the log, the worker and the row
in the registry are models of a few lines. Whoever calls decides what happens next (`Choose`), so a
run is told by its choices. A life ends where its caller wants; the next one begins from the row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pxrs_ray.config import GroupConfig, Packs
from pxrs_ray.config.scheduling import scheduler_for
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.group.events import Assignment
from pxrs_ray.model import Grant, Offset, Outcome, Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.scheduler import Item, Task, Work
from pxrs_ray.store.registry import DETAIL_CHARS_MAX

# A number from 0 up to, not including, the one that is given.
Choose = Callable[[int], int]

MEMBER = "c"
ROOM = 6
STEPS_MAX = 20_000


def by_seed(seed: int) -> Choose:
    """Choices of a seed."""
    return random.Random(seed).randrange


class InOrder:
    """`SequentialWorker` as a scheduler: one message at a time, tried until it succeeds."""

    stopped_by = None

    def __init__(self, progress: Progress) -> None:
        self._next, self._attempts = progress.checkpoint, progress.attempts
        self._waiting: list[Item] = []
        self._busy = False

    def offer(self, items: Sequence[Item]) -> None:
        assert not items or not self._waiting or items[0].offset > self._waiting[-1].offset
        self._waiting += items

    def skip(self, to: Offset) -> None:
        self._next = to

    def has_room(self) -> bool:
        return not self._waiting and not self._busy

    def take(self, now_ms: int, room: int) -> list[Task]:
        if self._busy or not self._waiting or not room:
            return []
        self._busy = True
        return [Task(Work.HANDLE, (self._waiting[0],), self._attempts + 1)]

    def ended(self, task: Task, error: str | None, now_ms: int) -> None:
        self._busy = False
        if error is not None:
            self._attempts += 1
            return
        self._attempts, self._next = 0, self._waiting.pop(0).offset + 1

    def expire(self, now_ms: int) -> list[Task]:
        return []

    def due_ms(self) -> int | None:
        return None

    def progress(self) -> Progress:
        return Progress(self._next, self._attempts)


@dataclass
class Log:
    """The messages of the partition: their keys; where frames begin; where the log begins now."""

    keys: list[bytes | None]
    frames: list[Offset]
    start: Offset = 0
    gone: set[Offset] = field(default_factory=set)

    @classmethod
    def of(cls, count: int, keys: int, choose: Choose) -> Log:
        found: list[bytes | None] = [
            None if choose(8) == 0 else b"k%d" % choose(keys) for _ in range(count)
        ]
        frames, at = [0], 0
        while at < count:
            at += 1 + choose(12)
            frames.append(min(at, count))
        return cls(found, frames)

    @property
    def end(self) -> Offset:
        return len(self.keys)

    def read(self, offset: Offset) -> range:
        """What is left of the frame in which `offset` is."""
        end = next(frame for frame in self.frames if frame > offset)
        return range(offset, end)

    def truncate(self, start: Offset) -> None:
        self.gone |= set(range(self.start, start))
        self.start = max(self.start, start)


class Lives:
    """The partition's row, and everything that was ever done with its messages."""

    def __init__(self, log: Log, choose: Choose) -> None:
        self.log, self.choose = log, choose
        self.row = Grant(0, 1, 0)
        self.commits = 0
        self.settled: set[Offset] = set()
        self.begun: list[tuple[int, Offset]] = []
        self._in_order = True
        self._of_key: dict[bytes | None, list[Offset]] = {}
        for offset, key in enumerate(log.keys):
            self._of_key.setdefault(key, []).append(offset)

    def begin(self, config: GroupConfig) -> Life:
        """The next owner's life."""
        self.row = replace(self.row, epoch=self.row.epoch + 1)
        self._in_order = self._in_order and not isinstance(config.processing, Packs)
        return Life(self, config)

    def begins(self, life: Life, offset: Offset) -> None:
        assert offset not in life.done_before, f"{offset} was written down as done"
        self.begun.append((life.epoch, offset))
        key = self.log.keys[offset]
        if self._in_order and key is not None:
            early = [o for o in self._of_key[key] if o < offset]
            open_ = [o for o in early if o not in self.settled and o not in self.log.gone]
            assert not open_, f"{offset} of key {key!r} was begun before {open_}"

    def store(self, row: Grant) -> None:
        assert len(row.detail) <= DETAIL_CHARS_MAX
        gaps, _ = DoneRanges.decode(row.checkpoint, row.detail)
        known = self.settled | self.log.gone
        claimed = {o for o in range(min(gaps.high, self.log.end)) if o in gaps}
        assert claimed <= known, f"never handled: {sorted(claimed - known)[:5]}"
        self.row = row
        self.commits += 1

    def all_done(self) -> bool:
        return self.row.checkpoint == self.log.end

    def check_end(self) -> None:
        """Every message was handled, and the row says so and nothing more."""
        assert self.settled | self.log.gone >= set(range(self.log.end))
        assert self.row.detail == "" and self.row.attempts == 0


class Life:
    """One owner: a session, its worker's scheduler, and what is in flight."""

    def __init__(self, lives: Lives, config: GroupConfig) -> None:
        self.lives, self.epoch = lives, lives.row.epoch
        row = lives.row
        self.session = ConsumerSession(MEMBER, self.epoch, self)
        self.session.assign(
            Assignment(1, self.epoch, MEMBER, self.epoch, (row,), frozenset(), 1_000, False, False)
        )
        progress = row.progress
        scheduler = scheduler_for(config, progress)
        self.scheduler = InOrder(progress) if scheduler is None else scheduler
        gaps, _ = DoneRanges.decode(row.checkpoint, row.detail)
        self.done_before = {o for o in range(lives.log.end) if o in gaps} if scheduler else set()
        self.queue: list[list[Item] | Offset] = []
        self.reads: list[Offset] = []
        self.running: list[Task] = []
        self.now_ms = 0

    # --- steps ----------------------------------------------------------------------------------

    def step(self) -> None:
        """One step, whichever is chosen."""
        steps = (self.ask, self.fetch, self.turn, self.turn, self.end, self.end, self.wait)
        steps[self.lives.choose(len(steps))]()

    def ask(self) -> None:
        """Ask the log for what comes next; the answer may take a while, and be out of date."""
        for _, offset in self.session.to_fetch(1).values():
            if len(self.reads) < 2:
                self.reads.append(offset)

    def fetch(self) -> None:
        """An answer comes."""
        log = self.lives.log
        if not self.reads:
            return
        offset = self.reads.pop(0)
        if offset < log.start:
            if self.session.skip(0, self.epoch, offset, log.start):
                self.queue.append(log.start)
            return
        if offset < log.end:
            found = log.read(offset)
            if self.session.fetched(0, self.epoch, offset, len(found)):
                self.queue.append([Item(o, log.keys[o], size_bytes=1) for o in found])

    def turn(self) -> None:
        """What the worker's thread does each time it is woken."""
        for late in self.scheduler.expire(self.now_ms):
            if late.over:
                self.running.remove(late)
        while self.queue and self.scheduler.has_room():
            taken = self.queue.pop(0)
            if isinstance(taken, int):
                self.scheduler.skip(taken)
            else:
                self.scheduler.offer(taken)
        for task in self.scheduler.take(self.now_ms, ROOM - len(self.running)):
            if task.work is Work.HANDLE:
                self.lives.begins(self, task.item.offset)
            self.running.append(task)

    def end(self) -> None:
        """A call ends; one in four fails."""
        if not self.running:
            return
        choose = self.lives.choose
        task = self.running.pop(choose(len(self.running)))
        error = "failed" if task.work is Work.HANDLE and choose(4) == 0 else None
        if error is None:
            self.lives.settled |= {item.offset for item in task.items}
        self.scheduler.ended(task, error, self.now_ms)

    def wait(self) -> None:
        """Time passes."""
        due_ms = self.scheduler.due_ms()
        self.now_ms = self.now_ms + 1 if due_ms is None else max(self.now_ms + 1, due_ms)

    def progress(self, partition: int, epoch: int) -> Progress:
        """How far the worker is."""
        return self.scheduler.progress()

    def queued_bytes(self, partition: int) -> int:
        """It always has room."""
        return 0

    def commit(self, *, answered: bool = True) -> None:
        """The row is stored; its answer may be lost with the process."""
        for row in rows if (rows := self.session.to_commit()) else ():
            done = row.progress
            grant = Grant(0, self.epoch, done.checkpoint, done.attempts, done.detail)
            self.lives.store(grant)
            if answered:
                self.session.committed((row,), (Outcome.APPLIED,))

    def begin_again(self, config: GroupConfig) -> None:
        """The worker has ended with a fault: what it was at is over, and another one goes on."""
        grant = self.session.begin_again(0, self.epoch)
        self.running.clear()
        self.queue.clear()
        assert grant is not None
        progress = grant.progress
        scheduler = scheduler_for(config, progress)
        self.scheduler = InOrder(progress) if scheduler is None else scheduler

    def finish(self) -> None:
        """Go on until everything is done. Raises AssertionError when that does not come."""
        for number in range(STEPS_MAX):
            self.step()
            if self.lives.choose(4) == 0:
                self.session.to_commit()
            if number % 50 == 0:
                self.commit()
                if self.lives.all_done():
                    return
        raise AssertionError(f"not done after {STEPS_MAX} steps: {self.scheduler.progress()}")
