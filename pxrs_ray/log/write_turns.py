"""`WriteTurns`: which jobs that change a buffer's logs are written together, and which are synced
before they are answered. Pure: the caller writes and syncs, on threads of its choice.

Rules of this file. Jobs run in the order in which they were given, one turn after the other. All
jobs that arrive during a turn form the next one (group commit). Only a small job passes what is
under way, or waits, on other logs than its own: a message of 64 MB takes as long as the disk does.
A job that names no log may be about any, and nothing passes it. A turn is synced before its jobs
are answered if one of its logs must be durable first (ALWAYS). Other logs are synced at their
interval. Each job is answered exactly once, at the end of its turn: with its result, with its
error, or, if the turn itself failed, with the fact that its durability is unknown. A written log
stays marked as dirty until a sync succeeded, or until it failed for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pxrs_ray.data.log_limits import Durability
from pxrs_ray.errors import LogAway, LogError
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.supervision.restart_rules import told

# A turn that is larger runs on a thread: a hop to one costs more than what is smaller does.
INLINE_BYTES_MAX = 64 << 10
# What runs at once holds up everybody on the event loop: only little does.
AT_ONCE_BYTES_MAX = 16 << 10
UNKNOWN_BYTES = 1 << 62

Marks = Collection[tuple[PartitionLog, int]]


class WriteJob:
    """One job, and what became of it once its turn is over. `logs` are those that it changes."""

    __slots__ = ("answer", "error", "logs", "run", "size_bytes", "unsynced")

    def __init__(
        self,
        run: Callable[[], Any],
        logs: Collection[PartitionLog],
        size_bytes: int = UNKNOWN_BYTES,
    ) -> None:
        self.run, self.logs, self.size_bytes = run, logs, size_bytes
        self.answer: Any = None
        self.error: Exception | None = None
        self.unsynced: dict[PartitionLog, LogError] = {}


class WriteTurn:
    """Jobs that are carried together: `run`, then `synced` where `sync_first` names logs."""

    def __init__(self, jobs: list[WriteJob]) -> None:
        self.jobs = jobs
        # In the order of the jobs, whoever runs it.
        self.logs = dict.fromkeys(log for job in jobs for log in job.logs)
        self.sync_first = [log for log in self.logs if log.limits.durability is Durability.ALWAYS]
        small = sum(job.size_bytes for job in jobs) <= INLINE_BYTES_MAX
        self.on_a_thread = bool(self.sync_first) or not small
        self.any_log = not all(job.logs for job in jobs)
        self._marks = marks_of(self.logs)

    def holds(self, logs: Iterable[PartitionLog]) -> bool:
        """Whether it may be about one of these."""
        return self.any_log or any(log in self.logs for log in logs)

    def run(self) -> None:
        """Run every job; what one raises is its own. For the one writer of the logs."""
        for job in self.jobs:
            try:
                job.answer = job.run()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
                # An end is no answer that a future could bring; of those before it nothing fails.
                if isinstance(error, Exception) and not isinstance(error, StopIteration):
                    job.error = error
                else:
                    job.error = RuntimeError(told(error))

    def synced(self, failed: Mapping[PartitionLog, LogError]) -> None:
        """Its logs were synced, but for those that are named with what went wrong."""
        for job in self.jobs if failed else ():
            job.unsynced = {log: failed[log] for log in job.logs if log in failed}

    def broke(self, error: BaseException) -> None:
        """It could not be carried to its end: nobody may believe that anything is durable."""
        for job in self.jobs:
            job.error = job.error or LogAway(f"not known to be durable: {told(error)}")

    def changed(self) -> list[PartitionLog]:
        """The logs that it has changed, or that may show more than before."""
        return changed_since(self._marks)


class WriteTurns:
    """See the rules at the head of this file."""

    def __init__(self, *, apart: bool = True) -> None:
        """`apart`: a job of one log changes nothing that jobs of other logs read or change."""
        self._apart = apart
        self.busy = self.closed = False
        self.dirty: dict[PartitionLog, None] = {}
        self._jobs: list[WriteJob] = []
        # What the waiting jobs are about; and whether one may be about any log.
        self._named: set[PartitionLog] = set()
        self._any_log = False
        self._under_way: WriteTurn | None = None

    def give(self, job: WriteJob) -> None:
        """Have it in the next turn. Raises LogAway when no turn comes any more."""
        if self.closed:
            raise LogAway("the buffer is closed")
        self._jobs.append(job)
        self._named.update(job.logs)
        self._any_log = self._any_log or not job.logs

    def may_run_now(self, logs: Iterable[PartitionLog], size_bytes: int) -> bool:
        """Whether a job of these may run at once: it is small, overtakes no other one of its logs,
        and waits for no sync. Who runs it says so with `ran_now`."""
        if self.closed or size_bytes > AT_ONCE_BYTES_MAX:
            return False
        if (self._jobs or self._under_way is not None) and not self._passes(logs):
            return False
        return all(log.limits.durability is not Durability.ALWAYS for log in logs)

    def _passes(self, logs: Iterable[PartitionLog]) -> bool:
        """Whether nothing that is under way, or waits, is about one of these logs."""
        its = set(logs)
        if not (self._apart and its) or self._any_log or not self._named.isdisjoint(its):
            return False
        return self._under_way is None or not self._under_way.holds(its)

    def ran_now(self, logs: Iterable[PartitionLog]) -> None:
        """A job of these has run at once, whatever it raised."""
        for log in logs:
            if log.dirty:
                self.dirty[log] = None

    def next_turn(self) -> WriteTurn | None:
        """What is to be carried now; None while a turn is under way, or nothing is to do."""
        if self.busy or not self._jobs:
            return None
        turn = self._under_way = WriteTurn(self._jobs)
        self._jobs, self._named, self._any_log, self.busy = [], set(), False, True
        return turn

    def over(self, turn: WriteTurn) -> None:
        """A turn is over, however it ended: its jobs are answered, and the next one may come."""
        self._under_way = None
        self.busy = False
        self.ran_now(turn.logs)

    # ---- syncs at an interval

    def sync_in_ms(self) -> int | None:
        """How long to wait before the next sync of what is dirty; None where nothing is."""
        return min(log.limits.fsync_interval_ms for log in self.dirty) if self.dirty else None

    def begin_sync(self) -> list[PartitionLog]:
        """The logs to be synced now. One that gets more meanwhile is dirty again afterwards."""
        logs, self.dirty = list(self.dirty), {}
        return logs

    def sync_over(self, logs: Iterable[PartitionLog]) -> None:
        """That sync is over, however it ended. A log whose sync failed takes no more: it is opened
        anew by who holds it."""
        for log in logs:
            if log.dirty and log.state != "failed":
                self.dirty[log] = None


def marks_of(logs: Iterable[PartitionLog]) -> Marks:
    """How much each of them has changed so far."""
    return [(log, log.changes) for log in logs]


def changed_since(marks: Marks) -> list[PartitionLog]:
    """Those that have changed since."""
    return [log for log, changes in marks if log.changes != changes]


def sync_one(log: PartitionLog) -> LogError | None:
    """Sync a log; why it is not known to be durable, where it is not."""
    try:
        log.sync()
    except LogError as error:
        return error
    except BaseException as error:  # noqa: BLE001 - no answer says that it is durable
        return LogAway(f"{log.folder}: not known to be synced: {told(error)}")
    return None
