"""`ReplicaHost`: one process's replica of a slot, hosted: `SlotReplica` on the logs of a buffer,
its messages on their way, and its clock.

Rules of this file. `SlotReplica` decides. Whatever it does to logs is a job of the buffer's writer,
one at a time, in order; what it wants said goes out from the event loop. A log or disk that fails,
and a leader that was replaced, end the process: the coordinator starts another one, which finds out
anew how far its logs are, and whoever had a call here finds who leads now.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from pxrs_ray.actors.buffer.log_writer import LogWriter
from pxrs_ray.actors.buffer.replica_lead import ReplicaLead
from pxrs_ray.actors.buffer.replica_peers import ReplicaPeers
from pxrs_ray.clock import monotonic_ms, wall_ms
from pxrs_ray.errors import LeaseOver, ProtocolError, PxrsError
from pxrs_ray.log.buffer_calls import AppendCall
from pxrs_ray.log.held_calls import Waiting, wake, wake_all
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import ProducerLife
from pxrs_ray.log.replica_logs import ReplicaLogs
from pxrs_ray.log.write_turns import UNKNOWN_BYTES
from pxrs_ray.model import Generation
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
    ReplicationSettings,
    SteppedDown,
)
from pxrs_ray.replication.peer_messages import Follower, Frames, LogKey
from pxrs_ray.replication.peer_wire import pack_peer, unpack_peer
from pxrs_ray.replication.placement import Disk, IsrChange, LeaderEpoch, ReplicaSeen
from pxrs_ray.replication.replica_calls import ReplicaAnswer, ReplicaRules, ReplicaTold
from pxrs_ray.replication.retirement import Retirement, may_drop_damaged
from pxrs_ray.replication.slot_replica import SlotReplica, ToPeer
from pxrs_ray.supervision.restart_rules import told as told_of
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

TICK_S = 0.05
AGAIN_MS = 300
SHIPS_MAX = 8
# Of frames in one message: what is more goes in the next ones.
FRAMES_BYTES = 512 << 10
END_PAUSE_S = 0.5
# For how long a producer that begins waits for one that is away.
SPREAD_WAIT_MS, SPREAD_PAUSE_S = 2_000, 0.02


def end_process() -> None:
    """The coordinator starts another one."""
    os._exit(1)


class ReplicaHost(ReplicaLead):
    """See the rules at the head of this file. For the buffer's event loop.

    `waiting` are the calls that wait at the buffer, `opened` is called when who may be served has
    changed.
    """

    def __init__(
        self,
        what: str,
        who: Follower,
        logs: ReplicaLogs,
        writer: LogWriter,
        rules: ReplicaRules,
        waiting: Waiting,
        changed: Callable[[], None],
    ) -> None:
        settings = ReplicationSettings(
            *(rules.min_isr, rules.synced_only, rules.lag_max_ms, SHIPS_MAX, AGAIN_MS),
            catch_up_bytes_per_s=rules.catch_up_bytes_per_s,
        )
        super().__init__(SlotReplica(who, {}, settings, FRAMES_BYTES, wall_ms))
        self.who = who
        self._what = what
        self._logs, self._writer, self._waiting = logs, writer, waiting
        self._changed = changed
        self._peers = ReplicaPeers()
        self._generation = 0
        self._retirement = Retirement()
        self._queues: Mapping[str, str] = {}
        # What callers wait for: whether it is ready, and whether it takes appends.
        self._was_open = (False, False)
        # The epoch under which it leads, as the coordinator has heard last.
        self._told_to_lead: LeaderEpoch = 0
        self._placed = 0
        self._asks: IsrChange | None = None
        self._speaks = asyncio.Event()
        self._outbox: deque[Any] = deque()
        self._supervisor = Supervisor(what)
        self._thread_of_loop = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        logs.ends_with = self._fails
        logs.lets_go = self._let_go
        logs.may_retain = lambda: self.serves(self._leads)

    # --- what the coordinator says ----------------------------------------------------------------

    async def look(self, told: ReplicaTold) -> ReplicaAnswer:
        """Take in what is told, and answer; held while there is nothing to ask."""
        self.begin()
        is_new = told.generation > self._generation
        if told.generation >= self._generation:
            self._retirement.looked_at(told.generation, told.asked_ms)
            self._take(told)
        # Who leads is told at once, and a coordinator that begins waits for all answers.
        if told.hold_ms and not is_new and not self._has_news():
            self._speaks.clear()
            try:
                async with asyncio.timeout(told.hold_ms / 1_000):
                    await self._speaks.wait()
            except TimeoutError:
                pass
        return self._answer()

    def dismissed(self, generation: Generation, asked_ms: int) -> bool:
        """Its disk is no replica any more: this process is over; False where that is not so now."""
        if not self._retirement.may_go(generation, asked_ms):
            return False
        self.over = self.over or "its disk has no replica of the slot any more"
        return True

    def _has_news(self) -> bool:
        return self._asks is not None or self._leads_ready != self._told_to_lead

    def _take(self, told: ReplicaTold) -> None:
        self._generation = told.generation
        self._peers.are(told.peers, but=self.who.disk)
        self._queues = dict(told.queues)
        placement, absent = told.placement, told.absent
        if placement is not None and placement.version > self._placed:
            self._placed = placement.version
            self._asks = None
            self._peers.joining.clear()
            self._do(lambda: self.replica.placed(placement, monotonic_ms()), UNKNOWN_BYTES)
        needs = told.min_isr, told.catch_up_bytes_per_s
        self._do(lambda: self.replica.needs(*needs, monotonic_ms()))
        if absent is not None:
            self._do(lambda: self.replica.absent(absent, monotonic_ms()))
        is_newest = placement is not None and placement.version >= self._placed
        damaged = self._logs.damaged and is_newest
        if damaged and may_drop_damaged(self.who.disk, placement, absent):
            self._do(self._drop_damaged, UNKNOWN_BYTES)
        if self.settle(told.settled):
            self._changed()

    def _drop_damaged(self) -> None:
        self._logs.drop_damaged()
        self._fails("a log is damaged here, and is taken from the others by the next life")

    def _answer(self) -> ReplicaAnswer:
        missing = self._logs.missing(self._queues, self.replica.logs)
        lacks = bool(self.over or missing or self._logs.damaged)
        seen = ReplicaSeen(self.who.life, self.who.boot, not lacks)
        asks, self._asks = self._asks, None
        leads = self._told_to_lead = self._leads_ready
        return ReplicaAnswer(seen, leads, missing, asks)

    # --- what happens at the logs -----------------------------------------------------------------

    def run_append(self, call: AppendCall) -> None:
        """As `AppendCall.run`, in a job of the writer: followers are sent what has come."""
        if self.replica.leader is None or self.over:
            # It has stepped down while this waited for its turn: these logs follow others now.
            call.refuse()
            return
        ends = {log: log.end_offset for log in call.logs.values()}
        call.run(wall_ms())
        grown = [log for log, end in ends.items() if log.end_offset > end]
        self._in_job(partial(self._grown, grown))

    def synced(self, logs: Collection[PartitionLog]) -> None:
        """More of these may be synced."""
        if logs:
            self._do(partial(self._grown, list(logs)))

    def _grown(self, logs: Collection[PartitionLog]) -> None:
        for log in logs:
            key = (log.log_id, log.partition)
            if self.replica.logs.get(key) is log:
                self.replica.grown(key, monotonic_ms())

    async def heard(self, messages: list[bytes]) -> None:
        """Other replicas say something; what is none of theirs, or is not for us, is dropped."""
        self.begin()
        found = []
        for data in messages:
            try:
                to, message = unpack_peer(data)
            except ProtocolError as error:
                logger.warning("%s: %s", self._what, error)
                continue
            if to == self.who.disk:
                found.append(message)
        keys = {m.key for m in found if isinstance(m, Frames)}
        logs = [self.replica.logs[key] for key in keys if key in self.replica.logs]
        little = all(isinstance(m, Frames) or not hasattr(m, "number") for m in found)
        is_leader = self.replica.leader is not None
        size = sum(map(len, messages)) if little or is_leader else UNKNOWN_BYTES

        def hear() -> None:
            for message in found:
                self.replica.heard(message, monotonic_ms())

        must_sync = [log for log in logs if log.limits.durability == "always"]
        if must_sync:
            await self._writer.do_each(partial(self._in_job, hear), logs, size)
            self.synced(logs)
        else:
            self._do(hear, size, logs)

    def _do(
        self,
        action: Callable[[], None],
        size_bytes: int = 0,
        logs: Collection[PartitionLog] = (),
    ) -> None:
        """Have this done as a job of the writer: now where that can be, else in its turn."""
        if not self.over:
            self._writer.soon(partial(self._in_job, action), logs, size_bytes)

    def _in_job(self, action: Callable[[], None]) -> None:
        if self.over:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - what the replica knows is not so any more
            self._fails(told_of(error))
        while (effect := self.replica.take_effect()) is not None:
            self._outbox.append(effect)
        leader = self.replica.leader
        epoch = leader.placement.epoch if leader is not None else 0
        if epoch != self._leads:
            self._begin_to_lead(epoch)
        elif not self._outbox and self.takes == self._was_open[1]:
            return
        if threading.get_ident() == self._thread_of_loop:
            self._carry()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._carry)

    def _fails(self, why: str) -> None:
        """This replica is over. From any thread."""
        if self.over:
            return
        self.over = why
        logger.error("%s ends: %s", self._what, why)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.end)

    def end(self) -> None:
        """Have the process end, after those have been answered that wait here."""
        wake_all(self._waiting)
        asyncio.get_running_loop().call_later(END_PAUSE_S, end_process)

    # --- what it wants said -----------------------------------------------------------------------

    def _carry(self) -> None:
        advanced: set[LogKey] = set()
        while self._outbox:
            match self._outbox.popleft():
                case ToPeer(to, message):
                    self._peers.send(to, pack_peer(to, message))
                case Advanced(key, _):
                    advanced.add(key)
                case AskIsr(change):
                    self._ask(change)
                case SteppedDown():
                    logger.warning("%s follows: another replica leads its slot", self._what)
                    self._asks = None
                    wake_all(self._waiting)
        self._tell_leads()
        places = self._logs.places() if advanced else {}
        for key in advanced:
            if key in places:
                wake(self._waiting, places[key])
        is_open = (self.is_ready, self.takes)
        if self._was_open != is_open:
            self._was_open = is_open
            self._changed()
            self._speaks.set()

    def _ask(self, change: IsrChange) -> None:
        """Ask for another in-sync set, once all that are new there know of the producers."""
        leader = self.replica.leader
        if leader is None:
            return
        known = {member.disk for member in leader.placement.isr}
        new = {member.disk for member in change.isr} - known
        if new:
            self._supervisor.once("telling of producers", self._tell_and_ask(change, new))
        else:
            self._say_ask(change)

    async def _tell_and_ask(self, change: IsrChange, new: Collection[Disk]) -> None:
        self._peers.joining |= set(new)
        lives = self._logs.producers.lives()
        try:
            await self._peers.teach(new, lives)
        except PxrsError as error:
            logger.info("%s: asked again later: %s", self._what, error)
            return
        self._say_ask(change)

    def _say_ask(self, change: IsrChange) -> None:
        self._asks = change
        self._speaks.set()

    # --- producers that come back -----------------------------------------------------------------

    async def spread(self, life: ProducerLife) -> None:
        """Return once every replica that may lead next knows of this life. Raises LeaseOver."""
        leader = self.replica.leader
        if leader is None:
            raise LeaseOver(f"{self._what} does not lead its slot")
        told: set[Disk] = {self.who.disk}
        end_ms = monotonic_ms() + SPREAD_WAIT_MS
        while True:
            members = {member.disk for member in leader.placement.isr} | self._peers.joining
            left = members - told
            if not left:
                return
            try:
                await self._peers.teach(left, [life])
                told |= left
            except LeaseOver:
                # Who has ended leaves the in-sync set soon.
                if monotonic_ms() >= end_ms:
                    raise
                await asyncio.sleep(SPREAD_PAUSE_S)
            if self.replica.leader is not leader:
                raise LeaseOver(f"{self._what} does not lead its slot any more")

    # --- time -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin; again is harmless. The first call of a buffer finds the loop that this needs."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread_of_loop = threading.get_ident()
            self._supervisor.keep("its clock", self._tick_for_ever)
            if self.over:
                self.end()

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._do(self._tick)

    async def adopt(self) -> None:
        """Return once the replica knows of the logs that there are."""
        self.begin()
        await self._writer.do(partial(self._in_job, self._adopt), ())

    def forget(self, queue: str) -> None:
        """A queue is being removed: nobody misses its logs."""
        self._queues = {name: each for name, each in self._queues.items() if name != queue}

    def _let_go(self, keys: Collection[LogKey]) -> None:
        # In the job that closes them: nothing that is said of them may read them after that.
        for key in keys:
            self.replica.closed(key)
            self._to_reach.pop(key, None)

    def _adopt(self) -> None:
        now_ms, found = monotonic_ms(), self._logs.whole()
        for key, log in list(self.replica.logs.items()):
            if found.get(key) is not log:
                self.replica.closed(key)
        for key in found.keys() - self.replica.logs.keys():
            self.replica.opened(key, found[key], now_ms)

    def _tick(self) -> None:
        self._adopt()
        now_ms = monotonic_ms()
        leader = self.replica.leader
        for key, log in self.replica.logs.items() if leader is not None else ():
            if leader is not None and leader.logs[key].differs(log):
                self.replica.grown(key, now_ms)
        self.replica.tick(now_ms)

    async def close(self) -> None:
        """End for good."""
        self.over = self.over or "it was closed"
        await self._supervisor.close()
        await self._peers.close()
