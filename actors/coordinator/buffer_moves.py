"""`BufferMoves`: moves a buffer's logs, and with them its home, to another disk.

Rules of this file. The logs are copied while the buffer serves, round after round, until little is
left; then it stops, the rest is copied, and the copy is made durable. Only then does the registry
say that the slot is at home there, under the next term: until that moment everything can be given
up, and the buffer goes on where it was. The old disk is emptied last. Nothing else decides about a
slot that moves, and one slot moves at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.buffer.log_receiver import forget_on, make_arrival
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import DeadlineExceeded, PxrsError
from pxrs_ray.log.log_copy import FileState
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, within
from pxrs_ray.topology.homes import Home, NodeSeen

logger = logging.getLogger(__name__)

# What is left to copy when the buffer stops takes about a tenth of a second.
LITTLE_BYTES = 16 << 20
ROUNDS_MAX = 8
ROUND_WAIT_S = 3_600.0
STOP_WAIT_S = 30.0
INSTALL_WAIT_S = 120.0
BACK_WAIT_S = 30.0
AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Moved:
    """A finished move of a buffer: from which host to which, how much was copied, and for how long
    it served nobody."""

    buffer: int
    source: str
    target: str
    copied_bytes: int
    pause_ms: int


class BufferMoves:
    """The moves of one coordinator incarnation; `folder` is the topology's."""

    def __init__(self, homing: HomeController, pool: BufferPool, folder: str) -> None:
        self._homing = homing
        self._pool = pool
        self._folder = folder
        self._one_at_a_time = asyncio.Lock()
        self._supervisor = Supervisor("moving buffers")
        self._leaving: asyncio.Task[None] | None = None
        self._reports: dict[int, Report] = {}
        # Slots that are on a node which is drained, and could not leave it.
        self._stuck: set[int] = set()
        self._again_s: dict[int, float] = {}

    async def move(self, slot: int, wanted: str | None = None) -> Moved:
        """Take a buffer to the node that is `wanted`, or to the emptiest one.

        Raises NotFound, UsageError; and why it stays where it is, which may pass.
        """
        async with self._one_at_a_time:
            node = await self._homing.place_for(slot, wanted)
            await self._homing.hold(slot)
            before = self._homing.homes.slots[slot]
            self._stuck.discard(slot)
            going = f"buffer {slot} moves from host {before.host} to {node.host}"
            self._reports[slot] = Report(Kind.BUFFER_MOVES, going, slot)
            try:
                moved = await self._move(slot, before, node)
            except BaseException as error:
                why = f"buffer {slot} could not leave host {before.host}: {told(error)}"
                self._reports[slot] = Report(Kind.BUFFER_CANNOT_MOVE, why, slot)
                raise
            finally:
                self._homing.release(slot)
            self._reports.pop(slot, None)
            logger.warning("buffer %d has moved: %s", slot, moved)
            return moved

    async def _move(self, slot: int, before: Home, node: NodeSeen) -> Moved:
        if node.disk == before.disk:  # a disk that both have: nothing is to be copied
            return await self._settle(slot, before, node, None)
        make = partial(make_arrival, node.node, self._folder, slot)
        arrival = await gcs.ask("make", make, gcs.MAKE_S)
        try:
            disk = await _answer(arrival.disk_id.remote(), STOP_WAIT_S, "the new disk's id")
            return await self._settle(slot, before, replace(node, disk=disk), arrival)
        finally:
            self._supervisor.once(f"ending the arrival of buffer {slot}", gcs.kill(arrival))

    async def _settle(self, slot: int, before: Home, node: NodeSeen, arrival: Any) -> Moved:
        copied = 0
        left: list[FileState] = []
        if arrival is not None:
            copied = await self._rounds(slot, arrival)
        source, began_ms = self._pool.hold(slot), monotonic_ms()
        try:
            await _answer(source.stop(), STOP_WAIT_S, "closing its logs")
            if arrival is not None:
                last = arrival.round.remote(source.handle, True)
                copied += await _answer(last, ROUND_WAIT_S, "copying")
                left = await _answer(source.slot_files(), STOP_WAIT_S, "listing its files")
                await _answer(arrival.install.remote(), INSTALL_WAIT_S, "installing the copy")
            home = await asyncio.shield(self._homing.moved(slot, node))
        except BaseException:
            self._pool.release(slot)  # it begins anew where it was
            raise
        # From here on the new home holds; what fails is done again by the next round of homes.
        self._pool.forget_actor(slot)
        await self._pool.place(slot, home)
        await self._pool.until_met(slot, BACK_WAIT_S)
        pause_ms = monotonic_ms() - began_ms
        if arrival is not None:
            self._supervisor.once(f"emptying {before.host}", self._forget(slot, before, left))
        return Moved(slot, before.host, home.host, copied, pause_ms)

    async def _rounds(self, slot: int, arrival: Any) -> int:
        """Copy while the buffer serves, until little is left, or no less is left each time."""
        copied, last = 0, 0
        for number in range(ROUNDS_MAX):
            source = self._pool.client(slot).handle
            taken = await _answer(arrival.round.remote(source, False), ROUND_WAIT_S, "copying")
            copied += taken
            if taken <= LITTLE_BYTES or (number > 1 and taken >= last):
                break
            last = taken
        return copied

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
        for slot in self._stuck.difference(there):
            self._stuck.discard(slot)
            self._reports.pop(slot, None)
            self._again_s.pop(slot, None)
        slots = [slot for slot in there if self._is_due(slot)]
        if slots and (self._leaving is None or self._leaving.done()):
            self._leaving = self._supervisor.once("leaving nodes", self._leave(slots))

    def _is_due(self, slot: int) -> bool:
        return monotonic_ms() >= self._again_s.get(slot, 0.0) * 1_000

    async def _leave(self, slots: list[int]) -> None:
        for slot in slots:
            try:
                await self.move(slot)
            except (PxrsError, RayError) as error:
                self._again_s[slot] = monotonic_ms() / 1_000 + AGAIN_S
                home = self._homing.homes.slots[slot]
                self._stuck.add(slot)
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
