"""`ConsumerSupervisor`: the consumer actors of one group, as `ReplicaLives` says.

Rules of this file. Nothing is decided here: which consumer starts, joins, is killed or replaced,
and when, is the machine's. Here its steps are carried to actors, to the group and to the kernel.
Consumers never restart by themselves: the call that awaits `run` sees a death.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, TypeVar, cast

from ray.exceptions import RayActorError, RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.actor_process import end_actor
from pxrs_ray.actors.cluster.process_end import NO_PROCESS, process_end
from pxrs_ray.actors.consumer.consumer_actor import make_consumer
from pxrs_ray.actors.consumer.consumer_info import ConsumerInfo
from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.actors.consumer.specs import ConsumerSpec, GroupSpec
from pxrs_ray.actors.coordinator.consumer_autopsy import PROCESS_DIED, autopsy, end_of, first_told
from pxrs_ray.actors.coordinator.consumer_replica import (
    ConsumerReplica,
    infos_of,
    kill_here,
    member_is,
    next_incarnation,
    pid_here,
    until_left,
)
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.reconfiguration import offer
from pxrs_ray.errors import NotFound, PxrsError
from pxrs_ray.group.events import Dismiss, Join, Leave
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
    ItsEnd,
    LetBegin,
    LetJoin,
    LetTimePass,
    MakeActor,
    ReadDeath,
    ReplicaLife,
    ReportDeath,
)
from pxrs_ray.group.replica_lives import ReplicaLives
from pxrs_ray.group.taking_over import CAUSE, HasNewest, OfferConfig, taken_over
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.steps import Do, Steps, carry
from pxrs_ray.supervision.restart_rules import last_line
from pxrs_ray.supervision.supervisor import Supervisor, beside, contained, is_asked_for, within

A = TypeVar("A")

logger = logging.getLogger(__name__)

FINISH_WAIT_S = 10.0
BEGIN_WAIT_S = 5.0
MOVED_WAIT_S = 2.0


class ConsumerSupervisor:
    """All consumer actors of one group. For the coordinator's event loop."""

    def __init__(
        self,
        spec: GroupSpec,
        host: GroupHost,
        handler: HandlerRef,
        incarnations: dict[MemberId, Incarnation],
        changed: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.handler = handler
        self.changed = changed
        self._incarnations = incarnations
        self._host = host
        self._supervisor = Supervisor("the consumers")
        self.lives: ReplicaLives[ConsumerReplica] = ReplicaLives(self)

    @property
    def replicas(self) -> dict[MemberId, ConsumerReplica]:
        """Every wanted consumer by name."""
        return self.lives.wanted

    async def add(self, members: Sequence[MemberId]) -> None:
        """Spawn these members; they join together, or as they come when one is slow to start.

        Returns when what moves to them has moved; a handler that is slow to finish is not waited
        for.
        """
        if members:
            await self._carry(self.lives.add([ConsumerReplica(member) for member in members]))
            await self._host.until_moved(MOVED_WAIT_S)

    async def remove(self, members: Sequence[MemberId], cause: str) -> None:
        """Let these members hand everything back and end; returns when they have left."""
        await self._carry(self.lives.remove(members, cause))

    async def replace(self, members: Sequence[MemberId], cause: str) -> None:
        """Let these members hand over and end, and start each anew."""
        wanted = [member for member in members if member in self.replicas]
        await self.remove(wanted, cause)
        await self.add(wanted)

    async def take_over(self) -> None:
        """Have all consumers take the newest configuration over together, and replace those that
        cannot."""
        asked = list(self.replicas.values())
        each = (self._carry(taken_over(replica)) for replica in asked)
        for replica, taken in zip(asked, await asyncio.gather(*each), strict=True):
            if not taken:
                await self.replace([replica.member], CAUSE)

    async def stop(self, cause: str) -> None:
        """Remove everybody."""
        await self._carry(self.lives.stop(cause))

    async def restart(self, member: MemberId) -> None:
        """End a consumer's process, wherever it is and frozen or not; another takes its place."""
        await self._carry(self.lives.restart(member))

    def actors(self) -> set[str]:
        """Every actor of a consumer that is wanted, or is handing over."""
        return {replica.actor for replica in (*self.replicas.values(), *self.lives.leaving)}

    async def abandon(self) -> None:
        """Kill every actor at once; the topology is being removed."""
        kills = [self.kill(replica, hard=False) for replica in self.lives.abandon()]
        if kills:
            await asyncio.wait(kills, timeout=gcs.ANSWER_S)

    async def reattach(self, replica: ConsumerReplica) -> None:
        """Go on with a consumer that a former coordinator spawned, however far it had come."""
        await self._carry(self.lives.reattach(replica))

    def dismissed(self, dismiss: Dismiss) -> None:
        """The core has removed an incarnation from the group."""
        self.lives.dismissed(dismiss)

    def rejoining(self, member: MemberId, actor: str) -> Incarnation:
        """See `ReplicaLives.rejoining`."""
        return self.lives.rejoining(member, actor)

    async def infos(self) -> dict[MemberId, ConsumerInfo]:
        """What each running consumer reports of itself, leaving out those that do not answer."""
        return await infos_of(each for each in self.replicas.values() if each.state == "running")

    # --- what the lives need of where they are ----------------------------------------------------

    def now_s(self) -> float:
        """The time."""
        return time.monotonic()

    def beside(self, life: ConsumerReplica, steps: Steps[None]) -> None:
        """Have this done beside; whatever it raises goes to the lives."""
        task = self._supervisor.once(life.member, self._guarded(life, steps))
        life.tasks.add(task)
        task.add_done_callback(life.tasks.discard)

    def call_off(self, life: ConsumerReplica) -> None:
        """Whatever was begun beside for it is called off, but what asks for this."""
        for task in life.tasks - {asyncio.current_task()}:
            task.cancel()

    def kill(self, life: ConsumerReplica, *, hard: bool) -> asyncio.Future[None]:
        """End its actor; `hard` is for one that may be frozen, which Ray's kill leaves standing."""
        if hard:
            kill_here(life)
        return self._supervisor.once(f"the end of {life.actor}", gcs.kill(life.handle))

    def number(self, member: MemberId) -> Incarnation:
        """A number above every one that this member had."""
        return next_incarnation(self._host, self._incarnations, member)

    def member_is(self, member: MemberId) -> Incarnation | None:
        """As which incarnation it is a member now."""
        return member_is(self._host, member)

    @property
    def respawns(self) -> bool:
        """Whether who died is replaced."""
        return self.spec.config.respawn

    @property
    def keeps_place(self) -> bool:
        """Whether who died has its partitions kept for it for a while."""
        return self.spec.config.grace_ms > 0

    @property
    def needs(self) -> str:
        """What a consumer needs of its node."""
        return str(self.spec.config.ray_options or "it")

    @property
    def lease_s(self) -> float:
        """For how long a member may be silent."""
        return self._host.core.settings.lease_ms / 1_000

    # --- carrying ---------------------------------------------------------------------------------

    async def _carry(self, steps: Steps[A]) -> A:
        return await carry(steps, lambda what: contained(self._do(what)))

    async def _guarded(self, replica: ConsumerReplica, steps: Steps[None]) -> None:
        try:
            await self._carry(steps)
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            self._supervisor.note(f"{self.spec.group}/{replica.member}", error)
            await self._carry(self.lives.faulted(replica, error))

    async def _do(self, what: Do[Any]) -> Any:
        match what:
            case MakeActor(life):
                return await self._make(_its(life))
            case AwaitUp(life, wait_s):
                return await self._come_up(_its(life), wait_s)
            case AwaitStarts(lives, wait_s):
                starts = {task for life in lives for task in _its(life).tasks}
                return await asyncio.wait(starts, timeout=wait_s) if starts else None
            case LetJoin(lives):
                config = self.spec.config
                members = tuple(_its(life).as_member(config) for life in lives)
                return await self._host.submit(Join(members))
            case LetBegin(lives):
                return await asyncio.gather(*(self._begin(_its(life)) for life in lives))
            case AwaitEnd(life):
                return await self._end_of(_its(life))
            case ReadDeath(life, status):
                return await autopsy(_its(life).node, life.actor, status)
            case ReportDeath(died):
                return await self._host.submit(died)
            case LetTimePass(pause_s):
                return await asyncio.sleep(pause_s)
            case HandOver(life, cause):
                return await self._hand_over(_its(life), cause)
            case Each(every):
                return await asyncio.gather(*map(self._carry, every))
            case EndProcess(life):
                with suppress(NotFound):
                    await gcs.ask("end", partial(end_actor, life.actor), gcs.MAKE_S)
                return None
            case HasNewest(life):
                return _its(life).config == self.spec.config
            case OfferConfig(life):
                return await offer(_its(life), self.spec.config)
            case FindActor(life):
                _its(life).handle = await gcs.find(life.actor)
                return _its(life).handle is not None
        raise AssertionError(what)

    async def _make(self, replica: ConsumerReplica) -> None:
        group, number = self.spec, self.number(replica.member)
        actor = names.consumer(group.topology, group.group, replica.member, number)
        spec = ConsumerSpec(group, replica.member, number, self.handler, actor)
        replica.is_made(spec)
        making = beside(gcs.ask, "make", partial(make_consumer, spec), gcs.MAKE_S)
        try:
            replica.handle = await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(partial(self._end_unwanted, actor))
            raise

    def _end_unwanted(self, actor: str, made: asyncio.Future[Any]) -> None:
        """It was made after nobody waited for it any more."""
        if not made.cancelled() and made.exception() is None:
            self._supervisor.once(f"the end of {actor}", gcs.kill(made.result()))

    async def _come_up(self, replica: ConsumerReplica, wait_s: float | None) -> Came:
        if replica.ready is None:
            replica.ready = asyncio.wrap_future(replica.handle.ready.remote().future())
        ready = replica.ready
        await asyncio.wait([ready], timeout=wait_s)
        if not ready.done():
            return Came()
        replica.ready = None
        try:
            replica.pid, replica.node = await ready
        except RayActorError as error:
            return Came(died=last_line(error), refused=error.actor_init_failed)
        return Came(is_up=True)

    async def _begin(self, replica: ConsumerReplica) -> None:
        async with AsyncExitStack() as opened:
            # Looked at before it may begin: its first message may kill it at once.
            replica.ended = None
            if replica.pid:
                looking = opened.enter_async_context(process_end(pid_here(replica)))
                replica.ended = await self._noted(replica, looking)
            await self._noted(replica, self._let_begin(replica))
            replica.opened = opened.pop_all()
            self.beside(replica, self.lives.watched(replica))

    async def _let_begin(self, replica: ConsumerReplica) -> None:
        first = self._host.core.assignment(replica.member)
        begun = replica.handle.begin.remote(replica.incarnation, first)
        replica.pid, replica.node = await within(BEGIN_WAIT_S, begun)

    async def _noted(self, replica: ConsumerReplica, work: Awaitable[Any]) -> Any:
        """What is the matter with it is noted only: the watch or its lease will tell."""
        try:
            return await work
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            self._supervisor.note(f"{replica.member}#{replica.incarnation} did not begin", error)
            return None

    async def _end_of(self, replica: ConsumerReplica) -> ItsEnd:
        """Await the end of its process: told by the kernel here, by an endless call elsewhere."""
        ended, run = replica.ended, beside(end_of, replica.handle)
        try:
            async with replica.opened as opened:
                if ended is None:
                    ended = await opened.enter_async_context(process_end(pid_here(replica)))
                cause, status = await first_told(run, ended, here=pid_here(replica) != NO_PROCESS)
        finally:
            run.cancel()
        return ItsEnd(f"{cause} (pid {replica.pid})", cause == PROCESS_DIED, status)

    async def _hand_over(self, replica: ConsumerReplica, cause: str) -> None:
        deadline_s = self._host.core.settings.hand_over_ms / 1_000 + FINISH_WAIT_S
        try:
            await self._host.submit(Leave(replica.member, replica.incarnation, cause))
            await within(deadline_s, until_left(self._host, replica))
            await within(FINISH_WAIT_S, replica.handle.finish.remote())
        except (PxrsError, RayError, TimeoutError) as error:
            logger.warning("%s did not end gracefully: %r", replica.member, error)
            raise DidNotEnd from error


def _its(life: ReplicaLife) -> ConsumerReplica:
    return cast(ConsumerReplica, life)
