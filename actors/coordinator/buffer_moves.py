"""`BufferMoves`: moves buffers' logs, and with them their homes, to other disks.

Rules of this file. `pxrs_ray.topology.move_steps` decides what a move does next, and which slots
leave nodes that are drained; each step is carried out here. One slot moves at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.log_receiver import forget_on, make_arrival
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import DeadlineExceeded, PxrsError
from pxrs_ray.log.log_copy import FileState
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.steps import carry
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, within
from pxrs_ray.topology.home_rounds import KeepHomes
from pxrs_ray.topology.homes import Home
from pxrs_ray.topology.move_steps import (
    CopyRound,
    DrainedSlots,
    EmptyOld,
    EndArrival,
    Install,
    LetGoOn,
    ListFiles,
    MakeArrival,
    Moved,
    PlaceAnew,
    StepBack,
    StopBuffer,
    move,
)

logger = logging.getLogger(__name__)

ROUND_WAIT_S = 3_600.0
STOP_WAIT_S = 30.0
INSTALL_WAIT_S = 120.0
BACK_WAIT_S = 30.0


class BufferMoves:
    """The moves of one coordinator incarnation; `folder` is the topology's."""

    def __init__(self, homing: HomeController, pool: BufferPool, folder: str) -> None:
        self._homing = homing
        self._pool = pool
        self._folder = folder
        self._one_at_a_time = asyncio.Lock()
        self._supervisor = Supervisor("moving buffers")
        self._going: asyncio.Task[None] | None = None
        self._leaving = DrainedSlots()
        self._reports: dict[int, Report] = {}
        # Of the slots that move: the buffer that has stopped.
        self._sources: dict[int, BufferClient] = {}

    async def move(self, slot: int, wanted: str | None = None) -> Moved:
        """Take a buffer to the node that is `wanted`, or to the emptiest one.

        Raises NotFound, UsageError; and why it stays where it is, which may pass.
        """
        async with self._one_at_a_time:
            node = await self._homing.place_for(slot, wanted)
            await self._homing.hold(slot)
            before = self._homing.homes.slots[slot]
            self._leaving.begins(slot)
            going = f"buffer {slot} moves from host {before.host} to {node.host}"
            self._reports[slot] = Report(Kind.BUFFER_MOVES, going, slot)
            try:
                steps = move(self._homing.rounds, slot, before, node, monotonic_ms)
                moved = await carry(steps, self._carry)
            except BaseException as error:
                why = f"buffer {slot} could not leave host {before.host}: {told(error)}"
                self._reports[slot] = Report(Kind.BUFFER_CANNOT_MOVE, why, slot)
                raise
            finally:
                self._sources.pop(slot, None)
                self._homing.release(slot)
            self._reports.pop(slot, None)
            logger.warning("buffer %d has moved: %s", slot, moved)
            return moved

    async def _carry(self, step: Any) -> Any:
        match step:
            case MakeArrival(node, slot):
                return await self._make_arrival(node, slot)
            case CopyRound(arrival, slot, last):
                source = self._sources[slot] if last else self._pool.client(slot)
                coming = arrival.round.remote(source.handle, last)
                return await _answer(coming, ROUND_WAIT_S, "copying")
            case StopBuffer(slot):
                self._sources[slot] = self._pool.hold(slot)
                await _answer(self._sources[slot].stop(), STOP_WAIT_S, "closing its logs")
            case StepBack(slot, left_for, moves):
                now = self._pool.grants.generation
                stepped = self._sources[slot].step_back(now, left_for, moves)
                await _answer(stepped, STOP_WAIT_S, "letting its logs step back")
            case ListFiles(slot):
                listed = self._sources[slot].slot_files()
                return await _answer(listed, STOP_WAIT_S, "listing its files")
            case Install(arrival):
                await _answer(arrival.install.remote(), INSTALL_WAIT_S, "installing the copy")
            case KeepHomes():
                await asyncio.shield(self._homing.keep(step.change))
            case _:
                return await self._end_of_move(step)
        return None

    async def _end_of_move(self, step: Any) -> None:
        match step:
            case LetGoOn(slot):
                self._pool.release(slot)
            case PlaceAnew(slot, home):
                self._pool.forget_actor(slot)
                await self._pool.place(slot, home)
                await self._pool.until_met(slot, BACK_WAIT_S)
            case EmptyOld(slot, before, left):
                forget = self._forget(slot, before, list(left))
                self._supervisor.once(f"emptying {before.host}", forget)
            case EndArrival(arrival, slot):
                self._end_arrival(arrival, slot)

    async def _make_arrival(self, node: str, slot: int) -> tuple[Any, str]:
        make = partial(make_arrival, node, self._folder, slot)
        arrival = await gcs.ask("make", make, gcs.MAKE_S)
        try:
            disk = await _answer(arrival.disk_id.remote(), STOP_WAIT_S, "the new disk's id")
        except BaseException:
            self._end_arrival(arrival, slot)
            raise
        return arrival, disk

    def _end_arrival(self, arrival: Any, slot: int) -> None:
        self._supervisor.once(f"ending the arrival of buffer {slot}", gcs.kill(arrival))

    async def _forget(self, slot: int, before: Home, left: list[FileState]) -> None:
        where = (before.node, self._folder, slot, self._pool.count)
        forget = partial(forget_on, *where, left)
        try:
            await _answer(await gcs.ask("make", forget), INSTALL_WAIT_S, "emptying the old disk")
        except (PxrsError, RayError) as error:
            logger.warning("the old logs of buffer %d stay on %s: %s", slot, before.host, error)

    # --- nodes that go ----------------------------------------------------------------------------

    def leave_nodes(self, nodes: Collection[str]) -> None:
        """Bring the buffers away that are at home on these nodes, one after the other.

        These are all nodes that are drained now: what was reported of others is over.
        """
        there = self._homing.at_home_on(nodes)
        for slot in self._leaving.drained(there):
            self._reports.pop(slot, None)
        slots = self._leaving.due(there, monotonic_ms())
        if slots and (self._going is None or self._going.done()):
            self._going = self._supervisor.once("leaving nodes", self._leave(slots))

    async def _leave(self, slots: list[int]) -> None:
        for slot in slots:
            try:
                await self.move(slot)
            except (PxrsError, RayError) as error:
                self._leaving.could_not(slot, monotonic_ms())
                home = self._homing.homes.slots[slot]
                why = (
                    f"buffer {slot} cannot leave host {home.host}, which is drained: "
                    f"{told(error)}. Its logs are away when the host goes: add a node, or stop the "
                    "drain"
                )
                self._reports[slot] = Report(Kind.BUFFER_CANNOT_MOVE, why, slot)
                logger.error("%s", why)

    def reports(self) -> list[Report]:
        """What moves, and what could not."""
        return [report for _, report in sorted(self._reports.items())]

    async def close(self) -> None:
        """Move nothing more; a move that is cut off leaves its buffer where it was."""
        await self._supervisor.close()


async def _answer(reference: Any, wait_s: float, what: str) -> Any:
    try:
        return await within(wait_s, reference)
    except TimeoutError:
        raise DeadlineExceeded(f"{what} was not over in {wait_s:g} s") from None
