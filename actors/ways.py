"""Opens the ways that a new process will need, before anything waits for it.

Ray connects two actors at the first call between them, which takes longer than many calls. A
consumer that opens its ways before it joins costs a moved partition none of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.failures import find_buffer
from pxrs_ray.errors import PxrsError
from pxrs_ray.supervisor import beside

OPEN_WAIT_S = 1.0


async def open_ways(topology: str, buffers: int) -> None:
    """Call the coordinator and every buffer once; who is away is not waited for."""
    calls = []
    for index in range(buffers):
        with suppress(PxrsError):
            calls.append(find_buffer(topology, index).ping.remote())
    with suppress(ValueError):
        name = names.coordinator(topology)
        calls.append(ray.get_actor(name, namespace=names.NAMESPACE).deployed.remote())
    opening = [beside(_quietly, call) for call in calls]
    if opening:
        _, slow = await asyncio.wait(opening, timeout=OPEN_WAIT_S)
        for call in slow:
            call.cancel()


async def _quietly(call: Awaitable[Any]) -> None:
    with suppress(PxrsError, RayError):
        await call
