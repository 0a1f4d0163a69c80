"""A world of readers of one external queue: sessions and `SourcePlan` as they ship, and chance.

Rules of this file. The queue grows, with gaps, bad records and records without a key. Its virtual
partitions move between members, cleanly or by a death; a member is cut off for a while, reads
late, and its source fails. What handlers did is all that is judged: `run(seed)` answers what was
broken of it.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.consumer.source_plan import HandOn, SourcePlan, SourceRead
from pxrs_ray.group.events import Assignment
from pxrs_ray.model import Epoch, Grant, Offset, PartitionId, Progress
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.sources.soundness import sound
from pxrs_ray.sources.source import SourceRecord

PARTITIONS = 4
MEMBERS = 3
STEPS = 300
SETTLE = 400
BYTES_MAX = 6


@dataclass(slots=True)
class _Work:
    """One partition in one member's hands, under one epoch."""

    epoch: Epoch
    at: Offset
    waiting: deque[tuple[Offset, bytes | None] | Offset] = field(default_factory=deque)
    queued_bytes: int = 0


class _Member:
    """One reader, and its handler."""

    def __init__(self, world: SourceWorld, number: int) -> None:
        self.world, self.name = world, f"m{number}"
        self.works: dict[PartitionId, _Work] = {}
        self.session = ConsumerSession(self.name, 1, self)
        self.plan = SourcePlan(PartitioningSpec(PARTITIONS))
        self.cut = False
        # What was read, and has not come yet.
        self._coming: tuple[SourceRead, list[SourceRecord]] | None = None

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the handler is."""
        work = self.works.get(partition)
        return Progress(work.at) if work is not None and work.epoch == epoch else None

    def queued_bytes(self, partition: PartitionId) -> int:
        """What waits for the handler."""
        work = self.works.get(partition)
        return work.queued_bytes if work is not None else 0

    def told(self, sequence: int, grants: tuple[Grant, ...]) -> None:
        """A new assignment."""
        changes = self.session.assign(Assignment(1, sequence, self.name, 1, grants))
        for partition in changes.dropped:
            del self.works[partition]
        for grant in changes.started:
            self.works[grant.partition] = _Work(grant.epoch, grant.checkpoint)

    def read(self) -> None:
        """Read once, or let come what was read: between the two anything may happen."""
        if self._coming is not None:
            read, records = self._coming
            self._coming = None
            for part in self.plan.came(read, records, self.session, is_over=self.cut):
                self._take_in(part)
            return
        found = self.plan.next(self.session, BYTES_MAX, is_over=self.cut)
        if found is None:
            return
        if self.world.dice.random() < 0.1:
            self.plan.failed()
            return
        self._coming = found, self.world.read(found.lowest)

    def _take_in(self, part: HandOn) -> None:
        work = self.works[part.partition]
        if self.cut or work.epoch != part.epoch:
            self.world.broken.append(f"{self.name} took {part} in, which is not surely its own")
        if part.batch is None:
            work.waiting.append(part.to)
            return
        work.waiting.extend((message.offset, message.key) for message in part.batch)
        work.queued_bytes += part.size_bytes

    def work(self) -> None:
        """Handle some of what waits."""
        for partition, work in self.works.items():
            for _ in range(self.world.dice.randrange(4)):
                if self.cut or not work.waiting:
                    break
                found = work.waiting.popleft()
                if isinstance(found, int):
                    work.at = found
                    continue
                self.world.handled(partition, work.epoch, found[0])
                work.queued_bytes -= 1
                work.at = found[0] + 1


class SourceWorld:
    """The queue, who owns what, and what was done."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"source {seed}")
        self.broken: list[str] = []
        self._records: list[SourceRecord] = []
        self._end: Offset = 0
        self._sequence = 0
        self._owner: dict[PartitionId, int] = dict.fromkeys(range(PARTITIONS), 0)
        self._epochs: dict[PartitionId, Epoch] = dict.fromkeys(range(PARTITIONS), 1)
        self._committed: dict[PartitionId, Offset] = dict.fromkeys(range(PARTITIONS), 0)
        self._handled: dict[Offset, PartitionId] = {}
        self._latest: dict[tuple[PartitionId, Epoch], Offset] = {}
        self._members = [_Member(self, number) for number in range(MEMBERS)]
        self._tell()

    def read(self, lowest: Offset) -> list[SourceRecord]:
        """What a source answers: the first of what is there."""
        found = [sound(record) for record in self._records if record.offset >= lowest]
        return found[: self.dice.randint(1, 8)]

    def handled(self, partition: PartitionId, epoch: Epoch, offset: Offset) -> None:
        """A handler has done a record: judge that."""
        if self._handled.setdefault(offset, partition) != partition:
            self.broken.append(f"{offset} is of {self._handled[offset]}, and of {partition}")
        if offset <= self._latest.get((partition, epoch), -1):
            self.broken.append(f"{offset} came after {self._latest[partition, epoch]}")
        self._latest[partition, epoch] = offset

    def _tell(self) -> None:
        self._sequence += 1
        for number, member in enumerate(self._members):
            grants = tuple(
                Grant(p, self._epochs[p], self._committed[p])
                for p, owner in self._owner.items()
                if owner == number
            )
            member.told(self._sequence, grants)

    def _commit(self, partition: PartitionId) -> None:
        work = self._members[self._owner[partition]].works.get(partition)
        if work is not None and work.epoch == self._epochs[partition]:
            self._committed[partition] = work.at

    def _move(self) -> None:
        partition = self.dice.randrange(PARTITIONS)
        if self.dice.random() < 0.5:  # cleanly: nothing of it comes again
            self._commit(partition)
        self._owner[partition] = self.dice.randrange(MEMBERS)
        self._epochs[partition] += 1
        self._tell()

    def _grow(self) -> None:
        for _ in range(self.dice.randrange(4)):
            self._end += self.dice.choice((1, 1, 1, 5))
            key = self.dice.choice((None, b"%d" % self.dice.randrange(9)))
            error = self.dice.choice(("", "", "", "bad"))
            self._records.append(SourceRecord(self._end, key, b"x", error=error))

    def play(self) -> None:
        """Trouble, then quiet, until everything is done."""
        for step in range(STEPS + SETTLE):
            is_quiet = step >= STEPS
            if not is_quiet:
                self._grow()
                if self.dice.random() < 0.1:
                    self._move()
            for member in self._members:
                member.cut = not is_quiet and self.dice.random() < 0.2
                member.read()
                member.work()
            for partition in range(PARTITIONS):
                if is_quiet or self.dice.random() < 0.3:
                    self._commit(partition)
        lost = [r.offset for r in self._records if r.offset not in self._handled]
        if lost:
            self.broken.append(f"lost {lost[:10]}")
        behind = {p: at for p, at in self._committed.items() if at <= self._end}
        if behind:
            self.broken.append(f"the queue ends at {self._end}, and {behind} is all that was done")


def run(seed: int) -> list[str]:
    """What was broken in the world of this seed."""
    world = SourceWorld(seed)
    world.play()
    return world.broken
