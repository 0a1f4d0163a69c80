"""Builds the placement status of each buffer: its home, its state there, and the free space of its
disk."""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.clock import monotonic_ms, wall_ms
from pxrs_ray.data.protocol import BufferStats
from pxrs_ray.status.places import MOVING, BufferStatus, SpreadStep, steps_to_spread
from pxrs_ray.topology.homes import Home

NOWHERE = Home("", "", "", 0)


def buffer_statuses(
    homing: HomeController, pool: BufferPool, stats: Mapping[int, BufferStats]
) -> tuple[BufferStatus, ...]:
    """Every buffer at this moment; `stats` are of those that have answered."""
    now_ms = wall_ms()
    counts = {index: each.refused for index, each in stats.items()}
    refused = pool.refusals.note(monotonic_ms(), counts)
    found = []
    for index in range(pool.count):
        home, has = homing.homes.slots.get(index, NOWHERE), stats.get(index)
        state, told = (MOVING, "") if homing.is_moving(index) else pool.state(index)
        since_ms = home.away_since_ms
        found.append(
            BufferStatus(
                index,
                state,
                told,
                home.host,
                home.node,
                home.disk,
                home.term,
                pool.lease_left_ms(index),
                has.bytes_kept if has is not None else None,
                has.disk_free_bytes if has is not None else None,
                max(0, now_ms - since_ms) / 1_000 if since_ms is not None else None,
                pool.replicas.statuses(index),
                refused.get(index, 0),
                has.last_refusal if has is not None else "",
            )
        )
    return tuple(found)


def uneven(homing: HomeController, pool: BufferPool) -> tuple[SpreadStep, ...]:
    """The moves that would spread the buffers over the nodes that live, as evenly as can be."""
    if pool.replicas.are_there:
        return ()
    moving = [index for index in range(pool.count) if homing.is_moving(index)]
    return steps_to_spread(homing.homes, homing.nodes, moving)
