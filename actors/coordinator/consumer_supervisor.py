"""`ConsumerSupervisor`: starts, watches, replaces and ends the consumer actors of one group.

Rules of this file. A consumer joins only when its actor is up; several that start together join
together. Consumers never restart by themselves: the call that awaits `run` sees a death, the
coordinator core learns of it at once, and a new incarnation is started. A member whose lease ran
out may only be frozen: it gets one more lease to thaw and join anew, then it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from ray.exceptions import RayActorError, RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.actor_process import end_actor
from pxrs_ray.actors.cluster.process_end import NO_PROCESS, process_end
from pxrs_ray.actors.consumer.consumer_actor import ConsumerInfo, make_consumer
from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.actors.consumer.specs import ConsumerSpec, GroupSpec
from pxrs_ray.actors.coordinator.consumer_autopsy import (
    PROCESS_DIED,
    UNSEEN,
    autopsy,
    end_of,
    first_told,
)
from pxrs_ray.actors.coordinator.consumer_replica import (
    ConsumerReplica,
    infos_of,
    is_member,
    kill_here,
    next_incarnation,
    pid_here,
    until_left,
)
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.reconfiguration import taken_over
from pxrs_ray.errors import DeadlineExceeded, Fenced, HandlerError, NotFound, PxrsError
from pxrs_ray.group.events import Died, Dismiss, Join, Leave
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.processing.suspects import Death
from pxrs_ray.supervision.restart_rules import last_line, told
from pxrs_ray.supervision.supervisor import Supervisor, beside, is_asked_for, within

logger = logging.getLogger(__name__)

TOGETHER_WAIT_S = 10.0
FINISH_WAIT_S = 10.0
BEGIN_WAIT_S = 5.0
MOVED_WAIT_S = 2.0
PENDING_AFTER_S = 5.0
RESPAWN_PAUSE_S = 0.1
RESPAWN_PAUSE_MOST_S = 10.0


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
        self.replicas: dict[MemberId, ConsumerReplica] = {}
        self._incarnations = incarnations
        self._host = host
        self._changed = changed
        self._stopping = False
        self._leaving: list[ConsumerReplica] = []
        self._supervisor = Supervisor("the consumers")

    async def add(self, members: Sequence[MemberId]) -> None:
        """Spawn these members; they join together, or as they come when one is slow to start.

        Returns when what moves to them has moved; a handler that is slow to finish is not waited
        for.
        """
        replicas = [ConsumerReplica(member) for member in members]
        self.replicas |= {replica.member: replica for replica in replicas}
        if replicas:
            await self._spawn_together(replicas)
            await self._host.until_moved(MOVED_WAIT_S)

    async def remove(self, members: Sequence[MemberId], cause: str) -> None:
        """Let these members hand everything back and end; returns when they have left."""
        leaving = [self.replicas.pop(member) for member in members if member in self.replicas]
        self._changed()
        for replica in leaving:
            replica.state = "leaving"
        self._leaving += leaving
        try:
            await asyncio.gather(*(self._let_go(replica, cause) for replica in leaving))
        finally:
            self._leaving = [replica for replica in self._leaving if replica not in leaving]

    async def replace(self, members: Sequence[MemberId], cause: str) -> None:
        """Let these members hand over and end, and start each anew."""
        wanted = [member for member in members if member in self.replicas]
        await self.remove(wanted, cause)
        await self.add(wanted)

    async def stop(self, cause: str) -> None:
        """Remove everybody."""
        self._stopping = True
        await self.remove(list(self.replicas), cause)

    async def restart(self, member: MemberId) -> None:
        """End a consumer's process, wherever it is and frozen or not; another takes its place."""
        replica = self.replicas[member]
        if replica.state == "failed":
            self._task(replica, self._respawn(replica, "restarted by hand"))
        else:
            with suppress(NotFound):
                await gcs.ask("end", partial(end_actor, replica.actor), gcs.MAKE_S)

    def actors(self) -> set[str]:
        """Every actor of a consumer that is wanted, or is handing over."""
        return {replica.actor for replica in (*self.replicas.values(), *self._leaving)}

    async def abandon(self) -> None:
        """Kill every actor at once; the topology is being removed."""
        self._stopping = True
        kills = [self._kill(replica) for replica in self.replicas.values()]
        self.replicas.clear()
        if kills:
            await asyncio.wait(kills, timeout=gcs.ANSWER_S)

    async def reattach(self, replica: ConsumerReplica) -> None:
        """Go on with a consumer that a former coordinator spawned, however far it had come."""
        self.replicas[replica.member] = replica
        replica.handle = await gcs.find(replica.actor)
        if replica.handle is None:
            self._task(replica, self._died(replica, "its actor is gone"))
            return
        slot = self._host.core.state.members.get(replica.member)
        if slot is not None and slot.member.incarnation == replica.incarnation:
            replica.state = "running"
            self._task(replica, self._begin(replica))
        else:
            self._task(replica, self._join_when_up(replica))

    # --- what happens -----------------------------------------------------------------------------

    def dismissed(self, dismiss: Dismiss) -> None:
        """The core has removed an incarnation from the group."""
        replica = self.replicas.get(dismiss.member)
        if replica is None or replica.incarnation != dismiss.incarnation or dismiss.clean:
            return
        if replica.state == "running":
            replica.state, replica.reason = "silent", dismiss.cause
            self._task(replica, self._replace_if_still_silent(replica, dismiss.incarnation))

    def rejoining(self, member: MemberId, actor: str) -> Incarnation:
        """The next incarnation of a member that lost its membership, and whose `actor` lives.

        Raises Fenced when another actor has taken its place.
        """
        replica = self.replicas[member]
        if replica.actor != actor or replica.state not in ("running", "silent"):
            raise Fenced(f"{actor} was replaced by {replica.actor}")
        replica.incarnation = next_incarnation(self._host, self._incarnations, member)
        replica.state, replica.reason = "running", ""
        self._changed()
        return replica.incarnation

    async def infos(self) -> dict[MemberId, ConsumerInfo]:
        """What each running consumer reports of itself, leaving out those that do not answer."""
        return await infos_of(each for each in self.replicas.values() if each.state == "running")

    async def _spawn_together(self, replicas: Sequence[ConsumerReplica]) -> None:
        made = await asyncio.gather(*map(self._make, replicas), return_exceptions=True)
        for replica, error in zip(replicas, made, strict=True):
            if error is not None:
                self._task(replica, self._respawn(replica, f"could not be made: {told(error)}"))
        replicas = [replica for replica, error in zip(replicas, made, strict=True) if error is None]
        self._changed()
        ups = {beside(self._up, replica): replica for replica in replicas}
        done, slow = await asyncio.wait(ups, timeout=TOGETHER_WAIT_S) if ups else (ups, ())
        for task in {*slow, *(task for task in done if task.exception() is not None)}:
            self._task(ups[task], self._join_when_up(ups[task], task))
        up = [ups[task] for task in done if task.exception() is None and task.result()]
        try:
            await self._join(up)
        except BaseException:
            # The caller gets the error. Those that are up stay wanted, and join when they may.
            for replica in up:
                self._task(replica, self._join_when_up(replica))
            raise
        failed = [replica for replica in replicas if replica.state == "failed"]
        if failed:
            raise HandlerError(f"consumer {failed[0].member} cannot start: {failed[0].reason}")

    async def _make(self, replica: ConsumerReplica) -> None:
        group = self.spec
        number = next_incarnation(self._host, self._incarnations, replica.member)
        actor = names.consumer(group.topology, group.group, replica.member, number)
        spec = ConsumerSpec(group, replica.member, number, self.handler, actor)
        replica.is_made(spec)
        replica.handle = await gcs.ask("make", partial(make_consumer, spec), gcs.MAKE_S)
        if self.replicas.get(replica.member) is not replica:
            self._kill(replica)  # it was let go meanwhile

    async def _up(self, replica: ConsumerReplica) -> bool:
        """Whether the actor came up. One that has no place yet is pending, and that is shown."""
        ready = asyncio.wrap_future(replica.handle.ready.remote().future())
        done, _ = await asyncio.wait([ready], timeout=PENDING_AFTER_S)
        if not done:
            replica.state = "pending"
            needs = self.spec.config.ray_options or "it"
            replica.reason = f"no node has room for {needs} yet, or it is slow to start"
        try:
            replica.pid, replica.node = await ready
        except RayActorError as error:
            if error.actor_init_failed:
                # The constructor loads the handler: its error is what the user must see.
                replica.state, replica.reason = "failed", last_line(error)
            elif self.replicas.get(replica.member) is replica:
                cause = f"died while it started: {last_line(error)}"
                self._task(replica, self._respawn(replica, cause))
            return False
        return True

    async def _join_when_up(
        self, replica: ConsumerReplica, up: asyncio.Future[bool] | None = None
    ) -> None:
        if await (up or self._up(replica)):
            await self._join([replica])

    async def _join(self, replicas: Sequence[ConsumerReplica]) -> None:
        wanted = [each for each in replicas if self.replicas.get(each.member) is each]
        wanted.sort(key=lambda each: each.member)
        if not wanted:
            return
        config = self.spec.config
        await self._host.submit(Join(tuple(replica.as_member(config) for replica in wanted)))
        for replica in wanted:
            replica.state, replica.reason = "running", ""
        await asyncio.gather(*(self._begin(replica) for replica in wanted))

    async def _begin(self, replica: ConsumerReplica) -> None:
        """Let a member that has joined begin, and watch it from then on; begun twice is begun."""
        if replica.member not in self._host.core.state.members:
            # The registry took the join so late that its lease was over: nobody else would let
            # it begin, and it cannot miss a membership that it was never told of.
            replica.incarnation = next_incarnation(self._host, self._incarnations, replica.member)
            self._changed()
            self._task(replica, self._join([replica]))
            return
        async with AsyncExitStack() as opened:
            # Looked at before it may begin: its first message may kill it at once.
            ended = None
            if replica.pid:
                looking = opened.enter_async_context(process_end(pid_here(replica)))
                ended = await self._noted(replica, looking)
            await self._noted(replica, self._let_begin(replica))
            self._task(replica, self._watch(replica, ended, opened.pop_all()))

    async def _let_begin(self, replica: ConsumerReplica) -> None:
        first = self._host.core.assignment(replica.member)
        begun = replica.handle.begin.remote(replica.incarnation, first)
        replica.pid, replica.node = await within(BEGIN_WAIT_S, begun)
        await taken_over(replica, self.spec.config)

    async def _noted(self, replica: ConsumerReplica, work: Awaitable[Any]) -> Any:
        """What is the matter with it is noted only: the watch or its lease will tell."""
        try:
            return await work
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            self._supervisor.note(f"{replica.member}#{replica.incarnation} did not begin", error)
            return None

    async def _watch(self, replica: ConsumerReplica, ended: Any, opened: AsyncExitStack) -> None:
        """Await the end of its process: told by the kernel here, by an endless call elsewhere."""
        run = beside(end_of, replica.handle)
        try:
            async with opened:
                ended = ended or await opened.enter_async_context(process_end(pid_here(replica)))
                cause, status = await first_told(run, ended, here=pid_here(replica) != NO_PROCESS)
        finally:
            run.cancel()
        told = f"{cause} (pid {replica.pid})"
        await (
            self._died(replica, told, status)
            if cause == PROCESS_DIED
            else self._gone(replica, told)
        )

    async def _died(self, replica: ConsumerReplica, cause: str, status: int = 0) -> None:
        death = await autopsy(replica.node, replica.actor, status)
        await self._gone(replica, f"{cause}: {death}" if death.calls else cause, death)

    async def _gone(self, replica: ConsumerReplica, cause: str, death: Death = UNSEEN) -> None:
        replica.note_end()
        await self._bury(Died(replica.member, replica.incarnation, cause, death))
        if self.replicas.get(replica.member) is replica:
            if death.calls:
                replica.born_s = float("-inf")  # it had come to its work: no start that went wrong
            await self._respawn(replica, cause)

    async def _bury(self, died: Died) -> None:
        """Report a death to the core; a group that has failed gets it when it is well again."""
        while True:
            with suppress(DeadlineExceeded):
                await self._host.submit(died)
                return

    async def _replace_if_still_silent(
        self, replica: ConsumerReplica, incarnation: Incarnation
    ) -> None:
        await asyncio.sleep(self._host.core.settings.lease_ms / 1_000)
        if replica.state == "silent" and replica.incarnation == incarnation:
            self._kill(replica, hard=True)

    async def _respawn(self, replica: ConsumerReplica, cause: str) -> None:
        """Put a new incarnation in the place of a dead one; one that dies at once waits longer."""
        while not self._stopping and self.spec.config.respawn:
            replica.count_death()
            replica.reason = f"replaces one that died: {cause}"
            if replica.state != "failed":
                replica.state = "starting"
            # The others take over first: a process that starts would take the CPU from them.
            pause_s = 0.0 if self.spec.config.grace_ms else RESPAWN_PAUSE_S
            if replica.quick_deaths:
                pause_s = min(RESPAWN_PAUSE_S * 2**replica.quick_deaths, RESPAWN_PAUSE_MOST_S)
            await asyncio.sleep(pause_s)
            if self.replicas.get(replica.member) is not replica:
                return
            self._kill(replica)  # it may live after all, and only be out of reach
            reason = replica.reason
            await self._make(replica)
            replica.reason = reason
            self._changed()
            await self._join_when_up(replica)
            if replica.state != "failed":
                return
            cause = replica.reason
        replica.state, replica.reason, replica.handle = "failed", cause, None

    async def _let_go(self, replica: ConsumerReplica, cause: str) -> None:
        if not is_member(self._host, replica):
            self._kill(replica, hard=True)
            return
        deadline_s = self._host.core.settings.hand_over_ms / 1_000 + FINISH_WAIT_S
        try:
            await self._host.submit(Leave(replica.member, replica.incarnation, cause))
            await within(deadline_s, until_left(self._host, replica))
            await within(FINISH_WAIT_S, replica.handle.finish.remote())
        except (PxrsError, RayError, TimeoutError) as error:
            logger.warning("%s did not end gracefully: %r", replica.member, error)
            self._kill(replica, hard=True)
        else:
            self._kill(replica)

    def _kill(self, replica: ConsumerReplica, *, hard: bool = False) -> asyncio.Future[None]:
        """End its actor; `hard` is for one that may be frozen, which Ray's kill leaves standing."""
        for task in replica.tasks:
            if replica.state == "leaving":
                task.cancel()
        if hard:
            kill_here(replica)
        return self._supervisor.once(f"the end of {replica.actor}", gcs.kill(replica.handle))

    def _task(self, replica: ConsumerReplica, work: Any) -> None:
        task = self._supervisor.once(replica.member, self._guard(replica, work))
        replica.tasks.add(task)
        task.add_done_callback(replica.tasks.discard)

    async def _guard(self, replica: ConsumerReplica, work: Any) -> None:
        """Whatever is raised, a consumer that is wanted is not left to itself."""
        try:
            await work
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            self._supervisor.note(f"{self.spec.group}/{replica.member}", error)
            await asyncio.sleep(replica.faults.failed(time.monotonic()) or 0.0)
            if self.replicas.get(replica.member) is not replica or self._stopping:
                return
            for task in replica.tasks - {asyncio.current_task()}:
                task.cancel()
            # What was refused may be taken next time; what else failed may be the actor's doing.
            refused = isinstance(error, PxrsError)
            again = self._join_when_up(replica) if refused else self._respawn(replica, told(error))
            self._task(replica, again)
