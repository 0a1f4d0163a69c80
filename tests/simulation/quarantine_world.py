"""A world of one partition's quarantine: `KeyLanes`, `Quarantine` and `Redrive` as they ship.

Rules of this file. Owners follow one another, some after a crash between any two steps: each
begins with what was committed, and with the quarantine's log. Handlers fail with some messages
until they are mended; operators ask for keys to be re-driven. What handlers did is all that is
judged: `run(seed)` answers what was broken of it.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

from pxrs_ray.errors import BufferAway
from pxrs_ray.model import Message, Offset, Progress
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.numbered_appends import NumberedAppends
from pxrs_ray.processing.quarantine_state import Quarantine, QuarantineRecord, headers_of, restored
from pxrs_ray.processing.redrive import GiveAgain, LetFlow, Note, Redrive, WaitUntil
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.scheduler import Item, Work
from tests.settings import lane_rules

MESSAGES = 60
KEYS = 4
RULES = RetryRules(2, 1, 2, FailurePolicy.QUARANTINE)
LANES = lane_rules(RULES)
LIVES = 12
STEPS_MAX = 4_000
# What is sent does not arrive, or its answer does not.
LOST, UNHEARD = 0.1, 0.15


class QuarantineWorld:
    """The partition, its quarantine's log, and what was done."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"quarantine {seed}")
        self.broken: list[str] = []
        self.now_ms = 0
        self.committed = Progress(0)
        self.log: list[Message] = []
        # What the log has taken, by owner and number.
        self._taken: dict[tuple[int, int], tuple[Message, ...]] = {}
        self.bad = {o for o in range(MESSAGES) if self.dice.random() < 0.15}
        self.done: dict[bytes, list[Offset]] = {}
        # What may come again: it was done, and not noted or committed, when its owner died.
        self.may_repeat: set[Offset] = set()

    def key(self, offset: Offset) -> bytes:
        """Whose a message is."""
        return b"%d" % (offset * 7 % KEYS)

    def append(self, *messages: Message) -> None:
        """Keep records in the log."""
        for message in messages:
            self.log.append(replace(message, offset=len(self.log)))

    def take(self, owner: int, sequence: int, messages: tuple[Message, ...]) -> None:
        """Keep what an owner sends; under a number that was taken only the same comes again."""
        known = self._taken.get((owner, sequence))
        if known is None:
            self._taken[owner, sequence] = messages
            self.append(*messages)
        elif known != messages:
            self.broken.append(f"owner {owner} sends something else as its number {sequence}")

    def handled(self, offset: Offset) -> None:
        """A handler has done a message: judge its place among those of its key."""
        done = self.done.setdefault(self.key(offset), [])
        if offset in done:
            if offset not in self.may_repeat:
                self.broken.append(f"{offset} was done twice")
            return
        before = [o for o in range(offset) if self.key(o) == self.key(offset) and o not in done]
        if before:
            self.broken.append(f"{offset} was done before {before} of its key")
        done.append(offset)

    def play(self) -> None:
        """Owner after owner; the last one has mended handlers, and all is asked for again."""
        for life in range(LIVES):
            is_last = life == LIVES - 1
            if is_last:
                self.bad.clear()
            _Owner(self, life, is_last=is_last).live()
        done = sorted(offset for of_key in self.done.values() for offset in of_key)
        if done != list(range(MESSAGES)):
            self.broken.append(f"lost {sorted(set(range(MESSAGES)) - set(done))}")


class _Owner:
    """One ownership of the partition."""

    def __init__(self, world: QuarantineWorld, life: int, *, is_last: bool) -> None:
        self._world, self._dice, self._is_last = world, world.dice, is_last
        self._life = life
        self._appends: NumberedAppends[tuple[Message, ...]] = NumberedAppends()
        self._state = Quarantine()
        self._redrive = Redrive(self._state, RULES)
        self._lanes = KeyLanes(world.committed, LANES)
        self._next = world.committed.checkpoint
        # Done since the last commit, or in hand at the quarantine.
        self._uncommitted: set[Offset] = set()
        # Re-driven, and that may not be in the log.
        self._unnoted: set[Offset] = set()
        self._in_round = False
        self._load()
        for key in self._redrive.parked():
            self._lanes.park(key)

    def _refresh(self) -> None:
        self._appends.send(self._send)
        if not self._is_last and self._dice.random() < LOST:
            raise BufferAway("nothing can be read")
        for record in self._world.log[self._state.next_position :]:
            self._state.apply(record)
        self._appends.read()

    def _load(self) -> None:
        """Until it can be read: nothing is done before."""
        while True:
            with suppress(BufferAway):
                self._refresh()
                return

    def _append(self, *messages: Message) -> None:
        self._appends.add(messages)
        self._refresh()

    def _send(self, messages: tuple[Message, ...], number: int) -> None:
        """To a buffer that is away now and then, or whose answer is lost."""
        luck = 1.0 if self._is_last else self._dice.random()
        if luck >= LOST:
            self._world.take(self._life, number, messages)
        if luck < LOST + UNHEARD:
            raise BufferAway("no answer")
        self._unnoted.clear()

    def _note(self, note: Note) -> None:
        headers = headers_of(note.kind, **dict(note.values))
        self._append(Message(0, -1, note.key, b"", self._world.now_ms, headers))

    def live(self) -> None:
        """Work until the end comes, which is a crash but for the last owner."""
        steps = STEPS_MAX if self._is_last else self._dice.randrange(200)
        for _ in range(steps):
            self._world.now_ms += 1
            self._offer()
            self._work()
            self._ask()
            self._drive()
            if self._dice.random() < 0.1 or self._is_last:
                self._commit()
            if self._is_last and self._world.committed.checkpoint == MESSAGES and not self._state:
                return
        self._world.may_repeat |= self._uncommitted | self._unnoted

    def _commit(self) -> None:
        self._world.committed = self._lanes.progress()
        self._uncommitted.clear()

    def _offer(self) -> None:
        if self._next < MESSAGES and self._lanes.has_room() and self._dice.random() < 0.5:
            key = self._world.key(self._next)
            self._lanes.offer([Item(self._next, key, message=self._next)])
            self._next += 1

    def _work(self) -> None:
        for task in self._lanes.take(self._world.now_ms, 3):
            error: str | None = None
            if task.work is Work.PARK:
                try:
                    self._park(task.items)
                except BufferAway:
                    error = "away"
            elif task.item.offset in self._world.bad:
                error = "bad"
            else:
                self._world.handled(task.item.offset)
            self._uncommitted |= {item.offset for item in task.items}
            self._lanes.ended(task, error, self._world.now_ms)

    def _park(self, items: tuple[Item, ...]) -> None:
        if not self._appends.is_settled:
            self._refresh()
        if fresh := self._redrive.fresh(items):
            self._append(*(self._record(item) for item in fresh))

    def _record(self, item: Item) -> Message:
        told = headers_of(
            QuarantineRecord.PARKED, offset=item.offset, attempts=item.attempts, error="bad"
        )
        return Message(0, -1, item.key, b"", self._world.now_ms, told)

    def _ask(self) -> None:
        """Operators: some messages are mended, and keys are asked for."""
        if self._dice.random() < 0.02 and self._world.bad:
            self._world.bad.discard(self._dice.choice(sorted(self._world.bad)))
        for key, aside in list(self._state.keys.items()):
            if not aside.retrying and (self._is_last or self._dice.random() < 0.05):
                self._world.append(Message(0, -1, key, b"", 0, headers_of(QuarantineRecord.RETRY)))
                with suppress(BufferAway):
                    self._refresh()

    def _drive(self) -> None:
        """One step of re-driving; one that failed ends its round."""
        try:
            self._step()
        except BufferAway:
            self._in_round = False

    def _step(self) -> None:
        if not self._in_round:
            self._refresh()
            self._redrive.begin()
        now_s = self._world.now_ms / 1_000
        step = self._redrive.next(now_s)
        self._in_round = step is not None
        if isinstance(step, LetFlow):
            flows = self._lanes.unpark(step.key) if step.key is not None else True
            note = self._redrive.freed(step, flows=flows, now_s=now_s)
            if note is not None:
                self._note(note)
        elif isinstance(step, GiveAgain):
            self._give_again(step, now_s)
        else:
            assert step is None or isinstance(step, WaitUntil)

    def _give_again(self, step: GiveAgain, now_s: float) -> None:
        offset = restored(self._world.log[step.entry.position], 0).offset
        if offset in self._world.bad:
            note = self._redrive.failed(step, "bad", now_s)
        else:
            self._world.handled(offset)
            self._unnoted.add(offset)
            note = self._redrive.worked(step)
        if note is not None:
            self._note(note)


def run(seed: int) -> list[str]:
    """What was broken in the world of this seed."""
    world = QuarantineWorld(seed)
    world.play()
    return world.broken
