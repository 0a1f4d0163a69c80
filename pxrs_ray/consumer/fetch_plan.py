"""`FetchPlan`: what a member reads next from each buffer, and what becomes of the answers. Pure.

Rules of this file. Messages that arrive are offered to the session, which refuses what is not ours
or not next. Nothing is read, nor handed on, when the lease is over, and nothing while the group is
paused: it is read again. A buffer that is away is asked again, with growing pauses. When a fetch of
several partitions fails, each is read alone. A partition that cannot be read (a broken disk, no
descriptors left, an invalid frame) rests alone; all others are read on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pxrs_ray.backoff import Backoff
from pxrs_ray.consumer.fetch_backoff import FetchBackoff
from pxrs_ray.consumer.member_effects import (
    Fetch,
    ForgetBuffer,
    MemberEffect,
    PartRead,
    PartRefused,
    ReadingFails,
    ReadingWorks,
    Rest,
    SkipTo,
    TakeIn,
)
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.errors import Fenced, OffsetOutOfRange
from pxrs_ray.model import Epoch, Offset, PartitionId

# How long a read waits at its buffer for messages, at first; it is twice as long after each that
# brought nothing, so that what sleeps is asked for rarely. Whatever comes ends it at once.
FETCH_WAIT_MS = 2_000
FETCH_WAIT_MOST_MS = 16_000
# A buffer answers a fetch after its wait at the latest: whoever takes so long is asked anew.
FETCH_ANSWER_S = 30.0
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0


class _BufferPlan:
    """What is known of the reading from one buffer."""

    __slots__ = ("alone", "backoff", "until_s", "wait_ms")

    def __init__(self) -> None:
        self.backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        # Before then it is not asked again.
        self.until_s = float("-inf")
        # Which partitions are to be read each alone, for a fetch of them together has failed.
        self.alone: list[PartitionId] = []
        self.wait_ms = FETCH_WAIT_MS


class FetchPlan:
    """The reading of one member. Its effects go to `effect`; `fenced` is told what a log refuses.

    The machine says whether the session of an answer is the member's, and whether it may read.
    """

    def __init__(
        self,
        buffers: int,
        effect: Callable[[MemberEffect], None],
        fenced: Callable[[PartitionId, Epoch, float], None],
    ) -> None:
        self._buffers = [_BufferPlan() for _ in range(buffers)]
        self._resting = FetchBackoff()
        self._effect = effect
        self._fenced = fenced

    # --- what to read -----------------------------------------------------------------------------

    def next(
        self, buffer: int, session: ConsumerSession, bytes_max: int, is_over: bool, now_s: float
    ) -> Fetch | Rest:
        """The next read from this buffer; `is_over` says that the lease is."""
        plan = self._buffers[buffer]
        if now_s < plan.until_s:
            return Rest(plan.until_s)
        wanted = session.to_fetch(2 * bytes_max)
        if len(self._buffers) > 1:
            count = len(self._buffers)
            wanted = {p: at for p, at in wanted.items() if p % count == buffer}
        positions = self._resting.awake(wanted, now_s)
        resting_s = self._resting.next_s(wanted, now_s)
        if not positions:
            return Rest(resting_s)
        if is_over:
            return Rest()
        answer_s = now_s + FETCH_ANSWER_S
        while plan.alone:
            partition = plan.alone.pop()
            if partition in positions:
                alone = {partition: positions[partition]}
                return Fetch(session, buffer, alone, 0, now_s, answer_s)
        # What rests is read together with the others, as soon as it may be.
        until_s = answer_s if resting_s is None else min(answer_s, resting_s)
        return Fetch(session, buffer, positions, plan.wait_ms, now_s, until_s)

    # --- answers ----------------------------------------------------------------------------------

    def answered(self, fetch: Fetch) -> None:
        """The buffer is there."""
        self._buffers[fetch.buffer].backoff.worked()

    def unanswered(self, fetch: Fetch, now_s: float) -> None:
        """It was given up; a buffer that had long enough for its answer is looked up anew."""
        if now_s >= fetch.sent_s + FETCH_ANSWER_S:
            self._effect(ForgetBuffer(fetch.buffer))

    def away(self, fetch: Fetch, now_s: float) -> None:
        """The buffer has not served it: it is asked again after a pause."""
        plan = self._buffers[fetch.buffer]
        plan.alone.clear()
        plan.until_s = now_s + plan.backoff.failed()
        self._effect(ForgetBuffer(fetch.buffer))

    def failed(self, fetch: Fetch, error: Exception, now_s: float) -> None:
        """Whatever it is, it is of one of the partitions: read each alone, to see of which."""
        if len(fetch.positions) == 1:
            (partition,) = fetch.positions
            self.cannot_read(partition, error, now_s)
        else:
            self._buffers[fetch.buffer].alone = sorted(fetch.positions, reverse=True)

    def cannot_read(self, partition: PartitionId, error: Exception, now_s: float) -> None:
        """Let it rest, and say so."""
        self._resting.rest(partition, now_s)
        self._effect(ReadingFails(partition, error))

    def take(self, fetch: Fetch, parts: Sequence[PartRead | PartRefused], now_s: float) -> None:
        """Hand on what was read."""
        plan = self._buffers[fetch.buffer]
        if parts:
            plan.wait_ms = FETCH_WAIT_MS
        elif fetch.wait_ms:
            plan.wait_ms = min(2 * plan.wait_ms, FETCH_WAIT_MOST_MS)
        for part in parts:
            epoch, offset = fetch.positions[part.partition]
            if isinstance(part, PartRefused):
                self._refused(fetch.session, part, epoch, offset, now_s)
                continue
            self._hand_on(fetch.session, part, epoch, offset)
            if self._resting.over(part.partition):
                self._effect(ReadingWorks(part.partition))

    def _hand_on(
        self, session: ConsumerSession, part: PartRead, epoch: Epoch, offset: Offset
    ) -> None:
        partition = part.partition
        for batch in part.batches:
            if batch.base_offset > offset:
                self._skip(session, partition, epoch, offset, batch.base_offset)
            if session.fetched(partition, epoch, batch.base_offset, len(batch)):
                size_bytes = part.size_bytes // len(part.batches)
                self._effect(TakeIn(partition, epoch, batch, size_bytes))
            offset = batch.end_offset
        if part.next_offset > offset:
            self._skip(session, partition, epoch, offset, part.next_offset)

    def _skip(
        self,
        session: ConsumerSession,
        partition: PartitionId,
        epoch: Epoch,
        offset: Offset,
        to: Offset,
    ) -> None:
        """Go on behind offsets that the log no longer has. Never silently."""
        if session.skip(partition, epoch, offset, to):
            self._effect(SkipTo(partition, epoch, offset, to))

    def _refused(
        self,
        session: ConsumerSession,
        part: PartRefused,
        epoch: Epoch,
        offset: Offset,
        now_s: float,
    ) -> None:
        start = part.start_offset
        if isinstance(part.error, Fenced):
            # Somebody else reads under a higher epoch: ours is over, whatever we were told.
            self._fenced(part.partition, epoch, now_s)
        elif isinstance(part.error, OffsetOutOfRange) and start is not None and offset < start:
            self._skip(session, part.partition, epoch, offset, start)
        elif not part.away:
            self.cannot_read(part.partition, part.error, now_s)
