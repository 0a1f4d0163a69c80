"""`Crew`: the consumer actors of one group, spawned, watched, replaced and ended.

Rules of this file. A consumer joins only when its actor is up, several that start together join
together. Consumers never restart by themselves: a death is seen by the call that awaits `run`,
told to the coordinator core at once, and a new incarnation is spawned. A member whose lease ran
out may only be frozen: it is given one more lease to thaw and join anew, then it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from pxrs_ray.actors import gcs, names
from pxrs_ray.actors.autopsy import PROCESS_DIED, UNSEEN, autopsy, end_of, last_line
from pxrs_ray.actors.consumer import ConsumerInfo, make_consumer
from pxrs_ray.actors.ending import end_actor
from pxrs_ray.actors.group_host import GroupHost
from pxrs_ray.actors.hand import Hand, infos_of, next_incarnation
from pxrs_ray.actors.handler import HandlerRef
from pxrs_ray.actors.process_end import NO_PROCESS, process_end
from pxrs_ray.actors.specs import ConsumerSpec, GroupSpec
from pxrs_ray.errors import DeadlineExceeded, Fenced, HandlerError, NotFound, PxrsError
from pxrs_ray.events import Died, Dismiss, Join, Leave
from pxrs_ray.model import Incarnation, Member, MemberId
from pxrs_ray.processing.suspects import Death
from pxrs_ray.supervision import told
from pxrs_ray.supervisor import Supervisor, beside, is_asked_for, within

logger = logging.getLogger(__name__)

TOGETHER_WAIT_S = 10.0
FINISH_WAIT_S = 10.0
BEGIN_WAIT_S = 5.0
MOVED_WAIT_S = 2.0
PENDING_AFTER_S = 5.0
RESPAWN_PAUSE_S = 0.1
RESPAWN_PAUSE_MOST_S = 10.0
QUICK_DEATH_S = 3.0


class Crew:
    """All consumer actors of one group. Lives on the coordinator's event loop."""

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
        self.hands: dict[MemberId, Hand] = {}
        self._incarnations = incarnations
        self._host = host
        self._changed = changed
        self._stopping = False
        self._leaving: list[Hand] = []
        self._supervisor = Supervisor("the crew")

    # --- what is wanted ---------------------------------------------------------------------------

    async def add(self, members: Sequence[MemberId]) -> None:
        """Spawn these members; they join together, or as they come when one is slow to start.

        Returns when what moves to them has moved; a handler that is slow to finish is not waited
        for.
        """
        hands = [Hand(member) for member in members]
        self.hands |= {hand.member: hand for hand in hands}
        if hands:
            await self._spawn_together(hands)
            await self._moved()

    async def _moved(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(MOVED_WAIT_S):
                while self._host.core.state.revoking:
                    await self._host.change()
        await self._host.settle()

    async def remove(self, members: Sequence[MemberId], cause: str) -> None:
        """Let these members hand everything back and end; returns when they have left."""
        leaving = [self.hands.pop(member) for member in members if member in self.hands]
        self._changed()
        for hand in leaving:
            hand.state = "leaving"
        self._leaving += leaving
        try:
            await asyncio.gather(*(self._let_go(hand, cause) for hand in leaving))
        finally:
            self._leaving = [hand for hand in self._leaving if hand not in leaving]

    async def replace(self, members: Sequence[MemberId], cause: str) -> None:
        """Let these members hand over and end, and start each anew."""
        wanted = [member for member in members if member in self.hands]
        await self.remove(wanted, cause)
        await self.add(wanted)

    async def stop(self, cause: str) -> None:
        """Remove everybody."""
        self._stopping = True
        await self.remove(list(self.hands), cause)

    async def restart(self, member: MemberId) -> None:
        """End a consumer's process, wherever it is and frozen or not; another takes its place."""
        hand = self.hands[member]
        if hand.state == "failed":
            self._task(hand, self._respawn(hand, "restarted by hand"))
        else:
            with suppress(NotFound):
                await gcs.ask("end", partial(end_actor, hand.actor), gcs.MAKE_S)

    def actors(self) -> set[str]:
        """Every actor of a consumer that is wanted, or is handing over."""
        return {hand.actor for hand in (*self.hands.values(), *self._leaving)}

    async def abandon(self) -> None:
        """Kill every actor at once; the topology is being removed."""
        self._stopping = True
        kills = [self._kill(hand) for hand in self.hands.values()]
        self.hands.clear()
        if kills:
            await asyncio.wait(kills, timeout=gcs.ANSWER_S)

    async def reattach(self, hand: Hand) -> None:
        """Go on with a consumer that a former coordinator spawned, however far it had come."""
        self.hands[hand.member] = hand
        try:
            hand.handle = await gcs.find(hand.actor)
        except ValueError:
            self._task(hand, self._died(hand, "its actor is gone"))
            return
        slot = self._host.core.state.members.get(hand.member)
        if slot is not None and slot.member.incarnation == hand.incarnation:
            hand.state = "running"
            self._task(hand, self._begin(hand))
        else:
            self._task(hand, self._join_when_up(hand))

    # --- what happens -----------------------------------------------------------------------------

    def dismissed(self, dismiss: Dismiss) -> None:
        """The core has struck an incarnation from its register."""
        hand = self.hands.get(dismiss.member)
        if hand is None or hand.incarnation != dismiss.incarnation or dismiss.clean:
            return
        if hand.state == "running":
            hand.state, hand.reason = "silent", dismiss.cause
            self._task(hand, self._replace_if_still_silent(hand, dismiss.incarnation))

    def rejoining(self, member: MemberId, actor: str) -> Incarnation:
        """The next incarnation of a member that lost its membership, and whose `actor` lives.

        Raises Fenced when another actor has taken its place.
        """
        hand = self.hands[member]
        if hand.actor != actor or hand.state not in ("running", "silent"):
            raise Fenced(f"{actor} was replaced by {hand.actor}")
        hand.incarnation = next_incarnation(self._host, self._incarnations, member)
        hand.state, hand.reason = "running", ""
        self._changed()
        return hand.incarnation

    async def infos(self) -> dict[MemberId, ConsumerInfo]:
        """What each running consumer says of itself, leaving out those that do not answer."""
        return await infos_of(hand for hand in self.hands.values() if hand.state == "running")

    # --- spawning ---------------------------------------------------------------------------------

    async def _spawn_together(self, hands: Sequence[Hand]) -> None:
        made = await asyncio.gather(*map(self._make, hands), return_exceptions=True)
        for hand, error in zip(hands, made, strict=True):
            if error is not None:
                self._task(hand, self._respawn(hand, f"could not be made: {told(error)}"))
        hands = [hand for hand, error in zip(hands, made, strict=True) if error is None]
        self._changed()
        ups = {beside(self._up, hand): hand for hand in hands}
        done, slow = await asyncio.wait(ups, timeout=TOGETHER_WAIT_S) if ups else (ups, ())
        for task in {*slow, *(task for task in done if task.exception() is not None)}:
            self._task(ups[task], self._join_when_up(ups[task], task))
        up = [ups[task] for task in done if task.exception() is None and task.result()]
        try:
            await self._join(up)
        except BaseException:
            # Who called is told; those that are up are wanted all the same, and join when they may.
            for hand in up:
                self._task(hand, self._join_when_up(hand))
            raise
        failed = [hand for hand in hands if hand.state == "failed"]
        if failed:
            raise HandlerError(f"consumer {failed[0].member} cannot start: {failed[0].reason}")

    async def _make(self, hand: Hand) -> None:
        hand.incarnation = next_incarnation(self._host, self._incarnations, hand.member)
        hand.actor = names.consumer(
            self.spec.topology, self.spec.group, hand.member, hand.incarnation
        )
        hand.state, hand.reason, hand.born_s = "starting", "", time.monotonic()
        hand.pid, hand.node = 0, ""
        spec = ConsumerSpec(self.spec, hand.member, hand.incarnation, self.handler, hand.actor)
        hand.handle = await gcs.ask("make", partial(make_consumer, spec), gcs.MAKE_S)
        if self.hands.get(hand.member) is not hand:
            self._kill(hand)  # it was let go meanwhile

    async def _up(self, hand: Hand) -> bool:
        """Whether the actor came up. One that has no place yet is pending, and that is shown."""
        ready = asyncio.wrap_future(hand.handle.ready.remote().future())
        done, _ = await asyncio.wait([ready], timeout=PENDING_AFTER_S)
        if not done:
            hand.state = "pending"
            hand.reason = (
                f"no node has room for {self.spec.config.ray_options or 'it'} yet, or it is slow "
                "to start"
            )
        try:
            hand.pid, hand.node = await ready
        except RayActorError as error:
            if error.actor_init_failed:
                # The constructor loads the handler: its error is what the user must see.
                hand.state, hand.reason = "failed", last_line(error)
            elif self.hands.get(hand.member) is hand:
                cause = f"died while it started: {last_line(error)}"
                self._task(hand, self._respawn(hand, cause))
            return False
        return True

    async def _join_when_up(self, hand: Hand, up: asyncio.Future[bool] | None = None) -> None:
        if await (up or self._up(hand)):
            await self._join([hand])

    async def _join(self, hands: Sequence[Hand]) -> None:
        wanted = [hand for hand in hands if self.hands.get(hand.member) is hand]
        if not wanted:
            return
        wanted.sort(key=lambda hand: hand.member)
        await self._host.submit(Join(tuple(self._member(hand) for hand in wanted)))
        for hand in wanted:
            hand.state, hand.reason = "running", ""
        await asyncio.gather(*(self._begin(hand) for hand in wanted))

    async def _begin(self, hand: Hand) -> None:
        """Let a member that has joined begin, and watch it from then on; begun twice is begun."""
        if hand.member not in self._host.core.state.members:
            # The registry took the join so late that its lease was over: nobody else would let
            # it begin, and it cannot miss a membership that it was never told of.
            hand.incarnation = next_incarnation(self._host, self._incarnations, hand.member)
            self._changed()
            self._task(hand, self._join([hand]))
            return
        try:
            first = self._host.core.assignment(hand.member)
            begun = hand.handle.begin.remote(hand.incarnation, first)
            hand.pid, hand.node = await within(BEGIN_WAIT_S, begun)
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            # Whatever is the matter with it: the watch or its lease will tell.
            self._supervisor.note(f"{hand.member}#{hand.incarnation} did not begin", error)
        self._task(hand, self._watch(hand))

    def _member(self, hand: Hand) -> Member:
        """The member as the core should know it; its actor's name is what it will show."""
        grace_ms, label = self.spec.config.grace_ms, f"session:{hand.actor}"
        return Member(hand.member, hand.incarnation, grace_ms=grace_ms, labels=(label,))

    # --- watching ---------------------------------------------------------------------------------

    async def _watch(self, hand: Hand) -> None:
        """Await the end of its process: told by the kernel here, by an endless call elsewhere."""
        here = hand.node == ray.get_runtime_context().get_node_id()
        run = beside(end_of, hand.handle)
        try:
            async with process_end(hand.pid if here else NO_PROCESS) as ended:
                either: list[asyncio.Future[Any]] = [run, ended]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                status = ended.result() if ended.done() else 0
            cause = run.result() if run.done() else PROCESS_DIED
        finally:
            run.cancel()
        told = f"{cause} (pid {hand.pid})"
        await (self._died(hand, told, status) if cause == PROCESS_DIED else self._gone(hand, told))

    async def _died(self, hand: Hand, cause: str, status: int = 0) -> None:
        death = await autopsy(hand.node, hand.actor, status)
        await self._gone(hand, f"{cause}: {death}" if death.calls else cause, death)

    async def _gone(self, hand: Hand, cause: str, death: Death = UNSEEN) -> None:
        await self._bury(Died(hand.member, hand.incarnation, cause, death))
        if self.hands.get(hand.member) is hand:
            if death.calls:
                hand.born_s = float("-inf")  # it had come to its work: no start that went wrong
            await self._respawn(hand, cause)

    async def _bury(self, died: Died) -> None:
        """Tell the core of a death; a group that has failed is told when it is well again."""
        while True:
            with suppress(DeadlineExceeded):
                await self._host.submit(died)
                return

    async def _replace_if_still_silent(self, hand: Hand, incarnation: Incarnation) -> None:
        await asyncio.sleep(self._host.core.settings.lease_ms / 1_000)
        if hand.state == "silent" and hand.incarnation == incarnation:
            self._kill(hand, hard=True)

    async def _respawn(self, hand: Hand, cause: str) -> None:
        """Put a new incarnation in the place of a dead one; one that dies at once waits longer."""
        while not self._stopping and self.spec.config.respawn:
            lived_s = time.monotonic() - hand.born_s
            hand.quick_deaths = hand.quick_deaths + 1 if lived_s < QUICK_DEATH_S else 0
            hand.reason = f"replaces one that died: {cause}"
            if hand.state != "failed":
                hand.state = "starting"
            # The others take over first: a process that starts would take the CPU from them.
            pause_s = 0.0 if self.spec.config.grace_ms else RESPAWN_PAUSE_S
            if hand.quick_deaths:
                pause_s = min(RESPAWN_PAUSE_S * 2**hand.quick_deaths, RESPAWN_PAUSE_MOST_S)
            await asyncio.sleep(pause_s)
            if self.hands.get(hand.member) is not hand:
                return
            self._kill(hand)  # it may live after all, and only be out of reach
            reason = hand.reason
            await self._make(hand)
            hand.reason = reason
            self._changed()
            await self._join_when_up(hand)
            if hand.state != "failed":
                return
            cause = hand.reason
        hand.state, hand.reason, hand.handle = "failed", cause, None

    # --- ending -----------------------------------------------------------------------------------

    async def _let_go(self, hand: Hand, cause: str) -> None:
        slot = self._host.core.state.members.get(hand.member)
        if slot is None or slot.member.incarnation != hand.incarnation:
            self._kill(hand, hard=True)
            return
        deadline_s = self._host.core.settings.hand_over_ms / 1_000 + FINISH_WAIT_S
        try:
            await self._host.submit(Leave(hand.member, hand.incarnation, cause))
            await within(deadline_s, self._left(hand))
            await within(FINISH_WAIT_S, hand.handle.finish.remote())
        except (PxrsError, RayError, TimeoutError) as error:
            logger.warning("%s did not end gracefully: %r", hand.member, error)
            self._kill(hand, hard=True)
        else:
            self._kill(hand)

    async def _left(self, hand: Hand) -> None:
        while (slot := self._host.core.state.members.get(hand.member)) is not None:
            if slot.member.incarnation != hand.incarnation:
                return
            await self._host.change()

    def _kill(self, hand: Hand, *, hard: bool = False) -> asyncio.Future[None]:
        """End its actor; `hard` is for one that may be frozen, which Ray's kill leaves standing."""
        for task in hand.tasks:
            if hand.state == "leaving":
                task.cancel()
        if hard and hand.pid and hand.node == ray.get_runtime_context().get_node_id():
            with suppress(ProcessLookupError):
                os.kill(hand.pid, signal.SIGKILL)
        return self._supervisor.once(f"the end of {hand.actor}", gcs.kill(hand.handle))

    def _task(self, hand: Hand, work: Any) -> None:
        task = self._supervisor.once(hand.member, self._guard(hand, work))
        hand.tasks.add(task)
        task.add_done_callback(hand.tasks.discard)

    async def _guard(self, hand: Hand, work: Any) -> None:
        """Whatever is raised, a consumer that is wanted is not left to itself."""
        try:
            await work
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            self._supervisor.note(f"{self.spec.group}/{hand.member}", error)
            await asyncio.sleep(hand.faults.failed(time.monotonic()) or 0.0)
            if self.hands.get(hand.member) is not hand or self._stopping:
                return
            for task in hand.tasks - {asyncio.current_task()}:
                task.cancel()
            # What was refused may be taken next time; what else failed may be the actor's doing.
            refused = isinstance(error, PxrsError)
            again = self._join_when_up(hand) if refused else self._respawn(hand, told(error))
            self._task(hand, again)
