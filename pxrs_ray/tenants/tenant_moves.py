"""`TenantMoves`: where the messages of each tenant of a queue go, and how tenants are moved. Pure.

Rules of this file. `TenantMove` decides one move; this keeps all of them, and the producers'
leases. What must not be forgotten is kept before anybody hears of it. Producers renew a lease and
say which route they follow, whatever else is under way. After a restart no producer counts as gone
until a whole lease has passed. Silence proves nothing: a producer that was silent for longer than
its lease is fenced in the logs before anybody goes on without it, and hears so when it asks again.
Time in which the keeper itself was frozen does not count as anybody's silence. Operations (promote,
demote, look) come one at a time; producers are answered beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.steps import Do, Steps, do
from pxrs_ray.tenants.followed_routes import Routes
from pxrs_ray.tenants.migration import Phase, TenantMove
from pxrs_ray.tenants.producer_leases import Leases
from pxrs_ray.tenants.profile import TenantProfile, isolated_queue
from pxrs_ray.tenants.tenant_document import PRODUCERS, TENANTS, KeptMove

LEASE_S = 3.0
# After its lease a producer's last calls may still be on their way for so long.
GRACE_S = 2.0
# Of a longer pause between two looks at the clock no more than this counts against a producer.
STEP_MOST_S = LEASE_S / 6


@dataclass(frozen=True, slots=True)
class KeepMoves(Do[None]):
    """Keep this text of the topology; it is known to be kept when this is over."""

    text: str


@dataclass(frozen=True, slots=True)
class KeepProducers(Do[None]):
    """Keep `TenantMoves.producers_text` as it is when its turn has come; one after another."""


@dataclass(frozen=True, slots=True)
class FenceProducer(Do[None]):
    """Let nothing more of this producer into the logs of these queues, as far as they exist."""

    producer: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeQueue(Do[None]):
    """Make a tenant's own queue and group, unless they are there."""

    tenant: str
    profile: TenantProfile


@dataclass(frozen=True, slots=True)
class TenantProgress:
    """How far the work is: the shared logs' ends and checkpoints, then what is unread of a
    tenant's own queue, read in this order."""

    shared_ends: Mapping[PartitionId, Offset]
    shared_passed: Mapping[PartitionId, Offset]
    own_unread: int


@dataclass(frozen=True, slots=True)
class ReadProgress(Do["TenantProgress | None"]):
    """Read how far the work is; None where a log does not tell now."""

    tenant: str


@dataclass(frozen=True, slots=True)
class IsServed(Do[bool]):
    """Whether a consumer of a tenant's own runs."""

    tenant: str


@dataclass(frozen=True, slots=True)
class StartConsumers(Do[None]):
    """Have a tenant's own consumers started; as the shared ones are, unless `as_profile` says."""

    tenant: str
    profile: TenantProfile
    as_profile: bool


@dataclass(frozen=True, slots=True)
class StopConsumers(Do[None]):
    """End a tenant's own consumers: nothing comes to its queue any more."""

    tenant: str


class TenantMoves:
    """The moves of a queue's tenants. See the rules at the head of this file."""

    def __init__(self, queue: str, served_after_s: float, clock_s: Callable[[], float]) -> None:
        self.moves: dict[str, TenantMove] = {}
        self.profiles: dict[str, TenantProfile] = {}
        self.alarms: dict[str, str] = {}
        self.leases = Leases(LEASE_S + GRACE_S, STEP_MOST_S, clock_s())
        self.joining: list[str] = []
        self._queue = queue
        self._served_after_s = served_after_s
        self._clock_s = clock_s
        self._opened_s: dict[str, float] = {}
        self._to_stop: set[str] = set()
        # By the leases' own time: until then a producer may live that was not heard yet.
        self._sure_s = 0.0

    def begin(self, moves_text: str, producers_text: str) -> None:
        """Go on from what a former keeper kept; '' is nothing.

        Producers that it knew are heard first, or fenced.
        """
        for tenant, kept in TENANTS.decode_text(moves_text or "{}").items():
            self.moves[tenant] = TenantMove(kept.phase, kept.version, barrier=dict(kept.barrier))
            self.profiles[tenant] = kept.profile
            if kept.phase is Phase.SHARED:  # it may have died before it ended them
                self._to_stop.add(tenant)
        names = PRODUCERS.decode_text(producers_text or "[]")
        until_s = self.leases.renew_all(names, self._clock_s())
        if self.moves:
            self._sure_s = until_s

    def producers_text(self) -> str:
        """Who may have messages under way."""
        return PRODUCERS.encode_text(sorted({*self.leases.names(), *self.joining}))

    def waiting_for(self, tenant: str) -> tuple[str, ...]:
        """The producers that do not follow a tenant's present route yet."""
        move = self.moves[tenant]
        return tuple(sorted(p for p, v in move.switched.items() if v != move.version))

    def tick(self) -> None:
        """Look at the clock, often: time that nobody saw counts against nobody."""
        self.leases.look(self._clock_s())

    # --- producers --------------------------------------------------------------------------------

    def sync(
        self, producer: str, follows: Mapping[str, int], is_new: bool
    ) -> Steps[tuple[float, Routes] | None]:
        """Renew a producer's lease; answers it, and every tenant's route and version.

        `follows` are the versions that it follows by now, with all it sent before in the logs; of
        a tenant that is not named it is 0, the shared queue. A new one has sent nothing yet.
        None says that the producer is fenced, or has left: it is to begin anew.
        """
        joins = producer not in self.leases
        if joins and not is_new:
            return None
        if joins:
            # Who may have messages under way is kept before it may send any. Its lease begins when
            # it may send, however long keeping it takes.
            self.joining.append(producer)
            try:
                yield from do(KeepProducers())
            finally:
                self.joining.remove(producer)
        self.leases.renew(producer, self._clock_s())
        for tenant, move in self.moves.items():
            if joins:
                move.joined(producer)
            else:
                move.switched[producer] = follows.get(tenant, 0)
        return LEASE_S, {t: (move.route, move.version) for t, move in self.moves.items()}

    def leave(self, producer: str) -> Steps[None]:
        """A producer has closed; all it sent is in the logs."""
        self._forget(producer)
        yield from do(KeepProducers())

    def _forget(self, producer: str) -> None:
        self.leases.end(producer)
        for move in self.moves.values():
            move.gone(producer)

    # --- operations -------------------------------------------------------------------------------

    def promote(self, tenant: str, profile: TenantProfile) -> Steps[None]:
        """Begin to give a tenant a queue and consumers of its own. Raises IllegalTransition while
        it is on its way back; then nothing has changed."""
        _copy(self.moves.get(tenant, TenantMove())).promote()
        yield from do(MakeQueue(tenant, profile))
        # Whoever read its own queue before must not read it now, ahead of the shared one.
        yield from self._stop(tenant)
        yield from self._change(tenant, TenantMove.promote, profile)

    def demote(self, tenant: str) -> Steps[None]:
        """Begin to let a tenant share again; what never left is where it should be."""
        if tenant in self.moves:
            yield from self._change(tenant, TenantMove.demote, self.profiles[tenant])

    def look(self) -> Steps[None]:
        """Go on wherever that is possible; to be called again and again."""
        sure = self.leases.look(self._clock_s()) >= self._sure_s
        for producer in self.leases.over(self._clock_s()):
            queues = (self._queue, *(isolated_queue(self._queue, t) for t in self.moves))
            yield from do(FenceProducer(producer, queues))
            # Also when it came back meanwhile: it is fenced now, and told when it asks again.
            self._forget(producer)
            yield from do(KeepProducers())
        if not sure:
            return
        troubles = []
        for tenant in list(self.moves):
            try:
                yield from self._go_on(tenant)
            except Exception as error:  # noqa: BLE001 - the others go on, then it is raised
                troubles.append(error)
        if troubles:
            raise troubles[0]

    def _go_on(self, tenant: str) -> Steps[None]:
        move = self.moves[tenant]
        yield from self._stop(tenant)
        # Also on its way back: until nothing is unread there, somebody has to read it.
        if move.isolated_is_read:
            yield from self._serve(tenant)
        if not move.settled:
            yield from self._advance(tenant, move)

    def _stop(self, tenant: str) -> Steps[None]:
        """End the consumers of a tenant that shares the queue again, unless that is known."""
        if tenant in self._to_stop:
            yield from do(StopConsumers(tenant))
            self._to_stop.discard(tenant)

    def _advance(self, tenant: str, move: TenantMove) -> Steps[None]:
        # What is read below must be read after the last producer has switched.
        if move.phase in (Phase.LEAVING, Phase.HOLDING) and not move.all_switched:
            return
        seen = yield from do(ReadProgress(tenant))
        if seen is None:
            return
        changed = yield from self._change(
            tenant,
            lambda fresh: fresh.look(seen.shared_ends, seen.shared_passed, seen.own_unread),
            self.profiles[tenant],
        )
        if changed and self.moves[tenant].phase is Phase.SHARED:
            self._opened_s.pop(tenant, None)
            self._to_stop.add(tenant)
            yield from self._stop(tenant)

    def _change(
        self, tenant: str, step: Callable[[TenantMove], object], profile: TenantProfile
    ) -> Steps[bool]:
        """Take a step, and keep it before any producer hears of it; False when it was none."""
        fresh = _copy(self.moves.get(tenant, TenantMove()))
        before = (fresh.phase, fresh.version)
        step(fresh)
        if (fresh.phase, fresh.version) == before and profile == self.profiles.get(tenant):
            return False
        profiles = {**self.profiles, tenant: profile}
        kept = {
            name: KeptMove(move.phase, move.version, move.barrier, profiles[name])
            for name, move in {**self.moves, tenant: fresh}.items()
        }
        yield from do(KeepMoves(TENANTS.encode_text(kept)))
        # Who follows which version may have changed meanwhile. Of a tenant that was never moved
        # every producer there is follows 0: it sends to the shared queue, and must hear of this.
        known = self.moves.get(tenant)
        switched = dict.fromkeys(self.leases.names(), 0) if known is None else known.switched
        fresh.switched = dict(switched)
        self.moves[tenant], self.profiles[tenant] = fresh, profile
        return True

    def _serve(self, tenant: str) -> Steps[None]:
        """See that somebody reads an isolated queue: its own consumers, or as many shared ones."""
        now_s, opened_s = self._clock_s(), self._opened_s.get(tenant)
        if opened_s is not None and now_s - opened_s < self._served_after_s:
            return
        self._opened_s[tenant] = now_s
        if opened_s is None:
            yield from do(StartConsumers(tenant, self.profiles[tenant], as_profile=True))
            return
        if (yield from do(IsServed(tenant))):
            return
        self.alarms[tenant] = (
            f"isolated tenant {tenant!r}: no consumer of its profile "
            f"{self.profiles[tenant].name!r} runs; it is served as the shared ones are"
        )
        yield from do(StartConsumers(tenant, self.profiles[tenant], as_profile=False))


def _copy(move: TenantMove) -> TenantMove:
    """A copy that nothing changes."""
    return replace(move, switched=dict(move.switched), barrier=dict(move.barrier))
