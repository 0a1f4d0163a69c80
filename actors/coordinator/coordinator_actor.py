"""`CoordinatorActor`: the light actor class that Ray knows; it forwards to `Coordinator`.

A process that looks an actor up by name imports the module of its class. For the coordinator itself
that is most of PXRS, Arrow and NumPy: a command that asks for one number would load all of it. So
this module imports nothing heavy, and the coordinator is imported only where it runs.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors import names
from pxrs_ray.errors import DeadlineExceeded

if TYPE_CHECKING:
    from pxrs_ray.config import PxrsConfig

SEAL_KEY_BYTES = 32
GONE_WAIT_S = 30.0
LOOK_EVERY_S = 0.02

TOLD_CHARS_MAX = 100
METHODS = (
    "accept_buffer_loss",
    "apply",
    "buffer_started",
    "buffer_stats",
    "command",
    "config",
    "delete_group",
    "delete_queue",
    "delete_topology",
    "deployed",
    "document",
    "group",
    "group_spec",
    "group_status",
    "handler",
    "history",
    "keep_document",
    "kill_orphans",
    "member",
    "move_buffer",
    "note_deployed",
    "orphans",
    "ping",
    "plan_buffer_loss",
    "plan_drain",
    "plan_group_removal",
    "plan_move",
    "plan_queue_removal",
    "plan_topology_removal",
    "queue",
    "recover_registry",
    "shutdown",
    "status",
)


# What changes something: refused, or told to wait, while the registry is away. See `Changes`.
CHANGES = frozenset(
    (
        "accept_buffer_loss",
        "apply",
        "command",
        "delete_group",
        "delete_queue",
        "delete_topology",
        "group",
        "keep_document",
        "move_buffer",
        "note_deployed",
        "recover_registry",
        "shutdown",
    )
)
# What tells of an outage itself, once the coordinator has started.
STATUS = frozenset(("group_status", "status"))


def _told(name: str, arguments: tuple[Any, ...]) -> str:
    """A call as `pxrs status` names it while it waits."""
    words = [argument for argument in arguments if isinstance(argument, str | int)]
    if name == "command":
        group, command, *rest = words
        return " ".join(str(word) for word in (command, group, *rest))[:TOLD_CHARS_MAX]
    return " ".join(str(word) for word in (name.replace("_", " "), *words))[:TOLD_CHARS_MAX]


class CoordinatorActor:
    """Each of `METHODS` is the coordinator's method of that name."""

    def __init__(self, config: PxrsConfig, buffers: int, seal_key: bytes) -> None:
        from pxrs_ray.actors.coordinator.coordinator import Coordinator

        self.hosted = Coordinator(config, buffers, seal_key)

    async def alive(self) -> int:
        """The process id; answered at once, whatever the coordinator is at."""
        return os.getpid()


def _forward(name: str) -> Callable[..., Any]:
    async def call(self: CoordinatorActor, *arguments: Any) -> Any:
        hosted = self.hosted
        method = partial(getattr(hosted, name), *arguments)
        if name == "member":
            return await method()
        changes = name in CHANGES and "plan" not in arguments[1:2]
        if changes and not (name == "group" and hosted.has_group(str(arguments[0]))):
            return await hosted.changes.make(_told(name, arguments), method)
        if name in STATUS:
            await hosted.changes.ask(
                f"{name.replace('_', ' ')} of a coordinator that starts", hosted.ping
            )
            return await method()
        return await hosted.changes.ask(_told(name, arguments), method)

    call.__name__, call.__qualname__ = name, f"CoordinatorActor.{name}"
    return call


for _name in METHODS:
    setattr(CoordinatorActor, _name, _forward(_name))


def make_coordinator(config: PxrsConfig, buffers: int, node: str = "") -> bool:
    """Create the topology's coordinator actor; False when one runs already, or is being made.

    On the `node` it stays: it is started again there, and nowhere else. '' is any node.
    """
    where = NodeAffinitySchedulingStrategy(node, soft=False) if node else None
    made = ray.remote(CoordinatorActor).options(
        name=names.coordinator(config.name),
        namespace=names.NAMESPACE,
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=10_000,
        num_cpus=0,
        scheduling_strategy=where,
    )
    try:
        # Ray makes one of a name: of several who try at once, one alone is its maker.
        made.remote(config, buffers, secrets.token_bytes(SEAL_KEY_BYTES))
    except ValueError:
        ray.get_actor(names.coordinator(config.name), namespace=names.NAMESPACE)
        return False
    return True


def remove_coordinator(topology: str) -> None:
    """End the coordinator for good, so that the next one is made with this job's code."""
    name = names.coordinator(topology)
    ray.kill(ray.get_actor(name, namespace=names.NAMESPACE))
    end_s = time.monotonic() + GONE_WAIT_S
    while _is_there(name):
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"the coordinator of {topology} did not end in {GONE_WAIT_S} s")
        time.sleep(LOOK_EVERY_S)


def _is_there(name: str) -> bool:
    try:
        ray.get_actor(name, namespace=names.NAMESPACE)
    except ValueError:
        return False
    return True
