"""Spark reads the queue back: what the logs hold, each message once, whatever befalls its tasks.

Rules of this file. `live_shares` and `ShareRead` decide as they ship. A task dies in the middle,
and its share is read again by another; calls get lost, and are made again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial

from pxrs_ray.data.protocol import Fetched, LogEnds
from pxrs_ray.feed.read_plan import Share, ShareRead, live_shares
from pxrs_ray.model import Offset, PartitionId
from tests.simulation.history import Kept
from tests.simulation.simulator.buffer import BufferProcess, Found
from tests.simulation.simulator.frames import lines_in
from tests.simulation.simulator.world import Process, World, call

AGAIN_MS, DIES = 200, 0.2
SHARE_MAX = 7
READ_MS = 20_000


class Reading(Process):
    """One attempt of one task of Spark."""

    role = "task"

    def __init__(self, world: World, buffer: BufferProcess, share: Share) -> None:
        super().__init__(world, f"read {share.partition}/{share.start}")
        self.share, self.over = share, False
        self.found: list[tuple[Offset, str]] = []
        self._buffer, self._read = buffer, ShareRead(share)
        self._attempt = 0
        self._fetch()

    def _fetch(self) -> None:
        offset = self._read.next()
        if offset is None:
            self.over = True
            return
        self._attempt = attempt = self.world.number()
        buffer, positions = self._buffer, {self.share.partition: (0, offset)}
        call(
            self,
            buffer,
            lambda respond: buffer.fetch("_spark", 1, positions, respond),
            partial(self._answered, offset, attempt),
        )
        self.after(AGAIN_MS, partial(self._answered, offset, attempt, None))

    def _answered(self, offset: Offset, attempt: int, found: Found) -> None:
        if attempt != self._attempt:
            return
        self._attempt = 0
        if found is None:
            self._fetch()
            return
        parts = [part for part in found if isinstance(part, Fetched)]
        if not parts or parts[0].next_offset == offset:
            self._read.fetched(None)
        else:
            lines = list(lines_in(parts[0].chunks, offset))
            base = lines[0].offset if lines else offset
            mine = self.share.part_of(base, len(lines))
            self.found += [(lines[n].offset, lines[n].message) for n in mine]
            self._read.fetched(parts[0].next_offset)
        self._fetch()


def read_back(world: World, buffer: BufferProcess, kept: Sequence[Kept], seed: int) -> str:
    """Read all of it as Spark would; '' where that is what the logs hold, else what is wrong."""
    dice = random.Random(f"reads {seed}")
    ends = {one.partition: _ends(one) for one in kept}
    first = {p: found.start_offset for p, found in ends.items()}
    last = {p: found.end_offset for p, found in ends.items()}
    shares = live_shares(ends, first, last, SHARE_MAX)
    tasks = [Reading(world, buffer, share) for share in shares]
    for number, task in enumerate(tasks):
        if dice.random() < DIES:
            world.run_until(world.now_ms + dice.randint(1, 10))
            task.crash()
            tasks[number] = Reading(world, buffer, task.share)
    end_ms = world.now_ms + READ_MS
    while not all(task.over for task in tasks) and world.now_ms < end_ms:
        world.run_until(world.now_ms + AGAIN_MS)
    found: dict[PartitionId, list[tuple[Offset, str]]] = {one.partition: [] for one in kept}
    for task in tasks:
        found[task.share.partition] += task.found
    wrong = [p for p, wanted in _messages(kept).items() if found[p] != wanted]
    return f"Spark reads {wrong} otherwise than the logs hold" if wrong else ""


def _ends(kept: Kept) -> LogEnds:
    end = max(kept.messages, default=kept.start - 1) + 1
    return LogEnds(kept.partition, kept.start, end, end, 0, 0, 0, 0)


def _messages(kept: Sequence[Kept]) -> Mapping[PartitionId, list[tuple[Offset, str]]]:
    return {one.partition: sorted(one.messages.items()) for one in kept}
