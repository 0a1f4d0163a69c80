"""`CoordinatorActor`: the coordinator as Ray knows it. Hosts `actors/coordinator.py`.

Whoever looks an actor up by name imports the module of its class, which for the coordinator itself
is most of PXRS, Arrow and NumPy: a command that asks for one number would pay for all of it. So
this module imports nothing heavy, and the coordinator is imported where it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray

from pxrs_ray.actors import names

if TYPE_CHECKING:
    from pxrs_ray.config import PxrsConfig

METHODS = (
    "apply",
    "buffer_stats",
    "command",
    "config",
    "deployed",
    "document",
    "group",
    "group_spec",
    "group_status",
    "handler",
    "history",
    "keep_document",
    "member",
    "note_deployed",
    "ping",
    "queue",
    "shutdown",
    "status",
)


class CoordinatorActor:
    """Each of `METHODS` is the coordinator's method of that name."""

    def __init__(self, config: PxrsConfig, buffers: int) -> None:
        from pxrs_ray.actors.coordinator import Coordinator

        self.hosted = Coordinator(config, buffers)


def _forward(name: str) -> Callable[..., Any]:
    async def call(self: CoordinatorActor, *arguments: Any) -> Any:
        return await getattr(self.hosted, name)(*arguments)

    call.__name__, call.__qualname__ = name, f"CoordinatorActor.{name}"
    return call


for _name in METHODS:
    setattr(CoordinatorActor, _name, _forward(_name))


def make_coordinator(config: PxrsConfig, buffers: int) -> Any:
    """Create the topology's coordinator actor, or get the one that runs."""
    return (
        ray.remote(CoordinatorActor)
        .options(
            name=names.coordinator(config.name),
            namespace=names.NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=10_000,
            num_cpus=0,
        )
        .remote(config, buffers)
    )
