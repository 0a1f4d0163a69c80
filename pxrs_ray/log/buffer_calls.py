"""What a buffer decides on one call that appends or reads, from its arrival to its answer. Pure.

Rules of this file. Such a call is tried in rounds: one at once, one after each change of its
partitions, a last one when it may wait no longer (`final`). Who carries a round says whether the
buffer's lease lasts (`is_open`) before it and after it: what was done while the lease ended is
neither acknowledged nor handed on. An append to a replica's log is acknowledged once it is on every
replica in sync: until then each round asks the log anew, for what is not there yet may be cut.
Nothing here waits, syncs, or asks a clock.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from pxrs_ray.data.protocol import Appended, Fetched, OutFrame, ReadPosition, Refused
from pxrs_ray.errors import Fenced, LeaseOver, LogError, PxrsError
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.log_view import FrameRun
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.log.refusals import answerable, append_frame, may_pass, refused
from pxrs_ray.model import PartitionId

OUT_OF_BAND_BYTES = 4 << 10
FETCH_BYTES_MAX = 64 << 20

ColdRead = Callable[[], FrameRun]
"""A read that may touch files: whoever carries it out sends back its run, or throws its error."""


class AppendCall:
    """Frames that are appended by one call. A round: `begin`, `run` by the writer of `logs`, whose
    `limits` say whether they are synced then, `end`; until nothing is left to try, or `final`.
    """

    def __init__(
        self,
        manager: LogManager,
        counts: Counter[str],
        over: Callable[[], LeaseOver],
        queue: str,
        frames: Sequence[OutFrame],
    ) -> None:
        self.logs: dict[int, PartitionLog] = {}
        self._manager, self._counts, self._over = manager, counts, over
        self._queue, self._frames = queue, frames
        self._answers: dict[int, Appended | Refused] = {}
        self._todo = list(range(len(frames)))
        self._waits: dict[int, Appended] = {}
        self._term = 0

    @property
    def size_bytes(self) -> int:
        """What the frames of this round weigh."""
        return sum(len(self._frames[at][2]) for at in self.logs)

    def begin(self, is_open: bool, term: int) -> bool:
        """Begin a round, in this term of the lease; False where it is over already."""
        self.logs.clear()
        self._term = term
        if not is_open:
            self._refuse()
            return False
        for at in self._todo:
            partition = self._frames[at][0]
            try:
                self.logs[at] = self._manager.log(self._queue, partition)
            except PxrsError as error:
                self._answers[at] = Refused(partition, error)
        return True

    def run(self, now_ms: int) -> None:
        """Append what can be appended. For the one writer of the logs."""
        for at, log in self.logs.items():
            frame = self._frames[at]
            self._answers[at] = append_frame(log, self._manager.producers, now_ms, *frame)

    def end(self, unsynced: Mapping[PartitionLog, LogError], is_open: bool, term: int) -> None:
        """The round is over; logs that could not be made durable are named with their errors."""
        for at, log in self.logs.items() if unsynced else ():
            if log in unsynced and isinstance(self._answers[at], Appended):
                self._answers[at] = Refused(log.partition, unsynced[log])
        left = []
        for at in self._todo:
            answer = self._answers[at]
            if isinstance(answer, Appended):
                if _is_copied(answer, self.logs[at]):
                    self._count(self._waits.pop(at, answer), len(self._frames[at][2]))
                else:
                    left.append(at)
                    self._waits.setdefault(at, answer)
                    self._answers[at] = Refused(answer.partition, _not_copied(answer))
            elif may_pass(answer.error, self.logs.get(at)):
                left.append(at)
            else:
                self._note(answer)
        if is_open and term == self._term:
            self._todo = left
        else:
            self._refuse()

    def refuse(self) -> None:
        """Nothing is appended: another process is the writer of these logs now."""
        self._refuse()

    def _refuse(self) -> None:
        """Nobody may acknowledge what is still to do; it is worth another try."""
        for at in self._todo:
            self._answers[at] = Refused(self._frames[at][0], self._over())

    def _count(self, answer: Appended, size_bytes: int) -> None:
        if answer.repeated:
            self._counts["repeats"] += 1
        else:
            self._counts["frames"] += 1
            self._counts["messages"] += answer.count
            self._counts["bytes_in"] += size_bytes

    def _note(self, answer: Appended | Refused) -> None:
        if isinstance(answer, Refused):
            self._manager.refused_appends.note(self._queue, answer)

    def answer(self, final: bool) -> list[Appended | Refused] | None:
        """One answer a frame, in the order given; None: wait for a change."""
        if self._todo:
            if not final:
                return None
            for at in self._todo:
                self._note(self._answers[at])
        return [self._answers[at] for at in range(len(self._frames))]


def _is_copied(answer: Appended, log: PartitionLog) -> bool:
    # A repeat without its offset is older than all that a producer has under way.
    return answer.base_offset is None or answer.base_offset + answer.count <= log.copied_end


def _not_copied(answer: Appended) -> LeaseOver:
    return LeaseOver(
        f"partition {answer.partition}: what is at {answer.base_offset} is not on every replica in "
        "sync yet"
    )


class FetchCall:
    """Partitions that are read by one call. A round: `begin`, `read_parts`, `end`."""

    def __init__(
        self, positions: Mapping[PartitionId, ReadPosition], over: Callable[[], LeaseOver]
    ) -> None:
        self.look = positions
        self._positions = positions
        self._over = over
        self._was_open = False

    def begin(self, final: bool) -> None:
        """Begin a round; the last one looks at everything."""
        if final:
            self.look = self._positions

    def end(
        self, found: list[Fetched | Refused], is_open: bool, final: bool
    ) -> list[Fetched | Refused] | None:
        """The answer; None: wait for a change."""
        if is_open:
            self._was_open = True
        elif self._was_open or final:  # what was read is not handed on
            return [Refused(partition, self._over()) for partition in self._positions]
        else:
            return None
        return found if final or found else None

    def changed(self, partitions: Collection[PartitionId], is_open: bool) -> None:
        """Something happened at these: look there, or anywhere after a lease has begun."""
        if is_open:
            look = {p: self._positions[p] for p in partitions}
            self.look = look if self._was_open else self._positions


def read_parts(
    manager: LogManager,
    fence: ReadFence,
    counts: Counter[str],
    queue: str,
    group: str,
    positions: Mapping[PartitionId, ReadPosition],
    bytes_max: int,
    final: bool,
) -> Generator[ColdRead, FrameRun, list[Fetched | Refused]]:
    """What is there now; refusals that waiting may end are left out unless it is `final`.

    Messages in memory are read at once. What may touch files is yielded, to be carried out.
    """
    found: list[Fetched | Refused] = []
    left, waited = min(bytes_max, FETCH_BYTES_MAX), False
    for served, (partition, (epoch, offset)) in enumerate(positions.items()):
        share = max(1, left // (len(positions) - served))
        log: PartitionLog | None = None
        try:
            fence.check(queue, group, partition, epoch)
            log = manager.log(queue, partition)
            run = log.read_tail(offset, bytes_max=share)
            if run is None:
                counts["cold_reads"] += 1
                waited = True
                run = yield partial(log.read, offset, bytes_max=share)
        except Exception as raised:  # noqa: BLE001 - one partition's trouble is its own
            error = answerable(raised)
            if final or not may_pass(error, log):
                counts["fenced" if isinstance(error, Fenced) else "refused_reads"] += 1
                found.append(refused(partition, error, log))
            continue
        if run.next_offset > offset:
            left -= sum(map(len, run.chunks))
            found.append(_fetched(log, run))
    counts["bytes_out"] += min(bytes_max, FETCH_BYTES_MAX) - left
    if not waited:
        return found
    # While files were read, any of these readers may have been fenced.
    return [_unless_fenced(part, fence, queue, group, positions) for part in found]


def _unless_fenced(
    part: Fetched | Refused,
    fence: ReadFence,
    queue: str,
    group: str,
    positions: Mapping[PartitionId, ReadPosition],
) -> Fetched | Refused:
    try:
        fence.check(queue, group, part.partition, positions[part.partition][0])
    except Fenced as error:
        return Refused(part.partition, error)
    return part


def _fetched(log: PartitionLog, run: FrameRun) -> Fetched:
    chunks = tuple(map(_out_of_band, run.chunks))
    return Fetched(log.partition, chunks, run.next_offset, log.start_offset, log.visible_end)


def _out_of_band(chunk: Any) -> Any:
    """Large chunks travel beside the pickle, uncopied."""
    return pickle.PickleBuffer(chunk) if len(chunk) >= OUT_OF_BAND_BYTES else bytes(chunk)
