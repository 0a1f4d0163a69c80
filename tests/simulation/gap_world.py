"""A world of one partition's gap log: `KeyLanes`, its `GapMap` and `NumberedAppends` as they ship.

Rules of this file. Owners follow one another, some after a crash between any two steps, and some
that do not know yet that another one has the partition: each begins with the row and reads the log
that it names. The log refuses an owner once a later one has written; it is away now and then, its
answer is lost, its disk is full for a while, and now and then it has lost its oldest records. It
has replicas, too: another one leads now and then, and what was not acknowledged may be gone, also
what it knew of who wrote. A seek sets the row back, and all is to be done again. No clock is in it.
What handlers did is all that is judged, and that no owner keeps more than two records waiting:
`run(seed)` answers what was broken.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

from pxrs_ray.errors import BufferAway, DeadlineExceeded, DiskFull, Fenced, PxrsError
from pxrs_ray.model import Epoch, Offset, Progress
from pxrs_ray.processing.done_ranges import DoneRanges, named_in
from pxrs_ray.processing.gap_map import GapRecord
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.numbered_appends import NumberedAppends
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.scheduler import Item
from tests.settings import lane_rules

MESSAGES = 300
KEYS = 150
# Keys of which no message is done for long: every other offset is a gap.
HELD = range(0, KEYS, 2)
LANES = lane_rules(RetryRules(0, 1, 2, FailurePolicy.SKIP), detail_chars=150, gap_log=True)
LIVES = 7
AT_ONCE = 64
STEPS_MAX = 3_000
LOST, UNHEARD = 0.1, 0.15
# How often another replica leads, and a disk is full, in a step; and for how many steps it is.
LEADS_ELSEWHERE, FILLS, FULL_STEPS = 0.02, 0.02, 40
# The one that the log may have, and the newest.
WAITING_MAX = 2


@dataclass
class Log:
    """The log: what was taken, by owner and number, and what is still there."""

    records: list[bytes] = field(default_factory=list)
    start: Offset = 0
    epoch: Epoch = -1
    taken: dict[tuple[Epoch, int], Offset] = field(default_factory=dict)
    # What is before it was acknowledged, and is on every replica in sync.
    safe: Offset = 0
    epoch_of_safe: Epoch = -1
    is_full: bool = False

    def take(self, epoch: Epoch, number: int, texts: tuple[bytes, ...]) -> Offset:
        """Where it is now. Raises what the real one refuses with."""
        if (epoch, number) in self.taken:
            return self.taken[epoch, number]
        if epoch < self.epoch:
            raise Fenced("a later owner has written")
        if self.is_full:
            raise DiskFull("no room")
        self.epoch = epoch
        self.taken[epoch, number] = base = len(self.records)
        self.records += texts
        return base

    def acknowledge(self) -> None:
        """All that is there is on every replica in sync, and is told."""
        self.safe, self.epoch_of_safe = len(self.records), self.epoch

    def lead_elsewhere(self) -> None:
        """Another replica leads, which has nothing of what was not acknowledged."""
        del self.records[self.safe :]
        self.taken = {of: base for of, base in self.taken.items() if base < self.safe}
        self.epoch = self.epoch_of_safe


class GapWorld:
    """The partition, its row and its gap log, and what was done."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"gaps {seed}")
        self.broken: list[str] = []
        self.row, self.epoch = Progress(0), 0
        self.log = Log()
        self.now_ms = 0
        self.done: set[Offset] = set()
        self.may_repeat: set[Offset] = set()
        # The most gaps that were passed over at once: or this world shows nothing.
        self.gaps_most = 0
        self.restored = 0
        self.loses = self.dice.random() < 0.3
        self.full_until = 0
        self.leads = self.full = self.waiting_most = 0

    def commit(self, epoch: Epoch, progress: Progress) -> bool:
        """Into the row, which refuses an owner whose time is over."""
        if epoch != self.epoch:
            return False
        self.row = progress
        return True

    def handled(self, offset: Offset) -> None:
        """A handler has done a message."""
        if offset in self.done and offset not in self.may_repeat:
            self.broken.append(f"{offset} was done twice")
        self.done.add(offset)

    def pass_step(self, *, calm: bool) -> None:
        """Time passes for the log."""
        self.now_ms += 1
        if self.dice.random() < LEADS_ELSEWHERE:
            self.leads += 1
            self.log.lead_elsewhere()
        if not calm and self.dice.random() < FILLS:
            self.full += 1
            self.full_until = self.now_ms + FULL_STEPS
        self.log.is_full = self.now_ms < self.full_until

    def seek(self, to: Offset) -> None:
        """From there on all is to be done again."""
        self.row, self.epoch = Progress(to), self.epoch + 1
        self.done = set(range(to))  # also what it passes over
        self.may_repeat = {offset for offset in self.may_repeat if offset < to}

    def play(self) -> None:
        """Owner after owner; the last one does everything."""
        before: _Owner | None = None
        for life in range(LIVES):
            is_last = life == LIVES - 1
            if self.dice.random() < 0.15 and not is_last:
                self.seek(self.dice.randrange(MESSAGES // 2))
                before = None
            self.epoch += 1
            if self.loses and self.dice.random() < 0.3:
                self.lose()
            owner = _Owner(self, is_last=is_last)
            owner.live(before)
            before = owner if self.dice.random() < 0.5 else None
        if self.row.checkpoint != MESSAGES or len(self.done) != MESSAGES:
            self.broken.append(f"lost {sorted(set(range(MESSAGES)) - self.done)}")
        if self.waiting_most > WAITING_MAX:
            self.broken.append(f"{self.waiting_most} records waited for the log")

    def lose(self) -> None:
        """The log has dropped, or damaged, some of what it had: that may come again."""
        if not self.log.records:
            return
        at = self.dice.randrange(len(self.log.records))
        if self.dice.random() < 0.5:
            self.log.start = max(self.log.start, at)
        else:
            self.log.records[at] = self.dice.choice((b"", b"\xff", b"1:;", b"00;9:"))
        self.may_repeat |= self.done


class _Owner:
    """One ownership of the partition."""

    def __init__(self, world: GapWorld, *, is_last: bool) -> None:
        self._world, self._dice, self._is_last = world, world.dice, is_last
        self.epoch = world.epoch
        self._lanes = KeyLanes(world.row, LANES)
        self._next = world.row.checkpoint
        self._appends: NumberedAppends[tuple[bytes, ...]] = NumberedAppends()
        # It is carried to the log by a thread of its own.
        self._record: GapRecord | None = None
        self._uncommitted: set[Offset] = set()
        self._told = self._known_done()

    def _known_done(self) -> set[Offset]:
        """What the row and the log that it names say is done, as its next owner reads them."""
        row, log = self._world.row, self._world.log
        lanes = KeyLanes(row, LANES)
        if (named := lanes.named_gaps) is not None:
            texts = log.records[max(named.base, log.start) : named.end]
            self._world.restored += lanes.restore_gaps(texts)
        return {o for o in range(MESSAGES) if o in lanes._map.done}

    def live(self, before: _Owner | None) -> None:
        """Work until the end comes, which is a crash but for the last owner."""
        world = self._world
        if (named := self._lanes.named_gaps) is not None:
            log = world.log
            late = [bytes(text) for text in log.records[named.end :]]
            texts = log.records[max(named.base, log.start) : named.end]
            # Whoever reads may see more than is named, and of others.
            self._lanes.restore_gaps([*texts, *(late if self._dice.random() < 0.5 else ())])
        steps = STEPS_MAX if self._is_last else self._dice.randrange(250)
        for _ in range(steps):
            world.pass_step(calm=self._is_last)
            if before is not None and self._dice.random() < 0.2:
                before.go_on_unaware()
            self._step(drains=self._is_last)
            if self._dice.random() < 0.2 or self._is_last:
                self._commit()
            if self._is_last and world.row.checkpoint == MESSAGES:
                return
        world.may_repeat |= self._uncommitted

    def go_on_unaware(self) -> None:
        """It has not heard that its time is over: what it does counts for nothing."""
        self._write()
        assert not self._world.commit(self.epoch, self._lanes.progress())

    def _commit(self) -> None:
        progress = self._lanes.progress()
        if not self._world.commit(self.epoch, progress):
            return
        told = self._known_done()
        if not self._world.loses and (gone := self._told - told):
            self._world.broken.append(f"{sorted(gone)} were told, and are not any more")
        if wrong := told - self._world.done:
            self._world.broken.append(f"{sorted(wrong)} were told as done, and are not")
        self._told = told
        self._uncommitted -= told
        gaps, _ = DoneRanges.decode(progress.checkpoint, progress.detail)
        assert len(progress.detail) <= LANES.detail_chars
        if (named := named_in(progress.checkpoint, progress.detail)) is not None:
            assert named.epoch <= self.epoch, gaps

    def _step(self, *, drains: bool) -> None:
        world, lanes = self._world, self._lanes
        while self._next < MESSAGES and lanes.has_room():
            lanes.offer([Item(self._next, b"%d" % (self._next % KEYS), message=self._next)])
            self._next += 1
        for task in lanes.take(world.now_ms, AT_ONCE):
            offset = task.item.offset
            holds = offset % KEYS in HELD and not drains and self._dice.random() < 0.99
            if holds:
                lanes.ended(task, "later", world.now_ms)
                continue
            world.handled(offset)
            self._uncommitted.add(offset)
            lanes.ended(task, None, world.now_ms)
        self._write()
        done = lanes._map.done
        world.gaps_most = max(world.gaps_most, len(done))

    def _write(self) -> None:
        """As `GapKeeper` does it: one record at a time, and what comes of it a while later."""
        if self._record is None:
            self._record = self._lanes.gap_record(self.epoch)
        elif self._dice.random() < 0.7:
            record, self._record = self._record, None
            base = None
            self._appends.replace(record.texts)
            with suppress(PxrsError):
                base = self._appends.send(self._send)
            self._world.waiting_most = max(self._world.waiting_most, len(self._appends))
            self._lanes.gaps_kept(record, base)

    def _send(self, texts: tuple[bytes, ...], number: int) -> Offset:
        """To a buffer that is away now and then, or whose answer is lost."""
        luck = self._dice.random()
        if luck < LOST:
            raise BufferAway("it is away")
        base = self._world.log.take(self.epoch, number, texts)
        if luck < LOST + UNHEARD:
            raise DeadlineExceeded("no answer")
        self._world.log.acknowledge()
        return base


def run(seed: int) -> tuple[list[str], GapWorld]:
    """What was broken in the world of this seed."""
    world = GapWorld(seed)
    world.play()
    return world.broken, world
