"""Warm-up of a new consumer: one call to the coordinator and to each buffer before it joins.

Ray connects two actors at the first call between them, which takes longer than many calls. After
the warm-up a partition that moves to this consumer does not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.buffer_clients import find_buffer_on_loop
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.errors import PxrsError
from pxrs_ray.supervision.supervisor import beside

OPEN_WAIT_S = 1.0


async def open_ways(topology: str, buffers: int) -> None:
    """Call the coordinator and every buffer once; one that is away is not waited for."""
    calls: list[Awaitable[Any]] = []
    for index in range(buffers):
        with suppress(PxrsError):
            calls.append(
                BufferClient(await find_buffer_on_loop(topology, index, OPEN_WAIT_S)).ping()
            )
    with suppress(PxrsError):
        coordinator = await gcs.find(names.coordinator(topology), OPEN_WAIT_S)
        if coordinator is not None:
            calls.append(coordinator.alive.remote())
    opening = [beside(_quietly, call) for call in calls]
    if opening:
        _, slow = await asyncio.wait(opening, timeout=OPEN_WAIT_S)
        for call in slow:
            call.cancel()


async def _quietly(call: Awaitable[Any]) -> None:
    with suppress(PxrsError, RayError):
        await call
