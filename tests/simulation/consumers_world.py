"""A small world of one group's consumers: who starts, joins, dies, stands still and is replaced.

`ReplicaLives` decides as it ships, in each coordinator that leads, beside the `GroupRuntime` that
ships; here their steps are carried to processes that are slow, refuse, die and freeze. A
coordinator that ends leaves only what was kept. `Consumers.live` judges from outside.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from pxrs_ray.errors import PxrsError
from pxrs_ray.group.events import Dismiss
from pxrs_ray.group.replica_count import CountConsumers, EndSome, StartMore, scale
from pxrs_ray.group.replica_life import ReplicaLife
from pxrs_ray.model import Incarnation, Member, MemberId, PartitionId, Snapshot
from pxrs_ray.steps import Do
from pxrs_ray.testing.faults import FaultyStore
from tests.settings import group_settings
from tests.simulation.played_consumers import BEAT_MS, LEASE_MS, PlayedConfig, PlayedConsumer
from tests.simulation.simulator.coordinator import CoordinatorProcess
from tests.simulation.simulator.scenario import Network, Scenario
from tests.simulation.simulator.store import RecordingStore
from tests.simulation.simulator.world import Process, World
from tests.simulation.step_driver import Tell, Turns, drive
from tests.simulation.supervised import Kept
from tests.simulation.supervising import Supervising

TROUBLE_MS = 90_000
REST_MS = 100_000
TROUBLE_EVERY_MS = 2_500
LOOK_MS = 100
DRIFT = 0.05
# Nobody is killed before its lease was over, and another one; some heartbeats get lost.
# A look more than two leases: one until it is dismissed, one to thaw.
SPARED_MS = int(2 * LEASE_MS * (1 - DRIFT)) - 2 * BEAT_MS - 300
SILENT_MS = int(2 * LEASE_MS * (1 + DRIFT)) + 1_500
# In half a minute somebody that dies at once is started so often at most: pauses double.
STARTS_MAX = 12
STARTS_MS = 30_000

KINDS = [
    "die",
    "die",
    "freeze",
    "freeze",
    "freeze",
    "lost",
    "scale",
    "coordinator",
    "store",
    "deadly",
    "bad",
    "configure",
    "configure",
    "terminate",
]


class LeadingProcess(CoordinatorProcess):
    """A coordinator that supervises the group's consumers while it leads."""

    supervising: Supervising | None = None

    def _led(self, answer: Snapshot | PxrsError) -> None:
        super()._led(answer)
        if self.leads and self.supervising is None:
            assert isinstance(self.cluster, Consumers)
            self.supervising = Supervising(self, self.cluster)


class Consumers(Process):
    """The consumers of one seed, what befalls them, and who judges."""

    role = "cluster"

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"consumers {seed}")
        network = Network(lost=self.dice.choice((0.0, 0.0, 0.05)))
        scenario = Scenario(network=network, partitions=3, lease_ms=LEASE_MS)
        super().__init__(World(seed, scenario), "cluster")
        grace_ms = self.dice.choice((0, 0, 1_500))
        self.settings = group_settings(lease_ms=LEASE_MS, revoke_deadline_ms=800, prepare_ms=0)
        self.grace_ms = grace_ms
        self.store = FaultyStore(RecordingStore(self.world), seed)
        # Every actor by its name; those that have ended stay.
        self.actors: dict[str, PlayedConsumer] = {}
        self.kept = Kept()
        self.config = PlayedConfig()
        # What no node has room for.
        self.no_room: set[int] = set()
        self.broken: list[str] = []
        self.made = self.killed = 0
        # Whether what is made now cannot load its handler, or dies at its first message.
        self.bad_handler = self.deadly = False
        self.calm = False
        self._starts: dict[MemberId, list[int]] = {}
        self._made_last: dict[MemberId, PlayedConsumer] = {}
        self._turns = Turns()
        self.coordinator = LeadingProcess(self, 0)  # type: ignore[arg-type]
        self._coordinators = 1
        self.after(LOOK_MS, self._look)
        self.after(500, partial(self._command, 3))
        self.after(TROUBLE_EVERY_MS, self._trouble)

    # --- what a coordinator needs of its cluster --------------------------------------------------

    def coordinator_ended(self, coordinator: CoordinatorProcess) -> None:
        """Its clients find out by themselves."""

    def fence(self, source: Process, epochs: dict[PartitionId, int]) -> None:
        """There are no logs here."""

    def dismiss(self, source: Process, effect: Dismiss) -> None:
        """The group has removed a member."""
        assert isinstance(source, LeadingProcess)
        if source.supervising is not None:
            source.supervising.lives.dismissed(effect)

    def leading(self) -> Supervising | None:
        """Who supervises now."""
        return self.coordinator.supervising if self.coordinator.alive else None

    def member(self, name: MemberId, incarnation: Incarnation, actor: str) -> Member:
        """A consumer as its group knows it."""
        return Member(name, incarnation, 1.0, self.grace_ms, (actor,))

    def is_made(self, actor: PlayedConsumer) -> None:
        """A process is there."""
        self.actors[actor.name] = actor
        self.made += 1
        starts = self._starts.setdefault(actor.member, [])
        if actor.config.process != self._made_last.get(actor.member, actor).config.process:
            starts.clear()  # it is another process that is wanted
        self._made_last[actor.member] = actor
        starts.append(self.world.now_ms)
        recent = [at_ms for at_ms in starts if at_ms > self.world.now_ms - STARTS_MS]
        if len(recent) > STARTS_MAX:
            self.broken.append(f"{self.world.now_ms}: {actor.member} was started at {recent}")

    def is_killed(self, actor: PlayedConsumer, life: ReplicaLife | None, *, hard: bool) -> None:
        """Its supervisor has it killed; `life` where it is wanted."""
        if not actor.alive:
            return
        self.killed += 1
        now_ms = self.world.now_ms
        if life is None or not hard or actor.config.process != self.config.process:
            return
        if actor.is_unharmed() or (not actor.frozen and life.state == "running"):
            self.broken.append(f"{now_ms}: {actor.name} was well, and was killed")
        elif actor.frozen and actor.was_well and now_ms - actor.still_since_ms < SPARED_MS:
            self.broken.append(
                f"{now_ms}: {actor.name} is killed, still since {actor.still_since_ms}"
            )

    # --- what befalls them ------------------------------------------------------------------------

    def _command(self, consumers: int) -> None:
        """Somebody wants so many consumers."""
        if self.coordinator.alive and self.leading() is None:
            self.after(50, partial(self._command, consumers))
            return
        self._turns.take(partial(self._scale, consumers))

    def _scale(self, consumers: int) -> None:
        supervising = self.leading()
        if supervising is None:
            self._turns.over()
            return
        over = self._over_once()
        drive(supervising.process, scale(consumers), partial(self._do, supervising), over)
        self._over_with(supervising, over)

    def _over_once(self) -> Tell:
        """What ends this turn, and no later one, however often it is told."""
        done = [False]

        def over(_: Any) -> None:
            if not done[0]:
                done[0] = True
                self._turns.over()

        return over

    def _over_with(self, supervising: Supervising, over: Tell) -> None:
        """Nobody ends what its coordinator leaves when it dies."""
        if supervising.process.alive:
            self.after(LOOK_MS, partial(self._over_with, supervising, over))
        else:
            over(None)

    def _configure(self) -> None:
        """Somebody wants another configuration; the registry has it from here on."""
        supervising = self.leading()
        process = self.config.process + (self.calm or self.dice.random() < 0.5)
        if process > self.config.process and not self.calm and self.dice.random() < 0.3:
            self.no_room.add(process)
        self.config = PlayedConfig(self.config.version + 1, process)
        if supervising is None:
            self._turns.over()
            return
        over = self._over_once()
        supervising.reconfigure(self.config, over)
        self._over_with(supervising, over)

    def _do(self, supervising: Supervising, what: Do[Any], tell: Tell) -> None:
        match what:
            case CountConsumers():
                tell(len(supervising.lives.wanted))
            case StartMore(count):
                supervising.add(count, tell)
            case EndSome(count):
                supervising.remove(count, tell)

    def _trouble(self) -> None:
        dice, world = self.dice, self.world
        if world.now_ms > TROUBLE_MS:
            self.calm, self.bad_handler, self.deadly, self.store.down = True, False, False, False
            world.network = Network()
            world.at(100, self._restart_failed)
            if self.config.process in self.no_room:
                self._turns.take(self._configure)
            return
        alive = [actor for actor in self.actors.values() if actor.alive and not actor.frozen]
        kind = dice.choice(KINDS)
        for_ms = dice.choice((300, 2_000, 3_000, 6_000, 12_000))
        if kind == "die" and alive:
            dice.choice(alive).end("killed")
        elif kind == "terminate" and alive:
            dice.choice(alive).terminate()
        elif kind == "freeze" and alive:
            one = dice.choice(alive)
            one.stand_still()
            world.at(for_ms, partial(self._thaw, one, world.now_ms))
        elif kind == "lost" and alive:
            dice.choice(alive).out_of_reach(for_ms)
        elif kind == "scale":
            self._command(dice.randint(0, 5))
        elif kind == "configure":
            self._turns.take(self._configure)
        elif kind == "coordinator":
            self.coordinator.crash()
            world.at(dice.choice((50, 400, 3_000)), self._next_coordinator)
        elif kind == "store":
            self.store.down = True
            world.at(for_ms, partial(setattr, self.store, "down", False))
        elif kind == "deadly":
            self.deadly = True
            world.at(4 * for_ms, partial(setattr, self, "deadly", False))
        elif kind == "bad":
            self.bad_handler = True
            world.at(for_ms, partial(setattr, self, "bad_handler", False))
        self.after(dice.randint(100, 2 * TROUBLE_EVERY_MS), self._trouble)

    def _next_coordinator(self) -> None:
        if not self.coordinator.alive:
            self._starts.clear()  # it knows nothing of quick deaths
            self.coordinator = LeadingProcess(self, self._coordinators)  # type: ignore[arg-type]
            self._coordinators += 1

    def _thaw(self, actor: PlayedConsumer, since_ms: int) -> None:
        if actor.alive and actor.frozen:
            actor.go_on()

    def _restart_failed(self) -> None:
        """An operator starts anew what could not load its handler."""
        supervising = self.leading()
        if supervising is not None:
            for name, life in supervising.lives.wanted.items():
                if life.state == "failed":
                    supervising.restart(name)
        self.after(2_000, self._restart_failed)

    # --- judged -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Nobody that stands still is left standing for long, where it can be killed."""
        now_ms, supervising = self.world.now_ms, self.leading()
        lives = supervising.lives.wanted if supervising is not None else {}
        for life in lives.values():
            actor = self.actors.get(life.actor)
            if actor is None or not (actor.alive and actor.frozen and actor.here):
                continue
            assert supervising is not None
            since_ms = max(actor.still_since_ms, supervising.since_ms, self.store_back_ms())
            if now_ms - since_ms > SILENT_MS and actor.number and life.state != "starting":
                self.broken.append(f"{now_ms}: {actor.name} stands still since {since_ms}")
                actor.end("judged")
        self.after(LOOK_MS, self._look)

    def store_back_ms(self) -> int:
        """Since when the store answers; while it does not, now: no time counts then."""
        if self.store.down:
            self._store_down_ms = self.world.now_ms
        return getattr(self, "_store_down_ms", 0)

    def _rest(self) -> None:
        supervising = self.leading()
        if supervising is None:
            self.broken.append("nobody leads")
            return
        wanted = supervising.lives.wanted
        members = supervising.members()
        for name, life in wanted.items():
            actor = self.actors.get(life.actor)
            if life.state != "running" or actor is None or not actor.alive:
                self.broken.append(f"{name} does not work: {life}")
            elif actor.config != self.config:
                self.broken.append(f"{name} works by {actor.config}, not {self.config}")
            elif members.get(name) != life.incarnation or actor.number != life.incarnation:
                self.broken.append(f"{name} is {life}, {members} and {actor.number}")
        alive = {actor.name for actor in self.actors.values() if actor.alive}
        if left := alive - {life.actor for life in wanted.values()}:
            self.broken.append(f"nobody wants {sorted(left)}")
        if self.kept.members != {n: (life.incarnation, life.actor) for n, life in wanted.items()}:
            self.broken.append(f"kept is {self.kept.members}")

    def live(self) -> list[str]:
        """Let it run; what was promised of it and did not hold."""
        self.world.run_until(TROUBLE_MS + REST_MS)
        self._rest()
        self.world.close()
        return self.broken
