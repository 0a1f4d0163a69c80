"""The lives of a simulated buffer, how it writes its logs, and who waits for them.

Rules of this file. Like `LogWriter` it writes one job after the other, several together, and syncs
them before they are answered, or later; like `LongPoll` it wakes who waits; like `Maintenance` it
mends and retains. A life ends with its process; the next one begins with what is on the disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pxrs_ray.data.frame import frames_in
from pxrs_ray.errors import LeaseOver, LogError, PxrsError
from pxrs_ray.log.lease_term import LeaseTerm
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.supervision.passing_trouble import passes
from tests.simulation import history
from tests.simulation.simulator.disk import SimulatedDisk
from tests.simulation.simulator.frames import messages_of
from tests.simulation.simulator.world import Action, Process, World

QUEUE = "queue"
START_AGAIN_MS = 20
MEND_EVERY_MS = 200
RETAIN_EVERY_MS = 500
SLOW_SYNC_MS = 150
DATA = Path("/data")


@dataclass(slots=True, eq=False)
class Poll:
    """A call that waits for a change of some partitions, or for its end."""

    places: Collection[PartitionId]
    end_ms: int
    look: Action
    changed: dict[PartitionId, None] = field(default_factory=dict)
    waits: bool = False


@dataclass(slots=True, eq=False)
class Job:
    run: Action
    logs: Collection[PartitionLog]
    done: Callable[[Mapping[PartitionLog, LogError]], None]


class Life:
    """What one process of the buffer has in memory."""

    def __init__(self, number: int, disk: SimulatedDisk, now_ms: int) -> None:
        self.incarnation = f"life-{number}"
        self.manager = LogManager(DATA, 0, 1, now_ms, files=disk)
        self.fence = ReadFence(self.manager.folder / "fence.jsonl", disk)
        self.tenure = LeaseTerm(self.incarnation)
        self.counts: Counter[str] = Counter()
        self.polls: dict[PartitionId, dict[Poll, None]] = {}
        self.jobs: list[Job] = []
        self.writing = False
        self.syncing = False
        self.dirty: dict[PartitionLog, None] = {}


class BufferLives(Process):
    """See the rules at the head of this file."""

    role = "log"

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, "log")
        self.disk = SimulatedDisk(seed)
        self.slow = False
        self.life: Life | None = None
        self.ends: dict[PartitionId, Offset] = dict.fromkeys(range(world.scenario.partitions), 0)
        self.identities: dict[bytes, tuple[str, int]] = {}
        # When the newest life of each producer began, and its token.
        self.begins: dict[str, tuple[int, str]] = {}
        self._lives = 0
        self._begin(0)

    # --- lives ------------------------------------------------------------------------------------

    def end(self, partition: PartitionId) -> Offset:
        """The offset that the next message gets, as far as anybody can know."""
        return self.ends[partition]

    def restart(self, away_ms: int, *, power: bool = False) -> None:
        """The process is gone; after a while there is another one. With the power, what was not
        synced is gone as well."""
        if self.life is not None and self.life.fence.behind:
            # A disk that takes nothing holds up no reader: what it did not take is forgotten now.
            self.world.record(history.Harmed(self.world.now_ms, "fences not written", False))
        self.life = None
        self._lives += 1
        if power:
            self.disk.cut_power()
        else:
            self.disk.end_process()
        self.world.at(away_ms, partial(self._begin, self._lives), self)

    def _begin(self, number: int) -> None:
        """Open what is on the disk, however long its trouble lasts."""
        if number != self._lives:
            return
        try:
            self.life = life = Life(number, self.disk, self.wall_ms())
        except (OSError, PxrsError) as error:
            if not passes(error):
                raise
            self.disk.end_process()
            self.after(START_AGAIN_MS, partial(self._begin, number))
            return
        self.later(life, MEND_EVERY_MS, self._mend)
        if self.world.scenario.worn:
            self.later(life, RETAIN_EVERY_MS, self._retain)

    def later(self, life: Life, delay_ms: int, action: Callable[[Life], None]) -> None:
        """Do it in the same life, or never."""
        self.after(delay_ms, partial(self._if_alive, life, action))

    def _if_alive(self, life: Life, action: Callable[[Life], None]) -> None:
        if life is self.life:
            action(life)

    def wall_ms(self) -> int:
        return self.now().wall_ms

    # --- the lease, and the queue -----------------------------------------------------------------

    def is_open(self, life: Life) -> bool:
        return life.tenure.holds(self.monotonic_ms())

    def over(self) -> LeaseOver:
        return LeaseOver("the buffer has no lease now")

    # --- writing ----------------------------------------------------------------------------------

    def write(self, life: Life, job: Job) -> None:
        life.jobs.append(job)
        if not life.writing:
            self._write_next(life)

    def _write_next(self, life: Life) -> None:
        """Do what is given, and sync it where that must be before it is answered."""
        jobs, life.jobs = life.jobs, []
        life.writing = True
        logs = dict.fromkeys(log for job in jobs for log in job.logs)
        before = {log: log.changes for log in logs}
        for job in jobs:
            job.run()
            for log in job.logs:  # a segment that is sealed is synced, and so can be read
                self._note(log)
        if logs and self.world.scenario.durability == "always":
            takes_ms = SLOW_SYNC_MS if self.slow else 1 + int(self.world.roll() * 3)
            self.later(life, takes_ms, lambda life: self._written(life, jobs, before, sync=True))
        else:
            self._written(life, jobs, before, sync=False)

    def _written(
        self, life: Life, jobs: list[Job], before: Mapping[PartitionLog, int], *, sync: bool
    ) -> None:
        unsynced = _sync_all(before) if sync else {}
        for log, changes in before.items():
            if log.changes != changes:
                self._note(log)
                self.wake(life, [log.partition])
        for job in jobs:
            job.done({log: unsynced[log] for log in job.logs if log in unsynced})
        life.dirty.update(dict.fromkeys(log for log in before if log.dirty))
        if life.dirty and not life.syncing:
            life.syncing = True
            interval_ms = SLOW_SYNC_MS if self.slow else 30
            self.later(life, interval_ms, self._sync_later)
        life.writing = False
        if life.jobs:
            self._write_next(life)

    def _sync_later(self, life: Life) -> None:
        life.syncing = False
        logs, life.dirty = life.dirty, {}
        _sync_all(logs)
        for log in logs:
            self._note(log)

    def note_all(self, life: Life) -> None:
        for log in life.manager.all_logs():
            self._note(log)

    def _note(self, log: PartitionLog) -> None:
        """Write down what readers can see now and could not before."""
        partition = log.partition
        offset = min(self.ends[partition], log.visible_end)
        if log.state != "open":
            return
        while offset < log.visible_end:
            with self.disk.well():  # who looks on reads what is there, whatever fails for others
                run = log.read(offset)
            for chunk in run.chunks:
                for header, _ in frames_in(chunk):
                    key, messages = messages_of(header)
                    producer, number = self.identities[header.producer_id]
                    epoch = number * 1_000 + header.producer_epoch
                    for within, message in enumerate(messages):
                        at = header.base_offset + within
                        if at < offset:
                            continue
                        self.world.record(
                            history.Appended(
                                self.world.now_ms,
                                partition,
                                at,
                                key,
                                message,
                                producer,
                                epoch,
                                header.sequence,
                                within,
                            )
                        )
            offset = run.next_offset
        self.ends[partition] = log.visible_end

    # --- waiting ----------------------------------------------------------------------------------

    def poll(self, places: Collection[PartitionId], wait_ms: int) -> Poll:
        return Poll(places, self.world.now_ms + wait_ms, lambda: None)

    def enter(self, life: Life, poll: Poll) -> None:
        for place in poll.places:
            life.polls.setdefault(place, {})[poll] = None
        left_ms = poll.end_ms - self.world.now_ms
        if left_ms > 0:
            self.later(life, left_ms, partial(self._look_in, poll))

    def leave(self, life: Life, poll: Poll) -> None:
        poll.look = _nothing
        for place in poll.places:
            life.polls.get(place, {}).pop(poll, None)

    def wait(self, life: Life, poll: Poll) -> None:
        """Look again when something has changed: perhaps it has, while this was looked at."""
        poll.waits = True
        if poll.changed or self.world.now_ms >= poll.end_ms:
            self.later(life, 0, partial(self._look_in, poll))

    def _look(self, poll: Poll) -> None:
        if poll.waits:
            poll.waits = False
            poll.look()

    def _look_in(self, poll: Poll, _: Life) -> None:
        self._look(poll)

    def wake(self, life: Life, places: Collection[PartitionId]) -> None:
        for place in places:
            for poll in life.polls.get(place, ()):
                if not poll.changed and poll.waits:
                    self.later(life, 0, partial(self._look_in, poll))
                poll.changed[place] = None

    # --- keeping ----------------------------------------------------------------------------------

    def _mend(self, life: Life) -> None:
        self.later(life, MEND_EVERY_MS, self._mend)
        for place in life.manager.due(self.monotonic_ms()):
            mend = partial(self._mend_one, life, place)
            self.write(life, Job(mend, (), partial(self._mended, life, place[1])))
        if life.fence.behind:
            life.fence.catch_up()

    def _mended(self, life: Life, partition: PartitionId, _: object) -> None:
        self.wake(life, [partition])

    def _mend_one(self, life: Life, place: tuple[str, PartitionId]) -> None:
        if life.manager.mend(place, self.wall_ms(), self.monotonic_ms()):
            self.note_all(life)

    def _retain(self, life: Life) -> None:
        self.later(life, RETAIN_EVERY_MS, self._retain)
        for log in life.manager.all_logs():
            self.write(life, Job(partial(self._retain_one, log), (log,), lambda _: None))

    def _retain_one(self, log: PartitionLog) -> None:
        try:
            log.retain(self.wall_ms())
        except (PxrsError, OSError):
            return  # the next time


def _nothing() -> None:
    """Nobody waits any more."""


def _sync_all(logs: Collection[PartitionLog]) -> dict[PartitionLog, LogError]:
    failed = {}
    for log in logs:
        try:
            log.sync()
        except LogError as error:
            failed[log] = error
    return failed
