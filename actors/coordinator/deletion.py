"""`Deletion`: how a coordinator removes a group, a queue, or a whole topology. A part of
`Coordinator`.

Rules of this file. `pxrs_ray.topology.removing` decides the steps; this carries them. The document
`ends` names what is to be removed before any of it is touched, and until all of it is gone. A
removal that is cut off anywhere is finished by the next coordinator.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pxrs_ray.actors.coordinator import replicas_document
from pxrs_ray.actors.coordinator.leadership import Leadership
from pxrs_ray.actors.coordinator.orphans import end_orphans_of, orphans_of
from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.actors.coordinator.topology_requests import (
    DeleteGroup,
    DeleteQueue,
    DeleteTopology,
    GetOrphans,
    KillOrphans,
    PlanGroupRemoval,
    PlanQueueRemoval,
    PlanTopologyRemoval,
)
from pxrs_ray.actors.names import feeds_of, streams_of
from pxrs_ray.config.withheld import without
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import CoordinatorDeposed, LogAway, NotFound
from pxrs_ray.files import Files
from pxrs_ray.model import Outcome, PartitionId
from pxrs_ray.steps import Do, carry
from pxrs_ray.supervision.supervisor import off_loop
from pxrs_ray.topology.removal import Removal
from pxrs_ray.topology.removing import (
    CloseGroup,
    DropGroup,
    DropQueue,
    DropTenants,
    EndConsumers,
    ForgetGroup,
    ForgetHome,
    GivenOut,
    KeepEnds,
    NoteLife,
    RemoveRows,
    Unlist,
    Unname,
    begin_group_end,
    begin_queue_end,
    finish_removals,
    is_in_the_way,
)
from pxrs_ray.topology.tombstones import DOCUMENT, ENDS, Tombstones

logger = logging.getLogger(__name__)

TENANTS = "tenants/"
FOLDER_PAUSES_S = (0.1, 0.4, 1.0)


class Deletion(Leadership):
    """See the rules at the head of this file."""

    _deployed: str
    _closing: bool
    _doomed: Path | None = None

    # --- what would go ----------------------------------------------------------------------------

    @answers(PlanGroupRemoval)
    async def plan_group_removal(self, name: str) -> Removal:
        """What removing a group takes away. Raises NotFound."""
        await self._ready()
        return await self._group_removal(self._short(name))

    @answers(PlanQueueRemoval)
    async def plan_queue_removal(self, name: str) -> Removal:
        """What removing a queue takes away. Raises NotFound."""
        await self._ready()
        return await self._queue_removal(name)

    @answers(PlanTopologyRemoval)
    async def plan_topology_removal(self) -> Removal:
        """What removing the whole topology takes away."""
        await self._ready()
        config = self._config
        removals = [await self._queue_removal(name) for name in config.queues]
        messages = sum(removal.numbers["messages"] for removal in removals)
        size_bytes = sum(removal.numbers["bytes"] for removal in removals)
        return Removal(
            "topology",
            config.name,
            (
                *(line for removal in removals for line in removal.goes),
                f"{len(self._groups)} groups with their checkpoints and history",
                "the registry's rows of this topology, and its folders on every node",
            ),
            numbers={"messages": messages, "bytes": size_bytes, "groups": len(self._groups)},
        )

    async def _group_removal(self, name: str) -> Removal:
        config, full_name = self._config, self._config.full_name(name)
        declared = config.resolved_group(name)
        controller = self._groups.get(full_name)
        ends = await self._pool.ends(config.full_name(declared.queue))
        stands = controller.checkpoints() if controller is not None else {}
        lag = sum(end.lag(stands.get(p, 0)) for p, end in ends.items())
        uses = []
        if controller is not None and controller.replica_set.replicas:
            count = len(controller.replica_set.replicas)
            uses.append(f"{count} consumers run: `pxrs drain {name}` ends them")
        elif controller is not None and controller.host.core.live_members():
            members = ", ".join(
                known.member.member for known in controller.host.core.live_members()
            )
            uses.append(f"members read for it: {members}")
        if name in self._in_file("groups"):
            uses.append(f"{self._file} names it: `pxrs up` would make it anew, from its `start`")
        stays = [
            f"queue {queue} with what was put aside for it: `pxrs queue delete {queue}`"
            for queue in (declared.dead_letter_queue, declared.quarantine_queue)
            if queue is not None
        ]
        goes = (
            f"its checkpoints of {len(stands)} partitions, its history, and who put it there",
            f"its claim to {lag:,} messages of queue {declared.queue} that it has not passed: "
            "retention waits for it no longer",
        )
        numbers = {"lag": lag, "partitions": len(stands)}
        return Removal("group", name, goes, tuple(stays), tuple(uses), (), numbers)

    async def _queue_removal(self, name: str) -> Removal:
        config = self._config
        queue = config.resolved_queue(name)
        ends = await self._pool.ends(config.full_name(name))
        messages = sum(end.end_offset - end.start_offset for end in ends.values())
        size_bytes = sum(end.bytes for end in ends.values())
        readers = [group for group, one in config.groups.items() if one.queue == name]
        uses = [f"group {group} reads it, and is removed too" for group in readers]
        if name in self._in_file("queues"):
            uses.append(f"{self._file} names it: `pxrs up` would make it anew, and empty")
        if await self._tenants_of(name):
            uses.append("tenants are moved between it and queues of their own")
        bars = [
            f"group {group} has it as its {what}: give that group another one, or remove it first"
            for group, one in config.groups.items()
            for what in ("dead_letter_queue", "quarantine_queue")
            if getattr(one, what) == name and one.queue != name
        ]
        lags = {group: self._lag_of(group, ends) for group in readers}
        goes = (
            f"{messages:,} messages of queue {name}, {size_bytes:,} bytes on disk",
            *(f"group {g}, which has {lag:,} of them before it" for g, lag in lags.items()),
        )
        numbers = {"messages": messages, "bytes": size_bytes, "groups": len(readers)}
        if queue.source is not None:
            goes = (f"queue {name}: its messages are in {queue.source} and stay there",)
        return Removal("queue", name, goes, (), tuple(uses), tuple(bars), numbers)

    def _lag_of(self, group: str, ends: Mapping[PartitionId, LogEnds]) -> int:
        controller = self._groups.get(self._config.full_name(group))
        stands = controller.checkpoints() if controller is not None else {}
        return sum(end.lag(stands.get(p, 0)) for p, end in ends.items())

    @property
    def _file(self) -> str:
        return str(json.loads(self._deployed or "{}").get("file", "the topology file"))

    def _in_file(self, kind: str) -> list[str]:
        """The queues or groups that the file that was deployed last names itself."""
        return list(json.loads(self._deployed or "{}").get(kind, ()))

    async def _tenants_of(self, queue: str) -> list[str]:
        documents = await self._thread.call(self._store.documents, self._config.name)
        return [name for name in documents if name.startswith(f"{TENANTS}{queue}/")]

    # --- removing ---------------------------------------------------------------------------------

    @answers(GetOrphans)
    async def orphans(self) -> list[str]:
        """The consumer actors that belong to no member of a group."""
        await self._ready()
        return await orphans_of(self._config.name, self._groups.values())

    @answers(KillOrphans)
    async def kill_orphans(self) -> list[str]:
        """End exactly those; answer which."""
        await self._ready()
        return await end_orphans_of(self._config.name, self._groups.values())

    @answers(DeleteGroup)
    async def delete_group(self, name: str, force: bool = False) -> None:
        """Remove a group; one that is not there is success.

        Raises UsageError when it is in use, unless `force`: then its consumers are ended. Raises
        what kept it from being finished: it is gone then, and the rest follows by itself.
        """
        await self._ready()
        async with self._changing:
            name = self._short(name)
            full_name = self._config.full_name(name)
            if name in self._config.groups:
                (await self._group_removal(name)).check(force=force)
                await self._begin_group_end(name)
            elif full_name not in self._ends.groups:
                # A group that only logs remember, of a registry that was lost.
                for queue in self._config.queues:
                    await self._pool.drop_group(self._config.full_name(queue), full_name)
            await self._finish_removals()

    @answers(DeleteQueue)
    async def delete_queue(self, name: str, force: bool = False) -> None:
        """Remove a queue with all its messages; one that is not there is success.

        Raises UsageError when it is in use, unless `force`: then the groups that read it go too.
        """
        await self._ready()
        async with self._changing:
            if name in self._config.queues:
                (await self._queue_removal(name)).check(force=force)
                for group, one in list(self._config.groups.items()):
                    if one.queue == name:
                        await self._begin_group_end(group)
                        await self._finish_removals()
                full_name = self._config.full_name(name)
                life = self._life(full_name)
                await carry(begin_queue_end(self._ends, full_name, life), self._remove)
            await self._finish_removals()

    async def _begin_group_end(self, name: str) -> None:
        config, full_name = self._config, self._config.full_name(name)
        declared = config.groups[name]
        names = {declared.queue, declared.quarantine_queue or declared.queue}
        queues = [config.full_name(queue) for queue in names]
        known = full_name in self._groups
        await carry(begin_group_end(self._ends, full_name, queues, known=known), self._remove)

    async def _remove(self, what: Do[Any]) -> Any:
        """Do what a step says; a step may be taken again."""
        match what:
            case CloseGroup(group):
                return await self._close_group(group)
            case KeepEnds(ends):
                await self._put_ends(ends)
            case NoteLife(queue, life):
                self._high_water.note_life(queue, life)
            case Unname(groups, queues):
                await self._without(
                    tuple(map(self._short, groups)), tuple(map(self._short, queues))
                )
            case Unlist(group):
                listed = sorted(each for each in self._groups if each != group)
                await self._put_document("groups", "\n".join(listed))
            case RemoveRows(group):
                await self._remove_rows(f"{self._config.name}/{group}")
            case EndConsumers(group):
                await replicas_document.kill_orphans(self._config.name, group, set)
            case DropGroup(queue, group):
                await self._pool.drop_group(queue, group)
            case ForgetGroup(group):
                self._high_water.forget(f"{self._config.name}/{group}")
            case DropTenants(queue):
                for document in await self._tenants_of(self._short(queue)):
                    await self._put_document(document, "")
            case DropQueue(queue):
                for log in (queue, feeds_of(queue), streams_of(queue)):
                    await self._pool.drop_queue(log)
            case ForgetHome(queue):
                await self._homing.forget_queue(queue)
            case _:
                raise AssertionError(f"nobody does {what}")
        return None

    async def _close_group(self, group: str) -> GivenOut:
        controller = self._groups[group]
        await controller.close(graceful=True)
        # Nobody hears it from here on, and so nothing more is given out.
        self._groups.pop(group, None)
        state = controller.host.core.state
        return GivenOut(max(row.epoch for row in state.rows) + 1, state.generation)

    async def _put_ends(self, ends: Tombstones) -> None:
        await self._put_document(DOCUMENT, ENDS.encode_text(ends))
        self._ends = ends

    async def _finish_removals(self) -> None:
        """Finish all removals. Raises what prevents one, after trying all."""
        before = self._ends
        try:
            await carry(finish_removals(before), self._remove)
        finally:
            for name in sorted({*before.groups, *before.queues}):
                if name not in self._ends.groups and name not in self._ends.queues:
                    logger.warning("%s of %s is removed", name, self._config.name)

    async def _try_to_finish(self, before: Collection[str] = ()) -> None:
        """The same where nobody waits for it: what is in the way now is met again later.

        Raises what is in the way of those whose full names are to be used again now (`before`).
        """
        try:
            await self._finish_removals()
        except Exception as error:
            if is_in_the_way(error, self._ends, before):
                raise
            logger.warning("what is going from %s goes later: %s", self._config.name, error)

    async def _remove_rows(self, key: str) -> None:
        """Remove a group of the registry, unless somebody newer leads it."""
        snapshot = await self._thread.call_until_known(self._store.load, key)
        if snapshot is None:
            return
        outcome = await self._thread.call_until_known(
            self._store.remove_group, key, snapshot.generation
        )
        if outcome is not Outcome.APPLIED:
            error = CoordinatorDeposed(f"a newer coordinator leads {key}")
            self.deposed(key, error)
            raise error

    def _short(self, full_name: str) -> str:
        prefix = self._config.prefix
        return full_name.removeprefix(f"{prefix}.") if prefix else full_name

    async def _without(self, groups: tuple[str, ...], queues: tuple[str, ...]) -> None:
        config = without(self._config, groups, queues)
        if config != self._config:
            await self._keep_config(config)

    # --- all of it --------------------------------------------------------------------------------

    @answers(DeleteTopology)
    async def delete_topology(self) -> None:
        """Remove everything of this topology but its actors. Cut off, it is to be called again.

        Raises LogAway when its folder cannot be removed now; all the rest is gone then.
        """
        try:
            await self._ready()
        except NotFound:
            if not self._ends.topology:
                raise
        if self._closing:
            await self._remove_folder()  # all else is gone: what is left are the actors
            return
        async with self._changing:
            await self._put_ends(Tombstones(self._ends.epoch, self._ends.generation, topology=True))
            for full_name, controller in list(self._groups.items()):
                await controller.close(graceful=True)
                self._groups.pop(full_name)
            await self._pool.forget([self._config.full_name(q) for q in self._config.queues])
            name = self._config.name
            for key in await self._thread.call_until_known(self._store.groups):
                if key.startswith(f"{name}/"):
                    await self._remove_rows(key)
                    self._high_water.forget(key)
            # Last, for it says that the topology is going.
            await self._remove_rows(name)
            others = await self._thread.call_until_known(self._store.groups)
            self._closing = True
            await self._thread.close()
            folder = self._config.topology_dir
            if not (others and list(folder.glob("registry.db*"))):
                self._doomed = folder
            await self._remove_folder()

    async def _remove_folder(self) -> None:
        """What would stay here of an old registry is in the way of a topology of the same name."""
        for pause_s in (*FOLDER_PAUSES_S, None):
            if self._doomed is None:
                return
            try:
                await off_loop(Files().remove_folder, self._doomed)
            except OSError as error:
                # Buffers that end just now may still write there.
                if pause_s is None:
                    raise LogAway(f"{self._doomed} cannot be removed now: {error}") from error
                await asyncio.sleep(pause_s)
            else:
                self._doomed = None
