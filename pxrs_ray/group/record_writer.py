"""`RecordWriter`: takes one group's records to the store. Pure.

Rules of this file. One call is under way at a time. A batch is written again as it stands until its
outcome is known, however long the store is down. A batch that is refused is judged by what the
store holds (`check_stored`). An answer to any other call than the one under way is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pxrs_ray.backoff import Backoff
from pxrs_ray.clock import Instant
from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.group.runtime_effects import LoadAgain, StoreCall, TrimHistory, WriteRecords
from pxrs_ray.group.write_queue import WriteBatch, WriteQueue, check_stored
from pxrs_ray.model import Generation, Outcome

BATCH_RECORDS_MAX = 1_024
# The history is trimmed when it has grown by this part of what is to be kept.
TRIM_PART = 10
# A call that was not answered is made again after such a pause.
AGAIN_FIRST_S = 0.05
AGAIN_MOST_S = 1.0


class RecordWriter:
    """See the rules at the head of this file. Every method answers the call that is to be made."""

    def __init__(self, history_keep: int) -> None:
        self.queue = WriteQueue()
        self.history_keep = history_keep
        self.batch_records_max = BATCH_RECORDS_MAX
        self.problem = ""
        self.again_ms: int | None = None
        self.writing_since_ms: int | None = None
        self._calling: StoreCall | None = None
        self._trimmed_at: int | None = None
        self._backoff = Backoff(AGAIN_FIRST_S, AGAIN_MOST_S)

    def begin(self) -> None:
        """Begin with no record: what was decided and not durable is forgotten."""
        self.stop()
        self.queue = WriteQueue()
        self._trimmed_at = None
        self.writing_since_ms = None

    def stop(self) -> None:
        """Wait for no answer any more, and make no call."""
        self._calling = None
        self.again_ms = None

    def waits_for(self, call: StoreCall) -> bool:
        """Whether this very call is the one under way."""
        return call is self._calling

    def next(self, generation: Generation, version: int, now: Instant) -> StoreCall | None:
        """Write what waits; where nothing does, forget old history now and then."""
        if self._calling is not None:
            return None
        batch = self.queue.take(self.batch_records_max)
        if batch is not None:
            self.writing_since_ms = now.monotonic_ms
            return self._call(WriteRecords(generation, batch))
        if self._trimmed_at is None:
            self._trimmed_at = version
        if version < self._trimmed_at + max(1, self.history_keep // TRIM_PART):
            return None
        self._trimmed_at = version
        return self._call(TrimHistory(generation, self.history_keep))

    def answered(
        self, call: StoreCall, answer: Any, generation: Generation, now: Instant
    ) -> WriteBatch | StoreCall | None:
        """What an answer means: a batch that is durable, a call that is to be made, or neither.

        Raises what the store raised, and what `check_stored` does.
        """
        if isinstance(answer, StoreUnavailable):
            self._unanswered(call, answer, now)
            return None
        self._calling = self.again_ms = None
        if isinstance(answer, BaseException):
            raise answer
        self._backoff.worked()
        self.problem = ""
        match call:
            case WriteRecords(_, batch):
                if any(outcome is not Outcome.APPLIED for outcome in answer):
                    return self._call(LoadAgain(batch))
                return self._durable(batch)
            case LoadAgain(batch):
                check_stored(batch, answer, generation)
                return self._durable(batch)
        return None

    def _durable(self, batch: WriteBatch) -> WriteBatch:
        self.writing_since_ms = None
        self.queue.done()
        return batch

    def _unanswered(self, call: StoreCall, error: StoreUnavailable, now: Instant) -> None:
        self.problem = str(error)
        if isinstance(call, TrimHistory):
            self._calling = None  # what is not forgotten now is forgotten later
        else:
            self.again_ms = now.monotonic_ms + int(self._backoff.failed() * 1_000)

    def registry_answers(self, now: Instant) -> None:
        """The store was away and is back: what was not answered is asked again at once."""
        if self.again_ms is not None:
            self.again_ms = now.monotonic_ms

    def again(self) -> StoreCall:
        """Make the call once more, the pause being over."""
        assert self._calling is not None
        self.again_ms = None
        # Another object, so that a late answer to the former one is known as such.
        return self._call(replace(self._calling))

    def _call(self, call: StoreCall) -> StoreCall:
        self._calling = call
        return call
