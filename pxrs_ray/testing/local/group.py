"""`LocalGroup`: one consumer group: the real coordinator over a memory store, and its members.

Rules of this file. A decision's records are in the store before its reply or effects leave. What
members hear reaches them at once, but not in the middle of something they do: it is done
`later`, before the next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pxrs_ray.clock import Clock
from pxrs_ray.config import GroupConfig
from pxrs_ray.config.limits import group_settings
from pxrs_ray.consumer.delivery import Context
from pxrs_ray.consumer.handler_shape import HandlerShape
from pxrs_ray.errors import Fenced
from pxrs_ray.group.events import (
    AssignmentChanged,
    Decision,
    Died,
    Dismiss,
    Event,
    FenceReaders,
    Join,
    Leave,
    Response,
    Tick,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Incarnation, Member, MemberId, Message, Offset, PartitionId
from pxrs_ray.processing.suspects import Death
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.testing.local.crashed import ConsumerCrashed
from pxrs_ray.testing.local.failed_messages import FailedMessages
from pxrs_ray.testing.local.logs import LocalQueue
from pxrs_ray.testing.local.member import LocalMember
from pxrs_ray.testing.local.work import PartitionWork


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message as it was given to a handler, and how that went.

    `outcome` is 'done', 'failed', 'timed out' (the call took too long, and so has failed, whatever
    the handler did), 'crashed' (its consumer died in the call), or 'void' (when the call ended the
    partition had another owner). `error` is what the handler raised.
    """

    group: str
    member: MemberId
    partition: PartitionId
    epoch: Epoch
    attempt: int
    message: Message
    outcome: str
    error: BaseException | None = None

    @property
    def offset(self) -> Offset:
        """Where the message is in its partition."""
        return self.message.offset

    @property
    def key(self) -> bytes | None:
        """The message's key."""
        return self.message.key

    @property
    def payload(self) -> bytes:
        """The message's payload."""
        return self.message.payload

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """The message's headers."""
        return self.message.headers


class LocalGroup:
    """See the rules at the head of this file."""

    def __init__(
        self,
        name: str,
        config: GroupConfig,
        queue: LocalQueue,
        dead_letters: LocalQueue | None,
        clock: Clock,
        topology_id: str,
        make: Callable[[], HandlerShape],
        running: list[LocalMember],
    ) -> None:
        self.name, self.config, self.queue = name, config, queue
        self.clock, self.topology_id = clock, topology_id
        self.delivered: list[Delivered] = []
        self.refused: list[tuple[PartitionId, Epoch, Offset]] = []
        self.errors: list[BaseException] = []
        self.members: list[LocalMember] = []
        self.failed = FailedMessages(name, dead_letters, clock)
        self._make = make
        # Whose handlers are in a call now, in this group or another, the innermost last.
        self._running = running
        self._incarnations: dict[MemberId, Incarnation] = {}
        self._names = 0
        self._later: deque[Callable[[], object]] = deque()
        self._turns: dict[PartitionId, int] = {}
        self._turn = 0
        self._store = MemoryStore(now_ms=lambda: clock.now().wall_ms)
        self._store.create()
        snapshot = self._store.lead(name, queue.partitions, "test topology")
        self.core = GroupCoordinator(snapshot, group_settings(config, name), clock.now())
        self._carry_out(self.core.start(clock.now()))

    # --- the coordinator --------------------------------------------------------------------------

    def ask(self, event: Event) -> Response | None:
        """Let the coordinator decide; None: it refused, for the asker is no member any more."""
        try:
            return self._carry_out(self.core.handle(event, self.clock.now()))
        except Fenced:
            return None

    def _carry_out(self, decision: Decision) -> Response | None:
        state = self.core.state
        self._store.write(self.name, state.generation, decision.records)
        for effect in decision.effects:
            match effect:
                case AssignmentChanged():
                    self.later(lambda told=effect: self._tell(told.member))  # type: ignore[misc]
                case Dismiss():
                    self.later(lambda told=effect: self._dismiss(told))  # type: ignore[misc]
                case FenceReaders():
                    self.queue.fence(self.name, effect.epochs)
        return decision.reply

    def later(self, what: Callable[[], object]) -> None:
        """Do it before the next step."""
        self._later.append(what)

    def settle(self) -> None:
        """Do what was left for later."""
        while self._later:
            self._later.popleft()()

    def _tell(self, name: MemberId) -> None:
        for member in self.members:
            if member.session.member == name and name in self.core.state.members:
                member.obey(self.core.assignment(name))

    def _dismiss(self, dismiss: Dismiss) -> None:
        for member in list(self.members):
            session = member.session
            named = (session.member, session.incarnation) == (dismiss.member, dismiss.incarnation)
            if named and not member.cut_off:
                if dismiss.clean:
                    member.close()
                self._remove(member)

    def _remove(self, member: LocalMember) -> None:
        member.end()
        if member in self.members:
            self.members.remove(member)

    # --- members ----------------------------------------------------------------------------------

    def add(self, count: int = 1) -> list[LocalMember]:
        """Have so many consumers more; all of them join as one change."""
        names = [f"{self.name}-{self._names + at}" for at in range(count)]
        self._names += count
        return self._join(names)

    def _join(self, names: Sequence[MemberId]) -> list[LocalMember]:
        made = []
        for name in names:
            incarnation = self._incarnations.get(name, 0) + 1
            self._incarnations[name] = incarnation
            made.append(LocalMember(self, name, incarnation, self._make()))
        self.members += made
        grace_ms = self.config.grace_ms
        joining = tuple(Member(one.name, one.session.incarnation, 1.0, grace_ms) for one in made)
        if joining:
            self.ask(Join(joining))
        for one in made:
            one.answered(self.config.lease_ms)
        self.settle()
        return made

    def leave(self, member: LocalMember) -> None:
        """Let a consumer hand everything back and end."""
        self.ask(Leave(member.name, member.session.incarnation))
        self.settle()

    def crash(self, member: LocalMember, cause: str, signal: int = 9) -> None:
        """The consumer's process dies now; another one comes in its place, as its config says."""
        death = Death(tuple(member.calls), signal)
        self._remove(member)
        self.ask(Died(member.name, member.session.incarnation, cause, death))
        if self.config.respawn:
            self.later(lambda: self._join([member.name]))

    def cut_off(self, members: Sequence[LocalMember], *, noticed: bool) -> None:
        """These consumers hear and say nothing any more; others come in their places.

        Who has `noticed` nothing holds a lease that still runs by its own clock.
        """
        for member in members:
            member.cut_off = True
            if not noticed:
                self.ask(Died(member.name, member.session.incarnation, "taken for dead"))
        self.add(len(members))

    def thaw(self, member: LocalMember) -> None:
        """A consumer that was cut off tries to commit what it did, and learns that it is none."""
        member.cut_off = False
        rows = member.session.to_commit()
        if rows and not member.ended:
            member.send_commit(rows)
        self._remove(member)

    def busy(self) -> list[LocalMember]:
        """Consumers that are in the middle of a call, and were not taken over from yet."""
        return [member for member in self.members if member.calls and not member.cut_off]

    def called(
        self,
        member: LocalMember,
        context: Context,
        messages: Sequence[Message],
        call: Callable[[], None],
        due_ms: int | None,
    ) -> BaseException | None:
        """Make a call, and note each of its messages. Raises ConsumerCrashed."""
        error: BaseException | None = None
        outcome = "done"
        self._running.append(member)
        try:
            call()
        except ConsumerCrashed:
            if not member.ended:
                raise
            outcome = "crashed"
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # noqa: BLE001 - also what `sys.exit()` raises
            error, outcome = raised, "failed"
        finally:
            self._running.pop()
        if member.ended:
            outcome = "crashed"
        elif not context.holds():
            outcome = "void"
        elif due_ms is not None and self.clock.now().monotonic_ms >= due_ms:
            outcome = "timed out"
        elif error is not None:
            self.errors.append(error)
        self.delivered += [
            Delivered(
                self.name,
                member.name,
                context.partition,
                context.epoch,
                context.attempt,
                message,
                outcome,
                error,
            )
            for message in messages
        ]
        if member.ended:
            raise ConsumerCrashed
        return error

    # --- work -------------------------------------------------------------------------------------

    def turn(self, work: PartitionWork) -> tuple[int, PartitionId]:
        """Whose turn it is: who has had none for longest."""
        return (self._turns.get(work.partition, 0), work.partition)

    def had_a_turn(self, work: PartitionWork) -> None:
        """Others come first now."""
        self._turn += 1
        self._turns[work.partition] = self._turn

    def step(self) -> bool:
        """Do the next thing; False when nothing can be done without time passing."""
        self.settle()
        for member in list(self.members):
            try:
                if member.step():
                    self.settle()
                    return True
            except ConsumerCrashed:
                self.settle()
                return True
        return False

    def next_ms(self) -> int | None:
        """The next moment at which something is due."""
        now_ms = self.clock.now().monotonic_ms
        moments = [self.core.next_wake_ms(), now_ms + self.config.lease_ms // 3]
        for member in self.members:
            moments += [member.commit_due_ms(), *(w.due_ms() for w in member.works.values())]
        return min((m for m in moments if m is not None and m > now_ms), default=None)

    def time_has_passed(self) -> None:
        """Heartbeats, interval commits, leases and deadlines."""
        now_ms = self.clock.now().monotonic_ms
        for member in list(self.members):
            member.heartbeat()
            due_ms = member.commit_due_ms()
            if due_ms is not None and due_ms <= now_ms:
                try:
                    member.commit()
                except ConsumerCrashed:
                    pass
            member.release()
        self.ask(Tick())
        self.settle()

    def close(self) -> None:
        """End every consumer."""
        for member in list(self.members):
            member.close()
