"""`NewGroupCalls`: carries the steps by which a group is made; `make_group` decides them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.errors import AlreadyExists
from pxrs_ray.group.events import Raise, Seek
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Snapshot
from pxrs_ray.steps import Do
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.topology.group_making import (
    Floor,
    Found,
    GoOn,
    KeepConfig,
    LeadGroup,
    ListGroup,
    MakeRows,
    MoveTo,
    NewGroup,
    RaiseTo,
    ReadEnds,
    ReadFences,
)

AsyncCall = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class NewGroupCalls:
    """What a group that is made needs of its controller and of the topology."""

    key: str
    spec: GroupSpec
    host: GroupHost
    pool: BufferPool
    store: RegistryStore
    thread: StoreThread
    lead: AsyncCall
    keep_config: AsyncCall
    keep_listed: AsyncCall
    go_on: AsyncCall

    async def make(self, what: Do[Any]) -> Any:
        """Do what a step says."""
        spec, host = self.spec, self.host
        match what:
            case ReadEnds():
                return await self.pool.ends(spec.queue)
            case ReadFences():
                return await self.pool.fences(spec.queue, spec.group, spec.partitions)
            case MakeRows(rows, generation):
                snapshot = Snapshot(self.key, generation, tuple(rows.values()), (), 0)
                # Of what is there: it is ours, and the answer was lost; or a former try's.
                with suppress(AlreadyExists):
                    await self.thread.call_until_known(self.store.restore, snapshot, (), {})
            case LeadGroup():
                await self.lead()
                return Found(tuple(host.core.state.rows), bool(host.core.state.members))
            case MoveTo(offsets):
                await host.submit(Seek(dict(offsets), "begins here"))
            case RaiseTo(epochs):
                await host.submit(Raise(dict(epochs), "begins above former epochs"))
            case KeepConfig():
                await self.keep_config()
            case ListGroup():
                await self.keep_listed()
            case GoOn():
                await self.go_on()
            case _:
                raise AssertionError(f"nobody does {what}")
        return None


def new_group(spec: GroupSpec, floor: Floor) -> NewGroup:
    """What is to be made."""
    at_end = spec.config.start == "end" and spec.source is None
    return NewGroup(spec.group, spec.queue, spec.partitions, at_end, floor)
