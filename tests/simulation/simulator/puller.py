"""A pulling caller: `PulledPositions` as they ship, and a program that takes, works and commits.

Rules of this file. The caller takes a batch, works its messages one after the other, and asks
before each whether it still holds the partition: where its lease is over it waits, and what it has
lost it leaves. It commits now and then, part of a batch too, and when there is nothing to take.
Some callers always say up to where, as whoever keeps offsets itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from pxrs_ray.consumer.member_machine import MemberMachine
from pxrs_ray.consumer.pulled_positions import PulledPositions, Taken
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.model import Epoch, Grant, Offset, PartitionId, Progress
from pxrs_ray.processing.suspects import Death
from tests.simulation.history import Begun, Processed
from tests.simulation.simulator.frames import Line
from tests.simulation.simulator.world import Process

COMMITS = 0.5
COMMITS_A_PART = 0.05


class Puller(Protocol):
    """What a caller needs of its process."""

    machine: MemberMachine

    def carry_out(self) -> None:
        """Do what the machine wants done."""

    def promise(
        self, round_: int, partition: PartitionId, epoch: Epoch, checkpoint: Offset
    ) -> None:
        """When this round of commits is over, so much is committed."""


class PullWork:
    """The caller of one process, in the place of workers: see `Work`."""

    def __init__(
        self,
        process: Process,
        puller: Puller,
        bytes_max: int,
        may_begin: Callable[[], bool],
        moved: Callable[[], None],
        *,
        says_offsets: bool,
    ) -> None:
        """`says_offsets`: it never commits all that it took, but up to where it worked."""
        self.hang_ms = 0
        self.changed = True
        self._process, self._world = process, process.world
        self._puller, self._bytes_max = puller, bytes_max
        self._may_begin, self._moved = may_begin, moved
        self._positions = PulledPositions()
        self._sessions: dict[tuple[PartitionId, Epoch], ConsumerSession] = {}
        # What is in the caller's hands, and what is left of it.
        self._in_hand: tuple[Taken, Iterator[Line]] | None = None
        self._line: Line | None = None
        self._is_busy = False
        self._took_any = False
        self._says_offsets = says_offsets
        self._worked_to: dict[tuple[PartitionId, Epoch], Offset] = {}
        # Whether a gap came since the last look for something to take.
        self._may_pass_gap = False
        # Which round of commits it waits for, and what happens when it goes.
        self._round: int | None = None
        self._leave: Callable[[], None] | None = None

    # --- what the session asks --------------------------------------------------------------------

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the caller says it is."""
        return self._positions.progress(partition, epoch)

    def queued_bytes(self, partition: PartitionId) -> int:
        """What the caller has not taken."""
        return self._positions.queued_bytes(partition)

    # --- what the machine says --------------------------------------------------------------------

    def begin(self, session: ConsumerSession, grant: Grant) -> None:
        """A partition is ours."""
        self._sessions[grant.partition, grant.epoch] = session
        self._positions.begin(grant)
        self._change()

    def take_in(self, partition: PartitionId, epoch: Epoch, batch: Any, size_bytes: int) -> None:
        """Messages came."""
        if self._positions.put(partition, epoch, batch, size_bytes):
            self.go_on()

    def skip(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has nothing before `to` any more."""
        self._positions.skip(partition, epoch, to)
        self._may_pass_gap = True
        self.go_on()

    def drain(self, partition: PartitionId) -> None:
        """Give it back when nothing of it is in the caller's hands."""
        self._positions.drain(partition)
        self._release_drained()

    def drop(self, partition: PartitionId) -> None:
        """It is lost."""
        self._positions.forget(partition)

    def leased(self) -> None:
        """The lease was renewed: whoever waited for that goes on."""
        self.go_on()

    def leave(self, then: Callable[[], None]) -> None:
        """Close the consumer as soon as nothing is in hand."""
        self._leave = then
        self.go_on()

    # --- the caller -------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Do what is next, if nothing is under way."""
        if self._is_busy or self._round is not None:
            return
        if self._in_hand is None and self._leave is not None:
            leave, self._leave = self._leave, None
            self._note_done()
            self._positions.close()
            leave()
            self._release_drained()
            return
        if not self._may_begin():
            return
        if self._in_hand is None:
            taken = self._positions.take(self._bytes_max)
            if self._may_pass_gap:
                self._may_pass_gap = False
                self._change()
            if taken is None:
                self._commit_if_any()
                return
            lines: list[Line] = taken.batch.lines  # type: ignore[attr-defined]
            self._in_hand, self._took_any = (taken, iter(lines)), True
            if taken.was_full:
                self._puller.machine.wake_reading()
        self._work_on(*self._in_hand)
        self._puller.carry_out()

    def _work_on(self, taken: Taken, lines: Iterator[Line]) -> None:
        """Begin the next message of the batch, or be done with it."""
        place = taken.grant.partition, taken.grant.epoch
        session = self._sessions[place]
        line = next(lines, None)
        is_lost = session is not self._puller.machine.session or not session.holds(*place)
        if line is None or is_lost:
            self._in_hand = None
            if self._world.chance(COMMITS):
                self._commit()
            else:
                self.go_on()
            return
        self._is_busy = True
        self._record(Begun, session, place, line)
        self._process.after(self._takes_ms(), partial(self._worked, session, place, line))

    def _takes_ms(self) -> int:
        takes_ms = 1 + int(self._world.roll() * 12)
        if self.hang_ms:
            takes_ms, self.hang_ms = self.hang_ms, 0
        return takes_ms

    def _worked(
        self, session: ConsumerSession, place: tuple[PartitionId, Epoch], line: Line
    ) -> None:
        self._is_busy = False
        self._record(Processed, session, place, line)
        self._worked_to[place] = line.offset + 1
        if self._world.chance(COMMITS_A_PART):
            # Of the other partitions nothing is said, so nothing more of them is done.
            self._positions.note_done({place[0]: line.offset + 1})
            self._await_commit()
        self.go_on()

    def _commit_if_any(self) -> None:
        if self._took_any:
            self._commit()

    def _commit(self) -> None:
        self._took_any = False
        self._note_done()
        self._await_commit()

    def _note_done(self) -> None:
        if not self._says_offsets:
            self._positions.note_done()
            return
        session = self._puller.machine.session
        ours = {
            place: offset
            for place, offset in self._worked_to.items()
            if self._sessions[place] is session and session.holds(*place)
        }
        self._positions.note_done({partition: offset for (partition, _), offset in ours.items()})

    def _await_commit(self) -> None:
        progress = self._puller.machine.progress
        self._round = progress.commit_all()
        for (partition, epoch), session in self._sessions.items():
            found = self._positions.progress(partition, epoch)
            if found is not None and session is self._puller.machine.session:
                self._puller.promise(self._round, partition, epoch, found.checkpoint)
        self._change()
        self._puller.carry_out()

    def round_over(self) -> None:
        """A round of commits is over: perhaps the one that the caller waits for."""
        if self._round is not None and self._puller.machine.progress.rounds >= self._round:
            self._round = None
            self._release_drained()
            self.go_on()

    def _release_drained(self) -> None:
        for partition, epoch in self._positions.ready():
            now_s = self._process.monotonic_ms() / 1_000
            self._puller.machine.stopped(partition, epoch, now_s)
            self._positions.forget(partition)
        self._puller.carry_out()

    def death(self, *, by_itself: bool) -> Death:
        """Nobody reads what the caller had in hand: it is in the user's own program."""
        return Death()

    def _change(self) -> None:
        if not self.changed:
            self.changed = True
            self._moved()

    def _record(
        self,
        kind: type[Begun] | type[Processed],
        session: ConsumerSession,
        place: tuple[PartitionId, Epoch],
        line: Line,
    ) -> None:
        at = (self._world.now_ms, *place, session.member, session.incarnation, line.offset)
        self._world.record(Begun(*at) if kind is Begun else Processed(*at, line.key, line.message))
