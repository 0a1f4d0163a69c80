"""`Deletion`: how a coordinator removes a group, a queue, or a whole topology. A part of
`Coordinator`.

Rules of this file. `pxrs_ray.topology.removing` decides the steps; this carries them. The document
`ends` names what is to be removed before any of it is touched, and until all of it is gone. A
removal that is cut off anywhere is finished by the next coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pxrs_ray.actors.coordinator import replicas_document
from pxrs_ray.actors.coordinator.orphans import end_orphans_of, orphans_of
from pxrs_ray.actors.coordinator.removal_plans import RemovalPlans
from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.actors.coordinator.topology_requests import (
    DeleteGroup,
    DeleteQueue,
    DeleteTopology,
    GetOrphans,
    KillOrphans,
)
from pxrs_ray.actors.names import feeds_of, streams_of
from pxrs_ray.config.withheld import without
from pxrs_ray.errors import CoordinatorDeposed, LogAway, NotFound
from pxrs_ray.files import Files
from pxrs_ray.model import Outcome
from pxrs_ray.steps import Do, carry
from pxrs_ray.supervision.supervisor import off_loop
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

FOLDER_PAUSES_S = (0.1, 0.4, 1.0)


class Deletion(RemovalPlans):
    """See the rules at the head of this file."""

    _closing: bool
    _doomed: Path | None = None

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
                gaps = self._gaps_of(name)
                await self._begin_group_end(name)
                if gaps is not None:
                    await self._begin_queue_end(gaps)
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
                # The queue itself is last: whoever calls again after a fault meets the rest.
                going = (*self._beside(name).queues, name)
                for group, one in list(self._config.groups.items()):
                    if one.queue in going:
                        await self._begin_group_end(group)
                        await self._finish_removals()
                for queue in going:
                    await self._begin_queue_end(queue)
            await self._finish_removals()

    async def _begin_queue_end(self, name: str) -> None:
        full_name = self._config.full_name(name)
        life = self._life(full_name)
        await carry(begin_queue_end(self._ends, full_name, life), self._remove)

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
