"""`LogManager`: the logs that one buffer holds, and what it must remember to open them again.

Rules of this file. One writer at a time: everything but `log`, `ends` and `due` is for the buffer's
writer thread. A log that cannot be opened is kept as the error that answers its callers, so that
one damaged partition does not take the others down. Passing trouble ends by itself: `mend` tries
again what is `due`, with pauses. A log that failed is closed, opened anew and given back what
memory held of it, before anybody can append to it again. Many logs are opened several at a time
where the caller has threads for that (`each`), for each waits for the disk. 'Not here' is never
'new': a log begins only where `open` says that it is to be made, and what lies in its place under
another id is never mistaken for it, and never thrown away. A log with an id serves nobody before
`open` has said in this life how far it should reach.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pxrs_ray.backoff import Backoff
from pxrs_ray.data.log_limits import Durability, LossPolicy
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import LockHeld, LogAway, LogError, LogReplaced, PxrsError
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.log_opening import log_folder
from pxrs_ray.log.open_logs import ForEach, OpenLogs, one_by_one
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import ProducerFence
from pxrs_ray.log.queues_file import check_change, logs_in, put_aside, read_queues, write_queues
from pxrs_ray.log.refusals import RefusedAppends
from pxrs_ray.log.retention_plan import RetentionPlan
from pxrs_ray.model import Offset, PartitionId, QueuePartition
from pxrs_ray.supervision.passing_trouble import passes

logger = logging.getLogger(__name__)

TAIL_BYTES_MAX = 256 << 20
MEND_FIRST_MS = 50
MEND_MOST_MS = 5_000


@dataclass(slots=True)
class _Owed:
    """What a failed log held: it must reach `end` again, with what of `runs` is missing."""

    end: Offset = 0
    runs: list[Any] = field(default_factory=list)


def _nobody() -> None: ...


class LogManager(OpenLogs):
    """See the rules at the head of this file."""

    kind: type[PartitionLog] = PartitionLog

    def __init__(
        self,
        data_folder: Path,
        index: int,
        buffers: int,
        now_ms: int,
        *,
        files: Files | None = None,
        each: ForEach = one_by_one,
    ) -> None:
        """Open every log of the queues that this buffer knew when it ended. Raises OSError."""
        super().__init__(index, buffers)
        self.folder = data_folder / ".buffers" / str(index)
        self._data_folder = data_folder
        self.files = files or Files()
        self._each = each
        self._taking_over = threading.Lock()
        self._expected: dict[QueuePartition, Offset] = {}
        self._owed: dict[QueuePartition, _Owed] = {}
        self._pauses: dict[QueuePartition, tuple[Backoff, int]] = {}
        self._to_make: set[QueuePartition] = set()
        # Where something may be wrong with an open log; and up to which change that was looked at.
        self._suspect: dict[QueuePartition, None] = {}
        self._suspected_to = 0
        self.refused_appends = RefusedAppends()
        self._retention = RetentionPlan(self.changed, self._logs.get)
        self.files.make_folder(self.folder)
        # Told that another process had a log until now.
        self.taken_over: Callable[[], None] = _nobody
        for spec in read_queues(self.files, self.folder):
            self._specs[spec.queue] = spec
            for partition in self._partitions(spec):
                if spec.queue_id:
                    self._unconfirmed.add((spec.queue, partition))
            self._each(partial(self._open, spec, now_ms=now_ms), self._partitions(spec))
        # Once the logs are locked: who had them until then may have written it a moment ago.
        try:
            self.producers = ProducerFence(self.folder, self.files)
        except BaseException:
            self.abandon()  # nobody could let go of the locks later
            raise
        self._share_memory()

    def _remember(self, specs: Mapping[str, QueueSpec]) -> None:
        """Have it on disk which queues there are, before anything is done about it."""
        write_queues(self.files, self.folder, specs.values())
        self._specs = dict(specs)

    def open(
        self,
        spec: QueueSpec,
        expected_ends: Mapping[PartitionId, Offset],
        now_ms: int,
        *,
        make: bool,
    ) -> None:
        """Open a queue's logs, confirm where they should end, and set their limits.

        Where one is not there it is lost, unless they are to be made now (`make`). Logs with an id
        that are made serve nobody until they are opened once more, without `make`. Raises why one
        could not be made, after trying all.
        """
        known = self._specs.get(spec.queue)
        if known is not None:
            if not spec.queue_id:
                spec = replace(spec, queue_id=known.queue_id)
            if known.queue_id in ("", spec.queue_id):
                check_change(known, spec)
        if known != spec:
            self._remember({**self._specs, spec.queue: spec})
        same = known is not None and known.queue_id == spec.queue_id
        waits: dict[PartitionId, bool] = {}
        for partition in self._partitions(spec):
            place = (spec.queue, partition)
            if same and place in self._expected and place not in self._to_make:
                make = False  # a call that comes late, or twice: it was made, and is served
            self._expected[place] = expected_ends.get(partition, 0)
            (self._to_make.add if make else self._to_make.discard)(place)
            self._take_id(place, spec.queue_id)
            # What was only made serves nobody before it is durable elsewhere that it was.
            waits[partition] = make and bool(spec.queue_id)

        def bring(partition: PartitionId) -> None:
            place = (spec.queue, partition)
            if place not in self._logs:
                self._open(spec, partition, now_ms)
            else:
                self._confirm_open(place, now_ms)
            (self._unconfirmed.add if waits[partition] else self._unconfirmed.discard)(place)
            self.changed.note(place)

        self._each(bring, waits)
        self._share_memory()
        if make and spec.queue_id:
            self._check_made(spec)

    def _check_made(self, spec: QueueSpec) -> None:
        """Raise why a log is not made yet: nobody may note that it is."""
        for partition in self._partitions(spec):
            place = (spec.queue, partition)
            if place in self._broken:
                raise self._broken[place]
            if self._logs[place].state == "waiting":
                raise LogAway(f"partition {partition} of {spec.queue!r} could not be made yet")

    def _take_id(self, place: QueuePartition, queue_id: str) -> None:
        """Let an open log have its id; one that has another is let go of."""
        log = self._logs.get(place)
        if log is None or not queue_id or log.log_id == queue_id:
            return
        try:
            if not log.log_id:
                log.adopt(queue_id)
                return
            log.close()
        except LogError as error:
            logger.warning("%s: cannot take its id yet: %s", place, error)
            log.abandon()
        del self._logs[place]

    def _confirm_open(self, place: QueuePartition, now_ms: int) -> None:
        """Confirm a log that is open; where that meets trouble it waits, and is due."""
        try:
            self._confirm(self._logs[place], place, now_ms)
        except LogError as error:
            logger.warning("%s: cannot be confirmed yet: %s", place, error)

    def _confirm(self, log: PartitionLog, place: QueuePartition, now_ms: int) -> None:
        expected = self._expected.get(place)
        owed = self._owed.get(place, _Owed()).end
        reach = max(expected or 0, owed)
        if reach > log.end_offset or (log.state == "waiting" and expected is not None):
            log.confirm(reach, now_ms, make=place in self._to_make)

    def _open(self, spec: QueueSpec, partition: PartitionId, now_ms: int) -> None:
        place = (spec.queue, partition)
        folder = log_folder(self._data_folder, spec.queue, partition)
        try:
            try:
                self._logs[place] = self._opened(spec, place, folder, now_ms)
            except LogReplaced:
                if not self._goes_on(spec, place):
                    raise
                put_aside(self.files, folder)
                self._logs[place] = self._opened(spec, place, folder, now_ms)
        except PxrsError as error:
            self._broken[place] = error
        except Exception as error:  # noqa: BLE001 - one log's trouble is its own, whatever it is
            kind = LogAway if passes(error) else LogError
            self._broken[place] = kind(f"{folder}: cannot be opened: {error}")
        else:
            self._owed.pop(place, None)
            if isinstance(self._broken.pop(place, None), LockHeld):
                self._take_over()
            self._logs[place].tell_changed = partial(self.changed.note, place)
            self.changed.note(place)

    def _take_over(self) -> None:
        """Another process had a log until now: it may have written what belongs to all of them."""
        with self._taking_over:
            self.producers.read_again()
            self.taken_over()

    def _opened(
        self, spec: QueueSpec, place: QueuePartition, folder: Path, now_ms: int
    ) -> PartitionLog:
        # Nobody is waited for: what another process still holds is due again soon.
        log = self.kind.open(
            folder,
            spec.queue,
            place[1],
            spec.limits,
            now_ms=now_ms,
            files=self.files,
            lock_wait_ms=0,
            log_id=spec.queue_id,
        )
        try:
            owed = self._owed.get(place)
            if owed is not None:
                log.restore(owed.runs, now_ms)
                log.sync()  # it was acknowledged long ago, and nobody else knows of it
            self._confirm(log, place, now_ms)
        except BaseException:
            log.abandon()
            raise
        return log

    # ---- another log in the place of ours

    def _goes_on(self, spec: QueueSpec, place: QueuePartition) -> bool:
        """Whether ours begins, or goes on above its gap, though another one is in its place."""
        if place in self._to_make:
            return True  # what is there is of a queue that had the name before
        goes_on = spec.limits.lost_log_policy is LossPolicy.CONTINUE
        return place in self._expected and (goes_on or spec.limits.durability is Durability.MEMORY)

    def accept_loss(self, queue: str, partition: PartitionId, now_ms: int) -> None:
        """Resume a log that halted after a loss, above its gap, whatever is there."""
        place = (queue, partition)
        if isinstance(self._broken.get(place), LogReplaced) and place in self._expected:
            put_aside(self.files, log_folder(self._data_folder, queue, partition))
            self._open(self._specs[queue], partition, now_ms)
            self._share_memory()
        self.log(queue, partition).accept_loss()

    # ---- what time brings

    def to_retain(self, now_ms: int) -> list[PartitionLog]:
        """The logs for a round of retention: what changed, or came of age, since the last one."""
        return self._retention.due(now_ms)

    # ---- trouble that passes

    def due(self, monotonic_ms: int) -> list[QueuePartition]:
        """The places whose trouble may be over now: `mend` them."""
        self._suspected_to, changed = self.changed.since(self._suspected_to)
        self._suspect.update(dict.fromkeys(changed))
        for place in list(self._suspect):
            if place not in self._logs or not self._ails(place):
                del self._suspect[place]
        places = [*self._broken, *self._suspect]
        return [p for p in places if self._ails(p) and self._next_ms(p) <= monotonic_ms]

    def _ails(self, place: QueuePartition) -> bool:
        log = self._logs.get(place)
        if log is None:
            return passes(self._broken[place])
        state = log.state
        return state == "failed" or (state == "waiting" and place in self._expected)

    def _next_ms(self, place: QueuePartition) -> int:
        return self._pauses[place][1] if place in self._pauses else 0

    def mend(self, place: QueuePartition, now_ms: int, monotonic_ms: int) -> bool:
        """Try once more; True when all is well now."""
        if place[0] not in self._specs:
            return True  # dropped meanwhile
        log = self._logs.get(place)
        if log is not None and log.state == "waiting":
            self._confirm_open(place, now_ms)
        elif log is None or log.state == "failed":
            if log is not None:
                self._leave(place, log)
            self._open(self._specs[place[0]], place[1], now_ms)
        if not self._ails(place):
            self._pauses.pop(place, None)
            self._share_memory()
            return True
        anew = Backoff(MEND_FIRST_MS / 1_000, MEND_MOST_MS / 1_000)
        backoff, _ = self._pauses.get(place, (anew, 0))
        self._pauses[place] = backoff, monotonic_ms + round(backoff.failed() * 1_000)
        return False

    def _leave(self, place: QueuePartition, log: PartitionLog) -> None:
        """Close a log that failed, but keep what it had acknowledged."""
        self._owed[place] = _Owed(log.visible_end, log.unsynced())
        self._broken[place] = LogAway(f"{log.folder}: it is being opened anew")
        del self._logs[place]
        log.abandon()

    def _share_memory(self) -> None:
        """Divide the buffer's memory for tails among its logs, and set the limits of those
        whose limits are others now."""
        share = max(1, TAIL_BYTES_MAX // max(1, len(self._logs)))
        of_queue = {
            queue: replace(spec.limits, tail_bytes_max=min(share, spec.limits.tail_bytes_max))
            for queue, spec in self._specs.items()
        }
        for (queue, _), log in self._logs.items():
            if log.limits != of_queue[queue]:
                log.set_limits(of_queue[queue])

    def drop_group(self, queue: str, group: str) -> None:
        """Have no log of `queue` wait for `group`. Raises what passes, after telling the others.

        A log that is damaged is not told: it waits for nobody as long as it is.
        """
        spec, left = self._specs.get(queue), None
        for partition in self._partitions(spec) if spec is not None else ():
            try:
                self.log(queue, partition).drop_group(group)
            except PxrsError as error:
                left = error if passes(error) else left
        if left is not None:
            raise left

    def drop_queue(self, queue: str) -> None:
        """Delete every log of `queue` here; an absent queue is success.

        Raises LogAway when a folder cannot be removed. Done again, it finishes what was cut off.
        """
        if queue in self._specs:
            self._remember({q: spec for q, spec in self._specs.items() if q != queue})
        self.producers.drop_queue(queue)
        for place in [place for place in self._logs if place[0] == queue]:
            self._logs.pop(place).abandon()
            self.changed.forget(place)
        for places in (self._to_make, self._unconfirmed):
            places.difference_update([place for place in places if place[0] == queue])
        maps: list[dict[QueuePartition, Any]] = [
            self._broken,
            self._expected,
            self._owed,
            self._pauses,
        ]
        for known in maps:
            for place in [place for place in known if place[0] == queue]:
                del known[place]
        # By what lies there: a life before may have forgotten the queue, and died in the middle.
        above = log_folder(self._data_folder, queue, 0).parent
        try:
            for folder in logs_in(above, self._index, self._buffers):
                self.files.remove_folder(folder)
        except OSError as error:
            raise LogAway(f"queue {queue!r} cannot be deleted now: {error}") from error
        with suppress(OSError):  # other buffers may have theirs beside it
            above.rmdir()

    def close(self) -> None:
        """Sync and close every log; raises the first trouble once all are closed."""
        errors: list[Exception] = []

        def close(log: PartitionLog) -> None:
            try:
                log.close()
            except (PxrsError, OSError) as error:
                errors.append(error)

        self._each(close, list(self._logs.values()))
        if errors:
            raise errors[0]

    def abandon(self) -> None:
        """Let go of everything without a word, as a killed process does."""
        for log in self._logs.values():
            log.abandon()
