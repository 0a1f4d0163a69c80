"""A consumer's process as its supervisor and its group see it; its work is another world's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.consumer.consumer_life import ConsumerLife
from pxrs_ray.errors import Fenced, PxrsError
from pxrs_ray.group.events import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Release,
    Response,
)
from pxrs_ray.group.replica_life import Came, ItsEnd
from pxrs_ray.model import Incarnation, MemberId
from tests.simulation.simulator.world import Process, send

if TYPE_CHECKING:
    from tests.simulation.consumers_world import Consumers, LeadingProcess

LEASE_MS = 2_000
BEAT_MS = LEASE_MS // 4
HANDED_OVER_MS = 1_000
# Whoever stood still so lately may be missed yet.
HARMED_MS = 4 * LEASE_MS


@dataclass(frozen=True, slots=True)
class PlayedConfig:
    """A configuration: which one, and which of what only a new process can have."""

    version: int = 0
    process: int = 0


class PlayedConsumer(Process):
    """It comes up, or not; begins when it is let, beats, gives back, joins anew, and ends."""

    role = "consumer"

    def __init__(
        self, cluster: Consumers, member: MemberId, name: str, config: PlayedConfig
    ) -> None:
        super().__init__(cluster.world, name)
        self.cluster, self.member = cluster, member
        # What it works by.
        self.config = config
        dice = cluster.dice
        # Under which it works; 0 before it was let begin.
        self.number: Incarnation = 0
        self.here = dice.random() < 0.5
        self.is_up = self._killed = False
        self.still_since_ms = 0
        self.was_well = False
        self.refused = cluster.bad_handler
        self._harmed_ms = self.world.now_ms
        self._seen = (0, 0)
        self._life = ConsumerLife()
        self._end: ItsEnd | None = None
        self._came = Came()
        self._tell_up: list[Callable[[Came], None]] = []
        self._tell_end: list[Callable[[ItsEnd], None]] = []
        self.after(dice.choice((80, 300, 900, 900, 7_000, 14_000)), self._start)

    # --- its start and end ------------------------------------------------------------------------

    def _start(self) -> None:
        if self.config.process in self.cluster.no_room:
            return  # it waits for a place that nobody makes
        if self.refused:
            self._came = Came(died="no such handler", refused=True)
            self.end("refused", by_itself=True)
        elif not self.cluster.calm and self.cluster.dice.random() < 0.05:
            self.end("killed as it started")
        else:
            self.is_up = True
            self._is_up(Came(is_up=True))

    def _is_up(self, came: Came) -> None:
        self._came = came
        for tell in self._tell_up:
            tell(came)
        self._tell_up.clear()

    def when_up(self, tell: Callable[[Came], None]) -> None:
        """Told when it is up, or never will be."""
        if self._came != Came():
            tell(self._came)
        else:
            self._tell_up.append(tell)

    def when_ended(self, tell: Callable[[ItsEnd], None]) -> None:
        """Told when it has ended."""
        if self._end is not None:
            tell(self._end)
        else:
            self._tell_end.append(tell)

    def end(self, cause: str, *, by_itself: bool = False) -> None:
        """Its process ends; whoever watches hears of it after a while."""
        if not self.alive:
            return
        self.crash()
        self.frozen = False
        self._end = end = ItsEnd(cause, died=not by_itself)
        if not self.is_up and self._came == Came():
            self._came = Came(died=cause)
        self.world.at(self.cluster.dice.choice((1, 30, 300)), partial(self._told, end))

    def _told(self, end: ItsEnd) -> None:
        if not self.is_up:
            self._is_up(self._came)
        for tell in self._tell_end:
            tell(end)
        self._tell_end.clear()

    def out_of_reach(self, for_ms: int) -> None:
        """Its node cannot be reached: Ray takes it for dead, and it lives."""
        if self.here or not self.is_up:
            return
        self.cut_from.add("coordinator")
        self.world.at(50, partial(self._told, ItsEnd("its node is away", died=True)))
        self.world.at(for_ms, self._back_in_reach)

    def _back_in_reach(self) -> None:
        self._harmed_ms = self.world.now_ms
        self.cut_from.clear()
        if self._killed:  # its node hears that Ray took it for dead
            self.end("killed")

    def kill(self, *, hard: bool) -> None:
        """As Ray kills, which waits for it to go on; a hard one is the kernel's, on its node."""
        if self.cut_from:
            self._killed = True
            return
        if hard and self.here:
            self.end("killed hard")
        else:
            self.run(partial(self.end, "killed"))

    def stand_still(self) -> None:
        """Freeze."""
        self.was_well = self.is_unharmed()
        self.still_since_ms = self.world.now_ms
        self.freeze()

    def go_on(self) -> None:
        """Thaw."""
        self._harmed_ms = self.world.now_ms
        self.thaw()

    def is_unharmed(self) -> bool:
        """Whether it has worked well for some time, and nobody has a reason to end it."""
        lately = self.world.now_ms - HARMED_MS
        works = self.alive and not self.frozen and not self.cut_from and self.number > 0
        return works and self._harmed_ms < lately

    # --- its work ---------------------------------------------------------------------------------

    def begin(self, number: Incarnation, respond: Callable[[bool], None]) -> None:
        """Work as this incarnation; begun twice is begun."""
        if self._life.begins():
            self.number = number
            self._harmed_ms = self.world.now_ms
            if self.cluster.deadly:
                self.after(self.cluster.dice.choice((20, 400)), partial(self.end, "its message"))
            self.every(BEAT_MS, self._beat)
        respond(True)

    def reconfigure(self, config: PlayedConfig, respond: Callable[[bool], None]) -> None:
        """Take another configuration over; False when only a new process can have it."""
        taken = config.process == self.config.process
        if taken:
            self.config = config
        respond(taken)

    def finish(self, respond: Callable[[bool], None]) -> None:
        """Everything has been handed back."""
        self._life.over()
        respond(True)
        self.end("finished", by_itself=True)

    def terminate(self) -> None:
        """Something on its node wants its process to end: it hands over, and ends."""
        if not self._life.told_to_end():
            return
        self._harmed_ms = self.world.now_ms
        coordinator = self.cluster.coordinator
        leave = Leave(self.member, self.number, "its process was told to end")
        send(self, coordinator, lambda: coordinator.receive(leave, lambda _: None))
        self.after(HANDED_OVER_MS, self._hand_over_ends)

    def _hand_over_ends(self) -> None:
        self._life.over()
        self.end("told to end", by_itself=True)

    def _beat(self) -> None:
        coordinator = self.cluster.coordinator
        beat = Heartbeat(self.member, self.number, self._seen)
        respond = partial(self._back, coordinator, partial(self._beaten, self.number))
        send(self, coordinator, lambda: coordinator.heartbeat(beat, BEAT_MS // 2, respond))

    def _back(
        self,
        coordinator: LeadingProcess,
        heard: Callable[[Response | PxrsError], None],
        answer: Response | PxrsError,
    ) -> None:
        send(coordinator, self, partial(heard, answer))

    def _beaten(self, number: Incarnation, answer: Response | PxrsError) -> None:
        if number != self.number:
            return
        if isinstance(answer, Fenced):
            coordinator = self.cluster.coordinator
            send(self, coordinator, partial(self._rejoin, coordinator, number))
        elif isinstance(answer, Response) and answer.assignment is not None:
            self._take(answer.assignment)

    def _take(self, found: Assignment) -> None:
        self._seen = (found.generation, found.sequence)
        back = tuple(
            PartitionProgress(grant.partition, grant.epoch, grant.progress)
            for grant in found.grants
            if found.leaving or grant.partition in found.revoking
        )
        coordinator = self.cluster.coordinator
        release = Release(self.member, self.number, back)
        if back:
            send(self, coordinator, lambda: coordinator.receive(release, lambda _: None))

    def _rejoin(self, coordinator: LeadingProcess, lost: Incarnation) -> None:
        """At the coordinator: the door by which members come back."""
        supervising = coordinator.supervising
        if supervising is None or coordinator.core is None:
            return
        slot = coordinator.core.state.members.get(self.member)
        if slot is not None and slot.member.incarnation > lost and self.name in slot.member.labels:
            number = slot.member.incarnation
        else:
            try:
                number = supervising.lives.rejoining(self.member, self.name)
            except (Fenced, KeyError):
                send(coordinator, self, partial(self.end, "fenced", by_itself=True))
                return
        join = Join((self.cluster.member(self.member, number, self.name),))

        def joined(answer: Response | PxrsError) -> None:
            if isinstance(answer, Response):
                send(coordinator, self, partial(self._joined, lost, number))

        coordinator.receive(join, joined)

    def _joined(self, lost: Incarnation, number: Incarnation) -> None:
        if self.number == lost:
            self.number, self._seen = number, (0, 0)
