"""The lives of a simulated buffer, how it writes its logs, and who waits for them.

Rules of this file. `WriteTurns` says what is written and synced together, `HeldState` when a call
that waits looks again, `Upkeep` what is mended and retained, `StartTries` when a start is tried
again: as in `LogWriter`, `LongPoll`, `HeldCall` and `Maintenance`. Here they are given time and a
disk. A life ends with its process; the next one begins with what is on the disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Set
from functools import partial
from pathlib import Path
from typing import Any

from pxrs_ray.bounded_files import BoundedFiles, OpenBounds
from pxrs_ray.data.frame import frames_in
from pxrs_ray.errors import LeaseOver, PxrsError
from pxrs_ray.files import Files
from pxrs_ray.log.held_calls import HeldState, Waiting, enter, leave, wake
from pxrs_ray.log.lease_term import LeaseTerm
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.log.upkeep import MEND_EVERY_MS, StartTries, Upkeep
from pxrs_ray.log.write_turns import (
    UNKNOWN_BYTES,
    WriteJob,
    WriteTurn,
    WriteTurns,
    changed_since,
    marks_of,
    sync_one,
)
from pxrs_ray.model import Offset, PartitionId, QueuePartition
from pxrs_ray.supervision.passing_trouble import passes
from tests.simulation import history
from tests.simulation.simulator.disk import ProcessFiles, SimulatedDisk
from tests.simulation.simulator.frames import messages_of
from tests.simulation.simulator.world import Process, World

QUEUE = "queue"
# A run is short: retention comes ten times as often as it does.
RETAIN_EVERY_MS = 500
SLOW_SYNC_MS = 150
DATA = Path("/data")

Look = Callable[[Set[QueuePartition], bool], None]


class Poll:
    """A call that waits for a change of some partitions, or for its end."""

    def __init__(
        self, buffer: BufferLives, life: Life, partitions: Collection[PartitionId], wait_ms: int
    ) -> None:
        """It looks for the first time now, and again when `look` is called."""
        self.state = HeldState(looking=True)
        self.look: Look | None = None
        self._buffer, self._life = buffer, life
        self._places = [(QUEUE, partition) for partition in partitions]
        enter(life.waiting, self._places, self)
        if wait_ms > 0:
            buffer.later(life, wait_ms, lambda _: self._end())
        else:
            self.state.over = True

    def wake(self, place: QueuePartition) -> None:
        """See `Waiter`."""
        if self.state.woken(place):
            self._look_soon()

    def _end(self) -> None:
        if self.state.ended():
            self._look_soon()

    def found_nothing(self, *, final: bool) -> None:
        """Wait on."""
        if self.state.found_nothing(final=final):
            self._look_soon()

    def _look_soon(self) -> None:
        self._buffer.later(self._life, 0, lambda _: self._look_again())

    def _look_again(self) -> None:
        if self.look is not None:
            self.look(*self.state.begin_look())

    def leave(self) -> None:
        """Wait no more."""
        self.look = None
        leave(self._life.waiting, self._places, self)


class Life:
    """What one process of the buffer has in memory."""

    def __init__(self, incarnation: str, files: Files, now_ms: int) -> None:
        self.incarnation = incarnation
        self.files = files
        self.manager = LogManager(DATA, 0, 1, now_ms, files=files)
        self.fence = ReadFence(self.manager.folder / "fence.jsonl", files)
        self.manager.taken_over = self.fence.another_wrote
        self.upkeep = Upkeep(self.manager, self.fence)
        self.tenure = LeaseTerm(self.incarnation)
        self.counts: Counter[str] = Counter()
        self.waiting: Waiting = {}
        self.turns = WriteTurns()
        self.done: dict[WriteJob, Callable[[WriteJob], None]] = {}
        self.syncing = False
        # How far each log was looked at.
        self.noted: dict[PartitionId, Offset] = {}


def _bounded(files: Files, open_max: int) -> Files:
    """As a buffer has it: few of its files are open at once. Any number of them where that is 0."""
    bounds = OpenBounds(open_max, 2 * open_max)
    return BoundedFiles(DATA / "locks", bounds, inner=files) if open_max else files


class Witness:
    """What somebody knows who sees what every log of the slot holds, whoever writes it."""

    def __init__(self, partitions: int) -> None:
        self.ends: dict[PartitionId, Offset] = dict.fromkeys(range(partitions), 0)
        self.identities: dict[bytes, tuple[str, int]] = {}
        # When the newest life of each producer began, and its token.
        self.begins: dict[str, tuple[int, str]] = {}
        self.lives = 0
        # What was told of each place: two processes may have the same log one after the other.
        self.told: dict[tuple[PartitionId, Offset], str] = {}


class BufferLives(Process):
    """See the rules at the head of this file."""

    role = "log"

    def __init__(
        self, world: World, disk: SimulatedDisk, witness: Witness, name: str = "log"
    ) -> None:
        super().__init__(world, name)
        self.disk = disk
        self.slow = False
        # Whether it has the slot's name: another process may have been started in its place.
        self.named = True
        self.life: Life | None = None
        self.witness = witness
        self.ends, self.identities = witness.ends, witness.identities
        self.begins = witness.begins
        self._files = ProcessFiles(disk)
        self._lives = 0
        self._begin(0, StartTries())

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
        self._files.end()
        if power:
            self.disk.cut_power()
        self.world.at(away_ms, partial(self._begin, self._lives, StartTries()), self)

    def _begin(self, number: int, tries: StartTries) -> None:
        """Open what is on the disk, however long its trouble lasts."""
        if number != self._lives:
            return
        self.witness.lives += 1
        try:
            self._files = ProcessFiles(self.disk)
            files = _bounded(self._files, self.world.scenario.open_max)
            self.life = life = Life(f"life-{self.witness.lives}", files, self.wall_ms())
        except (OSError, PxrsError) as error:
            pause_ms = int(tries.failed(error) * 1_000)
            self._files.end()
            self.after(pause_ms, partial(self._begin, number, tries))
            return
        self.later(life, MEND_EVERY_MS, self._mend)
        if self.world.scenario.worn or self.world.scenario.retain:
            self.later(life, RETAIN_EVERY_MS, self._retain)

    def crash(self) -> None:
        """End at once, and for good."""
        super().crash()
        self.life = None
        self._files.end()

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

    def write(
        self,
        life: Life,
        run: Callable[[], Any],
        logs: Collection[PartitionLog],
        done: Callable[[WriteJob], None],
        size_bytes: int = UNKNOWN_BYTES,
    ) -> None:
        """Have a job carried in its turn; `done` gets it when it is answered."""
        job = WriteJob(run, logs, size_bytes)
        life.turns.give(job)
        life.done[job] = done
        self._carry_next(life)

    def write_now(
        self,
        life: Life,
        run: Callable[[], Any],
        logs: Collection[PartitionLog],
        size_bytes: int,
    ) -> bool:
        """See `LogWriter.at_once`."""
        if not life.turns.may_run_now(logs, size_bytes):
            return False
        before = marks_of(logs)
        run()
        life.turns.ran_now(logs)
        self._sync_soon(life)
        self._tell(life, changed_since(before))
        return True

    def _carry_next(self, life: Life) -> None:
        turn = life.turns.next_turn()
        if turn is None:
            return
        turn.run()
        for log in turn.logs:  # a segment that is sealed is synced, and so can be read
            self._note(log)
        if not turn.on_a_thread:
            self._carried(life, turn)
        else:
            takes_ms = SLOW_SYNC_MS if self.slow else 1 + int(self.world.roll() * 3)
            self.later(life, takes_ms, lambda life: self._carried(life, turn))

    def _carried(self, life: Life, turn: WriteTurn) -> None:
        if turn.sync_first:
            turn.synced(_sync_all(turn.sync_first))
        self._tell(life, turn.changed())
        life.turns.over(turn)
        for job in turn.jobs:
            life.done.pop(job)(job)
        self._sync_soon(life)
        self._carry_next(life)

    def _tell(self, life: Life, changed: Iterable[PartitionLog]) -> None:
        for log in changed:
            self._note(log)
            wake(life.waiting, (QUEUE, log.partition))

    def _sync_soon(self, life: Life) -> None:
        wait_ms = life.turns.sync_in_ms()
        if wait_ms is not None and not life.syncing:
            life.syncing = True
            self.later(life, SLOW_SYNC_MS if self.slow else wait_ms, self._sync_later)

    def _sync_later(self, life: Life) -> None:
        life.syncing = False
        logs = life.turns.begin_sync()
        _sync_all(logs)
        life.turns.sync_over(logs)
        for log in logs:
            self._note(log)
        self._sync_soon(life)

    def note_all(self, life: Life) -> None:
        for log in life.manager.all_logs():
            self._note(log)

    def _note(self, log: PartitionLog) -> None:
        """Write down what readers can see now and could not before."""
        partition, life, witness = log.partition, self.life, self.witness
        if log.state != "open" or life is None:
            return
        offset = min(life.noted.get(partition, witness.ends[partition]), log.visible_end)
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
                        if at < offset or witness.told.get((partition, at)) == message:
                            continue
                        witness.told[partition, at] = message
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
        life.noted[partition] = log.visible_end
        if self.named:
            witness.ends[partition] = log.visible_end

    def wake(self, life: Life, partitions: Iterable[PartitionId]) -> None:
        for partition in partitions:
            wake(life.waiting, (QUEUE, partition))

    # --- keeping ----------------------------------------------------------------------------------

    def _mend(self, life: Life) -> None:
        self._mend_next(life, life.upkeep.to_mend(self.monotonic_ms()))

    def _mend_next(self, life: Life, places: list[QueuePartition]) -> None:
        """One after the other, each as a job of the writer."""
        if not places:
            life.upkeep.round_over()
            self.later(life, MEND_EVERY_MS, self._mend)
            return
        place, *left = places

        def done(job: WriteJob) -> None:
            _raise_unless_it_passes(job)
            if job.answer:
                self.note_all(life)
            wake(life.waiting, place)
            self._mend_next(life, left)

        self.write(
            life, lambda: life.upkeep.mend(place, self.wall_ms(), self.monotonic_ms()), (), done
        )

    def _retain(self, life: Life) -> None:
        self._retain_next(life, life.upkeep.to_retain(self.wall_ms()))

    def _retain_next(self, life: Life, logs: list[PartitionLog]) -> None:
        if not logs:
            self.later(life, RETAIN_EVERY_MS, self._retain)
            return
        log, *left = logs

        def done(job: WriteJob) -> None:
            _raise_unless_it_passes(job)
            self._retain_next(life, left)

        self.write(life, lambda: log.retain(self.wall_ms()), (log,), done)


def _raise_unless_it_passes(job: WriteJob) -> None:
    """What goes wrong with a log is one of our errors, or passes; all else is a fault of ours."""
    if job.error is not None and not isinstance(job.error, PxrsError) and not passes(job.error):
        raise job.error


def _sync_all(logs: Iterable[PartitionLog]) -> dict[PartitionLog, Any]:
    found = {log: sync_one(log) for log in logs}
    return {log: error for log, error in found.items() if error is not None}
