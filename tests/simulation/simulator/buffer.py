"""One buffer: the logs, fences, lease and calls that ship, on a simulated disk.

Rules of this file. `LogManager`, `ReadFence`, `LeaseTerm`, `AppendCall`, `FetchCall` and
`read_parts` decide; here they are given time, a disk and a network, as `Buffer` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Set
from functools import partial

from pxrs_ray.data.protocol import (
    Appended,
    BufferGrant,
    Fetched,
    OutFrame,
    QueueSpec,
    ReadPosition,
    Refused,
)
from pxrs_ray.errors import LogError, PxrsError
from pxrs_ray.log.buffer_calls import AppendCall, ColdRead, FetchCall, read_parts
from pxrs_ray.log.held_calls import wake_all
from pxrs_ray.log.log_view import FrameRun
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import ProducerLife
from pxrs_ray.log.write_turns import WriteJob
from pxrs_ray.model import Epoch, Incarnation, MemberId, Offset, PartitionId, QueuePartition
from pxrs_ray.supervision.passing_trouble import passes
from tests.simulation import history
from tests.simulation.simulator.buffer_lives import (
    QUEUE,
    SLOW_SYNC_MS,
    BufferLives,
    Life,
    Poll,
)
from tests.simulation.simulator.frames import lines_in
from tests.simulation.simulator.store import GROUP

FETCH_BYTES = 4_000
WAIT_MS = 300

Answer = list[Appended | Refused] | None
Found = list[Fetched | Refused] | None
Parts = Generator[ColdRead, FrameRun, list[Fetched | Refused]]
"""None: nobody is there."""


class BufferProcess(BufferLives):
    """See the rules at the head of this file."""

    def ping(self, grant: BufferGrant) -> tuple[str, int, dict[PartitionId, Offset]] | None:
        """Take what is granted; answer who this is, its clock, and how far its logs have come."""
        life = self.life
        if life is None:
            return None
        was_open, now_ms = self.is_open(life), self.monotonic_ms()
        life.tenure.take(grant, now_ms)
        if self.is_open(life) != was_open:
            wake_all(life.waiting)
        left_ms = life.tenure.until_ms - now_ms
        if left_ms > 0:
            self.later(life, left_ms + left_ms // 16 + 1, self._lapse)
        return life.incarnation, now_ms, dict(life.manager.known_ends().get(QUEUE, {}))

    def _lapse(self, life: Life) -> None:
        if not self.is_open(life):
            wake_all(life.waiting)

    def open(
        self,
        spec: QueueSpec,
        ends: Mapping[PartitionId, Offset],
        make: bool,
        respond: Callable[[bool], None],
    ) -> None:
        """Open the logs: see `Buffer.open`. Answers whether that worked."""
        life = self.life
        if life is None:
            return

        def done(job: WriteJob) -> None:
            _raise_unless(passes, job)
            self.note_all(life)
            wake_all(life.waiting)
            respond(job.error is None)

        run = partial(life.manager.open, spec, ends, self.wall_ms(), make=make)
        self.write(life, run, (), done)

    def fence(self, epochs: Mapping[PartitionId, Epoch]) -> None:
        """Refuse readers below these epochs from now on."""
        if self.life is not None:
            self.life.fence.fence(QUEUE, GROUP, epochs)
            self.wake(self.life, list(epochs))

    def begin_producer(
        self, name: str, number: int, token: str, respond: Callable[[ProducerLife | None], None]
    ) -> None:
        """Begin a life of a producer: see `Buffer.begin_producer`."""
        life = self.life
        if life is None or not self.is_open(life):
            return

        def run() -> ProducerLife | None:
            newest = life.manager.producers.begin(QUEUE, name, number, token)
            if newest is not None and self.begins.get(name, (0, ""))[1] != newest.token:
                self.begins[name] = (self.world.now_ms, newest.token)
            return newest

        def done(job: WriteJob) -> None:
            _raise_unless(passes, job)
            if job.error is None and self.is_open(life):
                respond(job.answer)

        self.write(life, run, (), done)

    def passed(self, checkpoints: Mapping[PartitionId, Offset]) -> None:
        """Note how far the group has come: see `Buffer.passed`."""
        life = self.life
        if life is None or not self.is_open(life):
            return

        def run() -> None:
            for partition, offset in checkpoints.items():
                life.manager.log(QUEUE, partition).passed(GROUP, offset)

        # What fails is told again.
        self.write(life, run, life.manager.all_logs(), partial(_raise_unless, _is_told))

    # --- appending --------------------------------------------------------------------------------

    def append(
        self, frames: list[OutFrame], wait_ms: int, respond: Callable[[Answer], None]
    ) -> None:
        """Append frames: see `Buffer.append`."""
        life = self.life
        if life is None:
            respond(None)
            return
        call = AppendCall(life.manager, life.counts, self.over, QUEUE, frames)
        poll = Poll(self, life, dict.fromkeys(frame[0] for frame in frames), wait_ms)

        def end(unsynced: Mapping[PartitionLog, LogError], final: bool) -> None:
            call.end(unsynced, self.is_open(life), life.tenure.term)
            judge(final)

        def judge(final: bool) -> None:
            answer = call.answer(final)
            if answer is None:
                poll.found_nothing(final=final)
            else:
                poll.leave()
                _strip(answer)
                respond(answer)

        def look(_: Set[QueuePartition], final: bool, *, at_once: bool = False) -> None:
            if not call.begin(self.is_open(life), life.tenure.term):
                judge(final)
                return
            logs = tuple(dict.fromkeys(call.logs.values()))

            def run() -> None:
                call.run(self.wall_ms())

            def done(job: WriteJob) -> None:
                _raise_unless(_is_told, job)
                end(job.unsynced, final)

            if not logs or (at_once and self.write_now(life, run, logs, call.size_bytes)):
                end({}, final)
            else:
                self.write(life, run, logs, done, call.size_bytes)

        poll.look = look
        look(set(), poll.state.over, at_once=True)

    # --- reading ----------------------------------------------------------------------------------

    def fetch(
        self,
        member: MemberId,
        incarnation: Incarnation,
        positions: Mapping[PartitionId, ReadPosition],
        respond: Callable[[Found], None],
    ) -> None:
        """Read several partitions: see `Buffer.fetch`."""
        life = self.life
        if life is None:
            respond(None)
            return
        call = FetchCall(positions, self.over)
        poll = Poll(self, life, positions, WAIT_MS)
        poll.look = partial(self._fetch_round, life, call, poll, (member, incarnation), respond)
        poll.look(set(), False)

    def _fetch_round(
        self,
        life: Life,
        call: FetchCall,
        poll: Poll,
        reader: tuple[MemberId, Incarnation],
        respond: Callable[[Found], None],
        changed: Set[QueuePartition],
        final: bool,
    ) -> None:
        if changed or final:
            call.changed(sorted(partition for _, partition in changed), self.is_open(life))
        call.begin(final)
        looked = call.look

        def judge(found: list[Fetched | Refused]) -> None:
            answer = call.end(found, self.is_open(life), final)
            if answer is None:
                poll.found_nothing(final=final)
                return
            poll.leave()
            _strip(answer)
            for part in answer:
                if isinstance(part, Fetched) and part.chunks:
                    self._served(part, looked[part.partition], *reader)
            respond(answer)

        if not self.is_open(life):
            judge([])
            return
        parts = read_parts(
            life.manager, life.fence, life.counts, QUEUE, GROUP, looked, FETCH_BYTES, final
        )

        self._read_on(life, parts, lambda: next(parts), judge)

    def _read_on(
        self,
        life: Life,
        parts: Parts,
        step: Callable[[], ColdRead],
        judge: Callable[[list[Fetched | Refused]], None],
    ) -> None:
        """Read the next part; what is not in memory takes a while."""
        try:
            cold = step()
        except StopIteration as read:
            judge(read.value)
            return

        def read_cold(life: Life) -> None:
            try:
                run = cold()
            except Exception as error:
                thrown = error.with_traceback(None)
                self._read_on(life, parts, lambda: parts.throw(thrown), judge)
            else:
                self._read_on(life, parts, lambda: parts.send(run), judge)

        takes_ms = SLOW_SYNC_MS if self.slow else 1 + int(self.world.roll() * 3)
        self.later(life, takes_ms, read_cold)

    def _served(
        self, part: Fetched, position: ReadPosition, member: MemberId, incarnation: Incarnation
    ) -> None:
        epoch, offset = position
        now_ms, partition = self.world.now_ms, part.partition
        self.world.record(
            history.Fetched(now_ms, partition, epoch, member, incarnation, offset, part.next_offset)
        )

    def kept(self) -> list[history.Kept]:
        """What each log holds, read as a reader would; [] while it is not well."""
        if self.life is None or not self.is_well():
            return []
        found = []
        for log in self.life.manager.all_logs():
            messages, offset = {}, log.start_offset
            while offset < log.visible_end:
                run = log.read(offset)
                messages.update({line.offset: line.message for line in lines_in(run.chunks, 0)})
                offset = run.next_offset
            found.append(history.Kept(self.world.now_ms, log.partition, log.start_offset, messages))
        return found

    def is_well(self) -> bool:
        """Whether every log is served."""
        life = self.life
        if life is None or not self.is_open(life):
            return False
        logs = life.manager.all_logs()
        return len(logs) == len(self.ends) and all(log.state == "open" for log in logs)


def _strip(answer: Collection[Appended | Fetched | Refused]) -> None:
    """An error that travels brings no traceback: it would keep everybody of the run."""
    for part in answer:
        if isinstance(part, Refused):
            part.error.__traceback__ = None
            part.error.__context__ = part.error.__cause__ = None


def _is_told(error: Exception) -> bool:
    return isinstance(error, PxrsError) or passes(error)


def _raise_unless(expected: Callable[[Exception], bool], job: WriteJob) -> None:
    """What is not expected of a job is a fault of ours."""
    if job.error is not None and not expected(job.error):
        raise job.error
