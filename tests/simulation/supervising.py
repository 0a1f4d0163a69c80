"""Carries `ReplicaLives` in a simulated coordinator: to processes, the group and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.errors import PxrsError
from pxrs_ray.group.events import Event, Join, Leave, Response
from pxrs_ray.group.incarnations import next_above
from pxrs_ray.group.replica_count import Unkept, new_names, who_goes_first
from pxrs_ray.group.replica_life import (
    AwaitEnd,
    AwaitStarts,
    AwaitUp,
    Came,
    DidNotEnd,
    Each,
    EndProcess,
    FindActor,
    HandOver,
    LetBegin,
    LetJoin,
    LetTimePass,
    MakeActor,
    ReadDeath,
    ReportDeath,
)
from pxrs_ray.group.replica_lives import ReplicaLives
from pxrs_ray.group.taking_over import CAUSE, HasNewest, OfferConfig, Offered, taken_over
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.processing.suspects import Death
from pxrs_ray.steps import Do, Steps
from tests.simulation.played_consumers import LEASE_MS, PlayedConfig, PlayedConsumer
from tests.simulation.simulator.world import send
from tests.simulation.step_driver import Tell, drive
from tests.simulation.supervised import TAKE_WAIT_MS, Job, Kept, Life, its

if TYPE_CHECKING:
    from tests.simulation.consumers_world import Consumers, LeadingProcess

LOOK_MS = 20
BEGIN_WAIT_MS = 5_000
HAND_OVER_MS = 3_000
FINISH_WAIT_MS = 3_000


class Supervising:
    """The consumers, as one coordinator has them."""

    def __init__(self, process: LeadingProcess, cluster: Consumers) -> None:
        self.process, self.cluster, self.world = process, cluster, cluster.world
        self.since_ms = self.world.now_ms
        # Of the registry: what is durable is what a coordinator goes by.
        self.config = cluster.config
        self.lives: ReplicaLives[Life] = ReplicaLives(self)
        self._numbers = dict(cluster.kept.numbers)
        self._unkept = Unkept()
        self._saves = False
        self._now: Job | None = None
        kept = dict(cluster.kept.members)
        noted = {actor for _, actor in kept.values()}
        there = [a for a in cluster.actors.values() if a.alive]
        process.after(self._dice_ms(), partial(self._end_orphans, there, noted))
        for member, (number, actor) in kept.items():
            newest = max(number, self._core().newest_incarnation(member))
            self._run(None, self.lives.reattach(Life(member, newest, actor)))

    # --- what is asked for ------------------------------------------------------------------------

    def add(self, count: int, tell: Tell) -> None:
        """Start so many more."""
        taken = self.lives.wanted.keys() | self._core().state.members.keys()
        lives = [Life(name) for name in new_names("g", count, taken)]
        self._run(None, self.lives.add(lives), tell)

    def remove(self, count: int, tell: Tell) -> None:
        """Let so many go."""
        nodes = dict.fromkeys(self.lives.wanted, "here")
        owned = {name: len(parts) for name, parts in self._core().state.owned.items()}
        names = who_goes_first(nodes, owned, "", count)
        self._run(None, self.lives.remove(names, "scaled in"), tell)

    def restart(self, member: MemberId) -> None:
        """An operator has this one started anew."""
        self._run(None, self.lives.restart(member))

    def reconfigure(self, config: PlayedConfig, tell: Tell) -> None:
        """Have everybody work by another configuration."""
        self.config = config
        asked, refused = list(self.lives.wanted.values()), list[Life]()

        def one_over(life: Life, told: Tell, taken: Any) -> None:
            if isinstance(taken, bool) and not taken:
                refused.append(life)
            told(taken)

        def offer(life: Life, told: Tell) -> None:
            self._run(None, taken_over(life), partial(one_over, life, told))

        def replace(_: Any) -> None:
            if not refused:
                tell(None)
                return
            member = refused.pop().member
            added = partial(self._add_one, member, replace)
            self._run(None, self.lives.remove([member], CAUSE), added)

        self._together([partial(offer, life) for life in asked], replace)

    def _add_one(self, member: MemberId, tell: Tell, _: Any) -> None:
        self._run(None, self.lives.add([Life(member)]), tell)

    def members(self) -> dict[MemberId, Incarnation]:
        """The members of the group."""
        slots = self._core().state.members
        return {name: slot.member.incarnation for name, slot in slots.items()}

    def _core(self) -> Any:
        return self.process.runtime.core

    def _dice_ms(self) -> int:
        return self.cluster.dice.choice((2, 20, 150))

    def _end_orphans(self, there: Sequence[PlayedConsumer], noted: set[str]) -> None:
        """Those that were there, and that nobody has noted."""
        lives = (*self.lives.wanted.values(), *self.lives.leaving)
        known = noted | {life.actor for life in lives}
        for actor in there:
            if actor.name not in known:
                actor.kill(hard=False)

    # --- what the lives need of where they are ----------------------------------------------------

    respawns = True
    needs = "it"

    @property
    def keeps_place(self) -> bool:
        """Whether partitions wait for who died."""
        return self.cluster.grace_ms > 0

    @property
    def lease_s(self) -> float:
        """For how long a member may be silent."""
        return LEASE_MS / 1_000

    def now_s(self) -> float:
        """The time by this process's clock."""
        return self.process.monotonic_ms() / 1_000

    def beside(self, life: Life, steps: Steps[None]) -> None:
        """As a task of its own, which begins when this one waits."""
        job = Job(life)
        life.jobs.append(job)
        self.process.after(0, partial(self._begin, job, steps))

    def call_off(self, life: Life) -> None:
        """Whatever else is done beside for it."""
        for job in life.jobs:
            if job is not self._now:
                job.off = job.over = True

    def kill(self, life: Life, *, hard: bool) -> None:
        """End its actor, after a while."""
        actor = life.process
        if actor is not None:
            self.cluster.is_killed(actor, life if self.lives.is_wanted(life) else None, hard=hard)
            if hard and actor.here:
                actor.kill(hard=True)
            self.process.after(self._dice_ms(), partial(actor.kill, hard=False))

    def changed(self) -> None:
        """Keep it, as soon as the registry takes it."""
        self._unkept.changed()
        if not self._saves:
            self._saves = True
            self.process.after(1, self._save)

    def number(self, member: MemberId) -> Incarnation:
        """A number that nobody had."""
        return next_above(self._numbers, member, self._core().newest_incarnation(member))

    def member_is(self, member: MemberId) -> Incarnation | None:
        """As which incarnation it is a member now."""
        return self.members().get(member)

    def _save(self) -> None:
        if not self._unkept.is_stale:
            self._saves = False
            return
        wanted = self.lives.wanted.items()
        kept = Kept(dict(self._numbers), {n: (life.incarnation, life.actor) for n, life in wanted})
        self._unkept.saving()
        self.process.after(self._dice_ms(), partial(self._saved, kept))

    def _saved(self, kept: Kept) -> None:
        if self.cluster.store.down:
            self._unkept.failed()
        else:
            self.cluster.kept = kept
        self.process.after(1, self._save)

    # --- carrying ---------------------------------------------------------------------------------

    def _run(self, job: Job | None, steps: Steps[None], over: Tell = lambda _: None) -> None:
        job = job or Job(None)
        drive(self.process, steps, partial(self._make, job), over)

    def _begin(self, job: Job, steps: Steps[None]) -> None:
        if not job.off:
            self._as(job, partial(self._run, job, steps, partial(self._over, job)))

    def _as(self, job: Job, do: Callable[[], None]) -> None:
        before, self._now = self._now, job
        try:
            do()
        finally:
            self._now = before

    def _over(self, job: Job, came: Any) -> None:
        assert job.life is not None
        if isinstance(came, BaseException):
            if not isinstance(came, PxrsError | RuntimeError):
                raise came
            self._run(job, self.lives.faulted(job.life, came), partial(self._over, job))
            return
        job.over = True
        job.life.jobs.remove(job)

    def _make(self, job: Job, what: Do[Any], tell: Tell) -> None:
        def told(answer: Any) -> None:
            if not job.off and self.process.alive:
                self._as(job, partial(tell, answer))

        self._do(job, what, told)

    def _do(self, job: Job, what: Do[Any], tell: Tell) -> None:
        after = self.process.after
        match what:
            case MakeActor(Life() as life):
                self._make_actor(job, life, tell)
            case AwaitUp(Life() as life, wait_s):
                assert life.process is not None
                if wait_s is not None:
                    after(int(wait_s * 1_000), partial(tell, Came()))
                life.process.when_up(tell)
            case AwaitStarts(lives, wait_s):
                jobs = [job for life in lives for job in its(life).jobs]
                end_ms = self.world.now_ms + int(wait_s * 1_000)
                self._until(lambda: all(job.over for job in jobs), end_ms, tell)
            case LetJoin(lives):
                members = (self.cluster.member(x.member, x.incarnation, x.actor) for x in lives)
                self._submit(Join(tuple(members)), tell)
            case LetBegin(lives):
                self._together([partial(self._let_begin, its(life)) for life in lives], tell)
            case AwaitEnd(Life() as life):
                assert life.process is not None
                life.process.when_ended(tell)
            case ReadDeath():
                fails = not self.cluster.calm and self.cluster.dice.random() < 0.1
                after(self._dice_ms(), partial(tell, RuntimeError("no file") if fails else Death()))
            case ReportDeath(died):
                self._submit(died, tell)
            case LetTimePass(pause_s):
                after(max(1, int(pause_s * 1_000)), partial(tell, None))
            case HandOver(Life() as life, cause):
                self._hand_over(life, cause, tell)
            case Each(every):
                self._together([partial(self._run, None, steps) for steps in every], tell)
            case EndProcess(Life() as life):
                if life.process is not None:
                    life.process.end("restarted")
                tell(None)
            case HasNewest(Life() as life):
                tell(life.config == self.config)
            case OfferConfig(Life() as life):
                self._offer(life, tell)
            case FindActor(Life() as life):
                after(self._dice_ms(), partial(self._find, life, tell))
            case _:
                raise AssertionError(what)

    def _together(self, every: Sequence[Callable[[Tell], None]], tell: Tell) -> None:
        left = len(every)

        def one_over(came: Any) -> None:
            nonlocal left
            left -= 1
            if isinstance(came, BaseException) or not left:
                tell(came)

        for begin in every:
            begin(one_over)
        if not every:
            tell(None)

    def _until(self, holds: Callable[[], bool], end_ms: int, tell: Tell) -> None:
        if holds() or self.world.now_ms >= end_ms:
            tell(holds())
        else:
            self.process.after(LOOK_MS, partial(self._until, holds, end_ms, tell))

    def _submit(self, event: Event, tell: Tell) -> None:
        def respond(answer: Response | PxrsError) -> None:
            self.process.after(0, partial(tell, answer))

        self.process.receive(event, respond)

    def _make_actor(self, job: Job, life: Life, tell: Tell) -> None:
        number = self.number(life.member)
        name = f"{life.member}#{number}"
        life.is_new(number, name, self.now_s())
        life.config = self.config
        if not self.cluster.calm and self.cluster.dice.random() < 0.05:
            self.process.after(self._dice_ms(), partial(tell, RuntimeError("none can be made")))
        else:
            # What is asked of Ray is done, whoever waits for it.
            made = partial(self._made, job, life, name, self.config, tell)
            self.world.at(self._dice_ms(), made)

    def _made(self, job: Job, life: Life, name: str, config: PlayedConfig, tell: Tell) -> None:
        actor = PlayedConsumer(self.cluster, life.member, name, config)
        self.cluster.is_made(actor)
        if not job.off:
            life.process = actor
        else:  # nobody waits for it any more
            actor.kill(hard=False)
        tell(None)

    def _let_begin(self, life: Life, tell: Tell) -> None:
        actor, number = life.process, life.incarnation
        assert actor is not None
        done = False

        def begun(_: bool) -> None:
            nonlocal done
            if not done:
                done = True
                self.beside(life, self.lives.watched(life))
                tell(None)

        def back(answer: bool) -> None:
            assert actor is not None
            send(actor, self.process, partial(begun, answer))

        send(self.process, actor, partial(actor.begin, number, back))
        self.process.after(BEGIN_WAIT_MS, partial(begun, False))

    def _offer(self, life: Life, tell: Tell) -> None:
        actor, config = life.process, self.config
        assert actor is not None
        done = False

        def heard(offered: Offered) -> None:
            nonlocal done
            if not done:
                done = True
                if offered is Offered.TAKEN:
                    life.config = config
                tell(offered)

        def back(taken: bool) -> None:
            assert actor is not None
            send(actor, self.process, partial(heard, Offered.TAKEN if taken else Offered.REFUSED))

        if not actor.alive:
            self.process.after(self._dice_ms(), partial(heard, Offered.GONE))
        send(self.process, actor, partial(actor.reconfigure, config, back))
        self.process.after(TAKE_WAIT_MS, partial(heard, Offered.SILENT))

    def _hand_over(self, life: Life, cause: str, tell: Tell) -> None:
        number, actor = life.incarnation, life.process

        def left(came: Any) -> None:
            if isinstance(came, BaseException):
                tell(DidNotEnd())
                return
            end_ms = self.world.now_ms + HAND_OVER_MS
            self._until(lambda: self.member_is(life.member) != number, end_ms, gone)

        def gone(has_left: bool) -> None:
            if not has_left or actor is None:
                tell(DidNotEnd())
                return
            send(self.process, actor, partial(actor.finish, lambda _: None))
            end_ms = self.world.now_ms + FINISH_WAIT_MS
            self._until(lambda: not actor.alive, end_ms, ended)

        def ended(has_ended: bool) -> None:
            tell(None if has_ended else DidNotEnd())

        self._submit(Leave(life.member, number, cause), left)

    def _find(self, life: Life, tell: Tell) -> None:
        found = self.cluster.actors.get(life.actor)
        if found is not None and found.alive:
            life.process = found
        tell(life.process is not None)
