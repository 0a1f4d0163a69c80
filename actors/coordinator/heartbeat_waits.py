"""`HeartbeatWaits`: which assignment each member of a group has seen, and the heartbeats that wait
for a newer one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.model import Generation, MemberId
from pxrs_ray.supervision.supervisor import within

TOLD_LOOK_S = 0.005


class HeartbeatWaits:
    """For one event loop. Every wait in it has an end of its own."""

    def __init__(self) -> None:
        self._seen: dict[MemberId, tuple[Generation, int]] = {}
        self._changed: dict[MemberId, asyncio.Event] = {}

    def note_seen(self, member: MemberId, seen: tuple[Generation, int]) -> None:
        """A live member has said up to which (generation, sequence) it knows its assignment."""
        self._seen[member] = seen

    async def change(self, member: MemberId, wait_s: float) -> None:
        """Return when the member's assignment has changed, or its membership is over.

        Raises TimeoutError after `wait_s`.
        """
        changed = self._changed.setdefault(member, asyncio.Event())
        await within(wait_s, changed.wait())

    def changed(self, member: MemberId) -> None:
        """Have whatever waits for the member look again."""
        event = self._changed.pop(member, None)
        if event is not None:
            event.set()

    def ended(self, member: MemberId) -> None:
        """An incarnation of the member is no member any more."""
        self._seen.pop(member, None)
        self.changed(member)

    def all_changed(self) -> None:
        """Have everything that waits look again."""
        for member in list(self._changed):
            self.changed(member)

    async def told(self, core: Callable[[], GroupCoordinator], timeout_s: float) -> bool:
        """Return when every live member has its newest assignment; False when that takes longer."""
        end_s = time.monotonic() + timeout_s
        while not self._all_told(core()):
            if time.monotonic() > end_s:
                return False
            await asyncio.sleep(TOLD_LOOK_S)
        return True

    def _all_told(self, core: GroupCoordinator) -> bool:
        generation = core.state.generation
        return all(
            self._seen.get(slot.member.member, (0, 0)) >= (generation, slot.sequence)
            for slot in core.live_slots()
        )
