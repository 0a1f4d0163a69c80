"""`GroupShell`: everything one group is, on the coordinator: its core, its crew, its documents.

Rules of this file: what must survive the coordinator (handler, members, their actors, whether it
is paused) is in the document `crew` of the group's registry; it is saved after each change, and
what it does not know is an orphan and is killed at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pxrs_ray.actors.buffers import BufferPool
from pxrs_ray.actors.crew import Crew, Hand
from pxrs_ray.actors.crew_document import CrewDocument, kill_orphans
from pxrs_ray.actors.group_host import GroupHost
from pxrs_ray.actors.group_view import group_status
from pxrs_ray.actors.handler import HandlerRef
from pxrs_ray.actors.member_desk import MemberDesk
from pxrs_ray.actors.seeking import seek_offset
from pxrs_ray.actors.specs import GroupSpec
from pxrs_ray.actors.store_thread import StoreThread
from pxrs_ray.clock import Clock
from pxrs_ray.config import GroupConfig, PxrsConfig
from pxrs_ray.errors import AlreadyExists, DeadlineExceeded, NotFound, UsageError
from pxrs_ray.events import (
    Configure,
    Dismiss,
    Plan,
    Rebalance,
    Seek,
)
from pxrs_ray.group_state import GroupSettings
from pxrs_ray.log.wire import LogEnds
from pxrs_ray.model import Epoch, Incarnation, Member, MemberId, Offset, PartitionId
from pxrs_ray.stats import GroupStatus
from pxrs_ray.store.base import RegistryStore

logger = logging.getLogger(__name__)

PASSED_PAUSE_S = 1.0
SEEK_MARGIN_S = 15.0
CONSUMERS_MAX = 10_000


class Owner(Protocol):
    """What a group needs of the coordinator that it belongs to."""

    def deposed(self, group: str, error: BaseException) -> None:
        """End this coordinator."""

    def led(self, group: str, generation: int, version: int) -> None:
        """These are durable in the registry."""

    def check_led(self, group: str, generation: int, version: int) -> None:
        """Raise StoreCorrupted when the registry has gone back."""


class GroupShell:
    """One group of one coordinator incarnation."""

    COMMANDS = frozenset(
        (
            "scale",
            "stop",
            "pause",
            "resume",
            "seek",
            "plan",
            "add_consumer",
            "remove_consumer",
            "rebalance",
        )
    )

    def __init__(
        self,
        group: str,
        config: PxrsConfig,
        store: RegistryStore,
        thread: StoreThread,
        clock: Clock,
        pool: BufferPool,
        owner: Owner,
    ) -> None:
        name = group.removeprefix(f"{config.prefix}.") if config.prefix else group
        declared = config.resolved_group(name)
        queue = config.resolved_queue(declared.queue)
        self.key = f"{config.name}/{group}"
        self.spec = GroupSpec(
            config.name,
            group,
            config.full_name(declared.queue),
            queue.partitions,
            pool.count,
            declared,
        )
        self.host = GroupHost(self.key, store, thread, clock, self)
        self.crew: Crew | None = None
        self.incarnations: dict[MemberId, Incarnation] = {}
        self.members = MemberDesk(self)
        self._store = store
        self._thread = thread
        self._pool = pool
        self._owner = owner
        self._save_lock = asyncio.Lock()
        self._savings: set[asyncio.Future[None]] = set()
        self._documents: Mapping[str, str] = {}
        self._passed: asyncio.Task[None] | None = None
        self._is_new = False

    # --- life -------------------------------------------------------------------------------------

    async def lead(self, *, recovering: bool) -> None:
        """Take the next generation, and go on from what the registry holds."""
        call = self._thread.call_until_known
        snapshot = await call(
            self._store.lead, self.key, self.spec.partitions, f"pid {os.getpid()}"
        )
        self._owner.check_led(self.key, snapshot.generation, snapshot.last_version)
        self._documents = await call(self._store.documents, self.key)
        self._is_new = not recovering and snapshot.generation == 1
        await self.host.start(snapshot, _settings(self.spec.config, self._kept_crew().paused))
        self._owner.led(self.key, snapshot.generation, snapshot.last_version)

    async def go_on(self) -> None:
        """Register with the logs, and find the consumers that a former coordinator left."""
        checkpoints = self._checkpoints()
        if self._is_new and self.spec.config.start == "end":
            ends = await self._pool.ends(self.spec.queue)
            checkpoints = {p: end.end_offset for p, end in ends.items()}
            await self.host.submit(Seek(checkpoints, "starts at the end"))
        await self._pool.passed(self.spec.queue, self.spec.group, checkpoints)
        self.tell_buffers()
        self._passed = asyncio.ensure_future(self._passed_loop())
        self._restore_crew(self._kept_crew())

    def _kept_crew(self) -> CrewDocument:
        return CrewDocument.from_text(self._documents.get("crew", ""))

    async def close(self, *, graceful: bool) -> None:
        """End everything of this group, its consumers included."""
        if self.crew is not None:
            if graceful:
                await self.crew.stop("the topology shuts down")
            self.crew.abandon()
        if self._passed is not None:
            self._passed.cancel()
        await self.host.settle()
        await self.host.close()

    def actor_names(self) -> list[str]:
        """The actors that this group has now."""
        return [hand.actor for hand in self.crew.hands.values()] if self.crew else []

    def tell_buffers(self) -> None:
        """Repeat which epochs are current, for a buffer that may have forgotten."""
        epochs = {row.partition: row.epoch for row in self.host.core.state.rows if row.epoch}
        self._pool.fence(self.spec.queue, self.spec.group, epochs)

    async def _passed_loop(self) -> None:
        told = self._checkpoints()
        while True:
            await asyncio.sleep(PASSED_PAUSE_S)
            now = self._checkpoints()
            moved = {p: offset for p, offset in now.items() if told[p] != offset}
            if not moved:
                continue
            try:
                await self._pool.passed(self.spec.queue, self.spec.group, moved)
                told = now
            except Exception as error:  # noqa: BLE001 - told again in the next round
                logger.info("a buffer is away, %s is told later: %s", self.spec.group, error)

    def _checkpoints(self) -> dict[PartitionId, Offset]:
        return {row.partition: row.checkpoint for row in self.host.core.state.rows}

    # --- Shell: called by the host ----------------------------------------------------------------

    def fence(self, group: str, epochs: dict[PartitionId, Epoch]) -> None:
        """Pass on which epochs are over."""
        self._pool.fence(self.spec.queue, self.spec.group, epochs)

    def dismissed(self, group: str, dismiss: Dismiss) -> None:
        """Let the crew deal with a member that is struck from the register."""
        if self.crew is not None:
            self.crew.dismissed(dismiss)

    def deposed(self, group: str, error: BaseException) -> None:
        """Pass it on."""
        self._owner.deposed(group, error)

    def led(self, group: str, generation: int, version: int) -> None:
        """Pass it on."""
        self._owner.led(group, generation, version)

    # --- consumers --------------------------------------------------------------------------------

    async def start(
        self, handler: HandlerRef, consumers: int, ray_options: Mapping[str, Any]
    ) -> None:
        """Start `consumers` with `handler`; a group that runs another handler is replaced."""
        _check_count(consumers)
        config = self.spec.config
        if ray_options:
            merged = {**config.ray_options, **ray_options}
            config = config.model_copy(update={"ray_options": merged})
        if self.crew is not None and self.crew.hands:
            if self.crew.handler == handler and config == self.spec.config:
                await self.scale(consumers)
                return
            await self.crew.stop("replaced by another handler")
        self.spec = replace(self.spec, config=config)
        self.crew = self._new_crew(handler)
        await self.crew.add(self._new_names(consumers))

    def _new_crew(self, handler: HandlerRef) -> Crew:
        return Crew(self.spec, self.host, handler, self.incarnations, self._crew_changed)

    def _running(self) -> Crew:
        if self.crew is None:
            raise UsageError(
                f"group {self.spec.group} has not been started: group.start(handler) comes first"
            )
        return self.crew

    def _new_names(self, count: int) -> list[MemberId]:
        taken = set(self.crew.hands if self.crew else ()) | self.host.core.state.members.keys()
        free = (f"{self.spec.group}-{n}" for n in range(CONSUMERS_MAX * 2))
        fresh = (name for name in free if name not in taken)
        return [next(fresh) for _ in range(count)]

    async def scale(self, consumers: int) -> None:
        """Have exactly this many consumers; those that own least go first."""
        _check_count(consumers)
        crew = self._running()
        missing = consumers - len(crew.hands)
        if missing > 0:
            await crew.add(self._new_names(missing))
        elif missing < 0:
            await crew.remove(self._least_loaded(crew, -missing), "scaled in")

    def _least_loaded(self, crew: Crew, count: int) -> list[MemberId]:
        owned = self.host.core.state.owned
        newest_first = sorted(crew.hands, reverse=True)
        return sorted(newest_first, key=lambda member: len(owned.get(member, ())))[:count]

    async def stop(self) -> None:
        """Drain and end every consumer; the group keeps its checkpoints."""
        if self.crew is not None:
            await self.crew.stop("stopped")
            self.crew = None
            await self._save()

    async def add_consumer(self, member: MemberId) -> None:
        """Start one more consumer, by this name."""
        crew = self._running()
        if member in crew.hands or member in self.host.core.state.members:
            raise AlreadyExists(f"{member} is a consumer of {self.spec.group} already")
        await crew.add([member])

    async def remove_consumer(self, member: MemberId) -> None:
        """Drain one consumer and end it."""
        crew = self._running()
        if member not in crew.hands:
            raise NotFound(
                f"no consumer {member!r} in {self.spec.group}; there are {sorted(crew.hands)}"
            )
        await crew.remove([member], "removed")

    async def reconfigure(self, config: GroupConfig) -> None:
        """Take on another configuration of this group, restarting consumers where it needs that."""
        before, self.spec = self.spec.config, replace(self.spec, config=config)
        await self.host.submit(
            Configure(
                assignor=config.assignor,
                static_map=config.static_owners,
                lease_ms=config.lease_ms,
                revoke_deadline_ms=config.revoke_deadline_ms,
            )
        )
        if self.crew is None:
            return
        crew = self.crew
        crew.spec = self.spec
        if config.consumers != before.consumers:
            await self.scale(config.consumers)
        for member in list(crew.hands):
            await crew.remove([member], "restarted with another configuration")
            await crew.add([member])

    # --- commands ---------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Let consumers finish what they hold, and fetch nothing more."""
        await self.host.submit(Configure(paused=True))
        await self._save()

    async def resume(self) -> None:
        """Fetch again."""
        await self.host.submit(Configure(paused=False))
        await self._save()

    async def rebalance(self) -> None:
        """Share out anew."""
        await self.host.submit(Rebalance())

    async def seek(
        self, kind: str, value: int, partitions: Sequence[PartitionId] | None
    ) -> dict[PartitionId, Offset]:
        """Move checkpoints while running; answers where each partition stands afterwards."""
        ends = await self._pool.ends(self.spec.queue)
        wanted = list(range(self.spec.partitions)) if partitions is None else list(partitions)
        for partition in wanted:
            if not 0 <= partition < self.spec.partitions:
                raise NotFound(
                    f"queue {self.spec.queue} has partitions 0 to {self.spec.partitions - 1}, "
                    f"not {partition}"
                )
            if partition not in ends:
                raise DeadlineExceeded(f"the buffer of partition {partition} does not answer now")
        times = await self._pool.offset_at(self.spec.queue, value) if kind == "time" else {}
        offsets = {p: seek_offset(kind, value, ends[p], times) for p in wanted}
        await self.host.submit(Seek(offsets, f"seek to {kind} {value}".rstrip(" 0")))
        deadline_s = self.host.core.settings.revoke_deadline_ms / 1_000 + SEEK_MARGIN_S
        try:
            await asyncio.wait_for(self._seeks_done(offsets), deadline_s)
        except TimeoutError:
            raise DeadlineExceeded(
                f"seek of {self.spec.group}: not all partitions were handed back in "
                f"{deadline_s:g} s; those that were not will still be moved"
            ) from None
        await self.host.settle()
        return offsets

    async def _seeks_done(self, offsets: Mapping[PartitionId, Offset]) -> None:
        while any(p in self.host.core.state.seeks for p in offsets):
            await self.host.change()

    async def plan(self, consumers: int) -> Plan:
        """What having that many consumers would move."""
        _check_count(consumers)
        crew = self.crew
        have = len(crew.hands) if crew else 0
        add = [Member(name, 1) for name in self._new_names(max(0, consumers - have))]
        gone = self._least_loaded(crew, have - consumers) if crew and consumers < have else []
        members = self.host.core.state.members
        return self.host.core.plan(
            f"{have} to {consumers} consumers", add=add, remove=[m for m in gone if m in members]
        )

    # --- asking and keeping -----------------------------------------------------------------------

    async def status(self, ends: Mapping[PartitionId, LogEnds]) -> GroupStatus:
        """This group at this moment."""
        behind = {
            row.partition: row.checkpoint
            for row in self.host.core.state.rows
            if row.partition in ends and row.checkpoint < ends[row.partition].end_offset
        }
        ages = await self._pool.ages(self.spec.queue, behind) if behind else {}
        infos = await self.crew.infos() if self.crew is not None else {}
        return group_status(self, ends, ages, infos)

    def _crew_changed(self) -> None:
        saving = asyncio.ensure_future(self._save())
        self._savings.add(saving)
        saving.add_done_callback(self._savings.discard)

    async def _save(self) -> None:
        """Keep the crew as it is now; saves of one group follow one another."""
        async with self._save_lock:
            hands = self.crew.hands if self.crew else {}
            text = CrewDocument(
                self.host.core.settings.paused,
                self.incarnations,
                self.spec.config.ray_options,
                self.crew.handler if self.crew else None,
                {hand.member: (hand.incarnation, hand.actor) for hand in hands.values()},
            ).to_text()
            await self._thread.call_until_known(
                self._store.put_document, self.key, self.host.core.state.generation, "crew", text
            )

    def _restore_crew(self, kept: CrewDocument) -> None:
        self.incarnations.update(kept.incarnations)
        kill_orphans(self.spec.topology, self.spec.group, {a for _, a in kept.members.values()})
        if kept.handler is None:
            return
        options = {"ray_options": dict(kept.ray_options)}
        self.spec = replace(self.spec, config=self.spec.config.model_copy(update=options))
        self.crew = self._new_crew(kept.handler)
        for member, (incarnation, actor) in kept.members.items():
            self.crew.reattach(Hand(member, incarnation, actor))


def _settings(config: GroupConfig, paused: bool) -> GroupSettings:
    return GroupSettings(
        assignor=config.assignor,
        static_map=config.static_owners,
        lease_ms=config.lease_ms,
        revoke_deadline_ms=config.revoke_deadline_ms,
        paused=paused,
    )


def _check_count(consumers: int) -> None:
    if not 0 <= consumers <= CONSUMERS_MAX:
        raise UsageError(f"a group has 0 to {CONSUMERS_MAX} consumers, not {consumers}")
