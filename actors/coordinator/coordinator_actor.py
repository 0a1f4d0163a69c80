"""`CoordinatorActor`: the light actor class that Ray knows; its `Coordinator` answers.

A process that looks an actor up by name imports the module of its class. For the coordinator itself
that is most of PXRS, Arrow and NumPy: a command that asks for one number would load all of it. So
this module imports nothing heavy, and the coordinator is imported only where it runs.
"""

from __future__ import annotations

import os
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster.coordinator_request import Request, WhileAway
from pxrs_ray.actors.cluster.named_actors import kill_actor, make_actor, runs
from pxrs_ray.errors import DeadlineExceeded

if TYPE_CHECKING:
    from pxrs_ray.config import PxrsConfig

A = TypeVar("A")

SEAL_KEY_BYTES = 32
GONE_WAIT_S = 30.0
LOOK_EVERY_S = 0.02


class CoordinatorActor:
    """Answers requests of whoever has its handle."""

    def __init__(self, config: PxrsConfig, buffers: int, seal_key: bytes) -> None:
        from pxrs_ray.actors.coordinator.coordinator import Coordinator

        self.hosted = Coordinator(config, buffers, seal_key)

    async def alive(self) -> int:
        """The process id; answered at once, whatever the coordinator is at."""
        return os.getpid()

    async def answer(self, request: Request[A]) -> A:
        """Answer a request, whether the registry is there or away: within seconds, or when done."""
        hosted = self.hosted
        carry_out = partial(hosted.answer, request)
        match hosted.while_away(request):
            case WhileAway.GOES_ON:
                return await carry_out()
            case WhileAway.CHANGES:
                return await hosted.changes.make(request.told(), carry_out)
            case WhileAway.TELLS:
                what = f"{request.told()} of a coordinator that starts"
                await hosted.changes.ask(what, hosted.ping)
                return await carry_out()
            case WhileAway.ASKED:
                return await hosted.changes.ask(request.told(), carry_out)


def make_coordinator(config: PxrsConfig, buffers: int, node: str = "") -> bool:
    """Create the topology's coordinator actor; False when one runs already, or is being made.

    On the `node` it stays: it is started again there, and nowhere else. '' is any node.
    """
    options = {
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": 10_000,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False) if node else None,
    }
    name, seal_key = names.coordinator(config.name), secrets.token_bytes(SEAL_KEY_BYTES)
    try:
        # Ray makes one of a name: of several who try at once, one alone is its maker.
        make_actor(CoordinatorActor, name, options, config, buffers, seal_key)
    except ValueError:
        if not runs(config.name):
            raise
        return False
    return True


def remove_coordinator(topology: str) -> None:
    """End the coordinator for good, so that the next one is made with this job's code."""
    kill_actor(names.coordinator(topology))
    end_s = time.monotonic() + GONE_WAIT_S
    while runs(topology):
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"the coordinator of {topology} did not end in {GONE_WAIT_S} s")
        time.sleep(LOOK_EVERY_S)
