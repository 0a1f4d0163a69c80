"""`ReplicaLives`: how the wanted consumers of a group start, join, end and are replaced. Pure.

Rules of this file. A consumer joins only when its actor is up; several that start together join
together, and whoever is slow joins as it comes. Whoever died is reported first and replaced then;
one that dies at once waits longer each time. A member whose lease ran out may only be frozen: it
gets one more lease to thaw and join anew, then it is killed, and its end is seen. A handler that
cannot be loaded fails its consumer for good. Whatever is raised, a consumer that is wanted is not
left to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Generic

from pxrs_ray.backoff import pause_after
from pxrs_ray.errors import DeadlineExceeded, Fenced, HandlerError, PxrsError
from pxrs_ray.group.events import Died, Dismiss
from pxrs_ray.group.replica_life import (
    AwaitEnd,
    AwaitStarts,
    AwaitUp,
    DidNotEnd,
    Each,
    EndProcess,
    FindActor,
    HandOver,
    L,
    LetBegin,
    LetJoin,
    LetTimePass,
    LivesRoom,
    MakeActor,
    ReadDeath,
    ReportDeath,
)
from pxrs_ray.group.taking_over import CAUSE, HasNewest, OfferConfig, Offered
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.processing.suspects import Death
from pxrs_ray.steps import Steps, do
from pxrs_ray.supervision.restart_rules import told

TOGETHER_WAIT_S = 10.0
PENDING_AFTER_S = 5.0
RESPAWN_PAUSE_S = 0.1
RESPAWN_PAUSE_MOST_S = 10.0
OFFER_AGAIN_S = 1.0


class ReplicaLives(Generic[L]):
    """All wanted consumers of one group."""

    def __init__(self, room: LivesRoom[L]) -> None:
        self.wanted: dict[MemberId, L] = {}
        # They hand over, and are not wanted any more.
        self.leaving: list[L] = []
        self.stopping = False
        self._room = room

    def is_wanted(self, life: L) -> bool:
        """Whether it is the one that is wanted by its name."""
        return self.wanted.get(life.member) is life

    # --- what is asked for ------------------------------------------------------------------------

    def add(self, lives: Sequence[L]) -> Steps[None]:
        """Start these; they join together, or as they come where one is slow to start.

        Raises what the group refuses, and HandlerError where one cannot be started.
        """
        self.wanted |= {life.member: life for life in lives}
        party: Party[L] = Party()
        for life in lives:
            self._room.beside(life, self._start(life, party))
        self._room.changed()
        up: list[L] = []
        try:
            yield from do(AwaitStarts(tuple(lives), TOGETHER_WAIT_S))
            up = party.close()
            yield from self._join(up)
        except GeneratorExit:  # whoever carried this is gone
            raise
        except BaseException:
            # The caller gets the error. Those that are up stay wanted, and join when they may.
            for life in up or party.close():
                self._room.beside(life, self._join([life]))
            raise
        failed = [life for life in lives if life.state == "failed"]
        if failed:
            raise HandlerError(f"consumer {failed[0].member} cannot start: {failed[0].reason}")

    def remove(self, members: Sequence[MemberId], cause: str) -> Steps[None]:
        """Let these members hand everything back and end; over when they have left."""
        leaving = [self.wanted.pop(member) for member in members if member in self.wanted]
        self._room.changed()
        for life in leaving:
            life.state = "leaving"
        self.leaving += leaving
        try:
            yield from do(Each(tuple(self._let_go(life, cause) for life in leaving)))
        finally:
            self.leaving = [life for life in self.leaving if life not in leaving]

    def stop(self, cause: str) -> Steps[None]:
        """Remove everybody, and replace nobody any more."""
        self.stopping = True
        yield from self.remove(list(self.wanted), cause)

    def restart(self, member: MemberId) -> Steps[None]:
        """End a consumer's process; another takes its place."""
        life = self.wanted[member]
        if life.state == "failed":
            self._room.beside(life, self._respawn(life, "restarted by hand"))
        else:
            yield from do(EndProcess(life))

    def reattach(self, life: L) -> Steps[None]:
        """Go on with a consumer that a former coordinator spawned, however far it had come."""
        self.wanted[life.member] = life
        if not (yield from do(FindActor(life))):
            self._room.beside(life, self._died(life, "its actor is gone"))
        elif self._room.member_is(life.member) == life.incarnation:
            life.state = "running"
            self._room.beside(life, self._begin([life]))
        else:
            self._room.beside(life, self._join_when_up(life))

    def abandon(self) -> list[L]:
        """Replace nobody any more; who was wanted, and is to be killed."""
        self.stopping = True
        lives = list(self.wanted.values())
        self.wanted.clear()
        return lives

    # --- what happens -----------------------------------------------------------------------------

    def dismissed(self, dismiss: Dismiss) -> None:
        """The core has removed an incarnation from the group."""
        life = self.wanted.get(dismiss.member)
        if life is None or life.incarnation != dismiss.incarnation or dismiss.clean:
            return
        if life.state == "running":
            life.state, life.reason = "silent", dismiss.cause
            self._room.beside(life, self.end_if_still_silent(life, dismiss.incarnation))

    def rejoining(self, member: MemberId, actor: str) -> Incarnation:
        """The next incarnation of a member that lost its membership, and whose `actor` lives.

        Raises Fenced when another actor has taken its place.
        """
        life = self.wanted[member]
        if life.actor != actor or life.state not in ("running", "silent"):
            raise Fenced(f"{actor} was replaced by {life.actor}")
        life.incarnation = self._room.number(member)
        life.state, life.reason = "running", ""
        self._room.changed()
        return life.incarnation

    def faulted(self, life: L, error: BaseException) -> Steps[None]:
        """What was done beside for it has raised this."""
        yield from do(LetTimePass(life.faults.failed(self._room.now_s()) or 0.0))
        if not self.is_wanted(life) or self.stopping:
            return
        self._room.call_off(life)
        # What was refused may be taken next time; what else failed may be the actor's doing.
        refused = isinstance(error, PxrsError)
        again = self._join_when_up(life) if refused else self._respawn(life, told(error))
        self._room.beside(life, again)

    def watched(self, life: L) -> Steps[None]:
        """From when it may begin until it is replaced."""
        end = yield from do(AwaitEnd(life))
        if end.died:
            yield from self._died(life, end.cause, end.status)
        else:
            yield from self._gone(life, end.cause)

    def end_if_still_silent(self, life: L, incarnation: Incarnation) -> Steps[None]:
        """Kill one that is not heard of for another lease; its end is seen then."""
        yield from do(LetTimePass(self._room.lease_s))
        if life.state == "silent" and life.incarnation == incarnation:
            self._room.kill(life, hard=True)

    # --- how it starts ----------------------------------------------------------------------------

    def _start(self, life: L, party: Party[L]) -> Steps[None]:
        try:
            is_made = yield from self._make(life)
        except Exception as error:  # noqa: BLE001 - whatever it is, another process may be made
            self._room.beside(life, self._respawn(life, f"could not be made: {told(error)}"))
            return
        if is_made and (yield from self._up(life)) and not party.joins(life):
            yield from self._join([life])

    def _make(self, life: L) -> Steps[bool]:
        """Make its process; False where it was let go meanwhile."""
        yield from do(MakeActor(life))
        self._room.changed()
        if not self.is_wanted(life):
            self._room.kill(life, hard=False)
            return False
        return True

    def _up(self, life: L) -> Steps[bool]:
        """Whether the actor came up. One that has no place yet is pending, and that is shown."""
        came = yield from do(AwaitUp(life, PENDING_AFTER_S))
        if not came.is_up and not came.died:
            life.state = "pending"
            needs = self._room.needs
            life.reason = f"no node has room for {needs} yet, or it is slow to start"
            while True:
                if not (yield from do(HasNewest(life))):
                    # With what it asked for it may never get a place; by now it may ask for less.
                    self._room.beside(life, self._respawn(life, CAUSE))
                    return False
                came = yield from do(AwaitUp(life, PENDING_AFTER_S))
                if came.is_up or came.died:
                    break
        if came.is_up:
            return True
        if came.refused:
            # The constructor loads the handler: its error is what the user must see.
            life.state, life.reason = "failed", came.died
        elif self.is_wanted(life):
            cause = f"died while it started: {came.died}"
            self._room.beside(life, self._respawn(life, cause))
        return False

    def _join_when_up(self, life: L) -> Steps[None]:
        if (yield from self._up(life)):
            yield from self._join([life])

    def _join(self, lives: Sequence[L]) -> Steps[None]:
        wanted = sorted(filter(self.is_wanted, lives), key=lambda life: life.member)
        if not wanted:
            return
        yield from do(LetJoin(tuple(wanted)))
        for life in wanted:
            life.state, life.reason = "running", ""
        yield from self._begin(wanted)

    def _begin(self, lives: Sequence[L]) -> Steps[None]:
        """Let members that have joined begin, and watch them from then on; begun twice is begun."""
        members = []
        for life in lives:
            if self._room.member_is(life.member) is not None:
                members.append(life)
                continue
            # The registry took the join so late that its lease was over: nobody else would let
            # it begin, and it cannot miss a membership that it was never told of.
            life.incarnation = self._room.number(life.member)
            self._room.changed()
            self._room.beside(life, self._join([life]))
        if members:
            yield from do(LetBegin(tuple(members)))
            for life in members:
                self._room.beside(life, self._renewed(life))

    def _renewed(self, life: L) -> Steps[None]:
        """What it was made of may be old by now: one that cannot have the newest hands over, and
        its end is seen then. What its handler cannot serve was told to whoever wanted that."""
        actor = life.actor
        while self.is_wanted(life) and life.actor == actor:
            if (yield from do(HasNewest(life))):
                return
            try:
                offered = yield from do(OfferConfig(life))
            except HandlerError:
                return
            if offered is Offered.REFUSED:
                try:
                    yield from do(HandOver(life, CAUSE))
                except DidNotEnd:
                    self._room.kill(life, hard=True)
                return
            if offered is Offered.GONE:
                return
            yield from do(LetTimePass(OFFER_AGAIN_S if offered is Offered.SILENT else 0.0))

    # --- how it ends ------------------------------------------------------------------------------

    def _died(self, life: L, cause: str, status: int = 0) -> Steps[None]:
        death = yield from do(ReadDeath(life, status))
        yield from self._gone(life, f"{cause}: {death}" if death.calls else cause, death)

    def _gone(self, life: L, cause: str, death: Death | None = None) -> Steps[None]:
        life.note_end()
        death = death or Death()
        yield from self._bury(Died(life.member, life.incarnation, cause, death))
        if self.is_wanted(life):
            if death.calls:
                life.born_s = float("-inf")  # it had come to its work: no start that went wrong
            yield from self._respawn(life, cause)

    def _bury(self, died: Died) -> Steps[None]:
        """Report a death to the core; a group that has failed gets it when it is well again."""
        while True:
            try:
                yield from do(ReportDeath(died))
            except DeadlineExceeded:
                continue
            return

    def _respawn(self, life: L, cause: str) -> Steps[None]:
        """Put a new incarnation in the place of a dead one; one that dies at once waits longer."""
        # Who is replaced twice at once ends the other's process, and sees its own ended.
        self._room.call_off(life)
        while not self.stopping and self._room.respawns:
            life.count_death(self._room.now_s())
            life.reason = f"replaces one that died: {cause}"
            if life.state != "failed":
                life.state = "starting"
            yield from do(LetTimePass(self._pause_s(life)))
            if not self.is_wanted(life):
                return
            self._room.kill(life, hard=False)  # it may live after all, and only be out of reach
            reason = life.reason
            if not (yield from self._make(life)):
                return
            life.reason = reason
            yield from self._join_when_up(life)
            if life.state != "failed":
                return
            cause = life.reason
        life.state, life.reason = "failed", cause

    def _pause_s(self, life: L) -> float:
        if life.quick_deaths:
            return pause_after(life.quick_deaths + 1, RESPAWN_PAUSE_S, RESPAWN_PAUSE_MOST_S)
        # The others take over first: a process that starts would take the CPU from them.
        return 0.0 if self._room.keeps_place else RESPAWN_PAUSE_S

    def _let_go(self, life: L, cause: str) -> Steps[None]:
        hard = True
        if self._room.member_is(life.member) == life.incarnation:
            try:
                yield from do(HandOver(life, cause))
                hard = False
            except DidNotEnd:
                pass
        self._room.call_off(life)
        if hard:
            with suppress(DeadlineExceeded):
                # Of a former coordinator's nobody may have come to look for it yet.
                yield from do(FindActor(life))
        self._room.kill(life, hard=hard)


class Party(Generic[L]):
    """Those of one start that are up and wait for the others, until it is closed."""

    def __init__(self) -> None:
        self._arrived: list[L] = []
        self._closed = False

    def joins(self, life: L) -> bool:
        """It is up; whether it joins with the others."""
        if not self._closed:
            self._arrived.append(life)
        return not self._closed

    def close(self) -> list[L]:
        """Wait for nobody any more; who has come."""
        self._closed = True
        return self._arrived
