"""`buffer_problems`: what is wrong with the buffers of a topology: a part of the one list. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pxrs_ray.status.answers import TopologyStatus
from pxrs_ray.status.places import DEPOSED, by_host
from pxrs_ray.status.problem import Kind, Problem
from pxrs_ray.status.units import size_text

MOVES_SHOWN = 5
# A disk is told of before it is full, and again when it may be full at any moment.
DISK_FILLS_BYTES, DISK_FULL_BYTES = 1_000_000_000, 100_000_000


def buffer_problems(status: TopologyStatus) -> Iterator[Problem]:
    """Whether each buffer has what it serves by, and whether they are spread."""
    on = status.topology
    for place in status.places:
        if place.state == DEPOSED:
            yield Problem(
                Kind.BUFFER_DEPOSED,
                f"buffer {place.buffer}",
                place.text,
                "its registry went back, or two clusters share one: restore the newest registry, "
                "or go on with this one: `pxrs recover registry FILE --accept-loss`",
            )
        if place.free_bytes is not None and place.free_bytes < DISK_FILLS_BYTES:
            full = place.free_bytes < DISK_FULL_BYTES
            yield Problem(
                Kind.DISK_FULL if full else Kind.DISK_FILLS,
                f"buffer {place.buffer}",
                f"its disk on {place.host or place.short_node} has {size_text(place.free_bytes)} "
                "left: appends are refused when it is full",
                "free the disk, set retention of its queues, or move its logs: "
                f"`pxrs move {place.buffer} -t {on}`",
            )
        if place.refused:
            yield Problem(
                Kind.APPENDS_REFUSED,
                f"buffer {place.buffer}",
                f"refused {place.refused:,} appends in the last minutes, the last one of "
                f"{place.last_refusal}",
                "a partition that is full has a reader that is behind (`pxrs lag GROUP "
                f"-t {on}`) or a group that nobody needs (`pxrs group delete GROUP -t {on}`); a "
                f"disk that is full is freed, or left: `pxrs move {place.buffer} -t {on}`",
            )
    if status.uneven:
        hosts = by_host(status.places)
        shown = ", ".join(f"host {host} has {len(has)}" for host, has in hosts.items())
        bare = sorted({step.target for step in status.uneven} - set(hosts))
        shown += "".join(f", host {host} has none" for host in bare)
        moves = [f"`pxrs move {s.buffer} {s.target} -t {on}`" for s in status.uneven]
        yield Problem(
            Kind.BUFFERS_UNEVEN,
            "buffers",
            f"not spread as evenly as they could be: {shown}. The loss of one host stops more "
            "partitions than it has to",
            ", ".join(moves[:MOVES_SHOWN]) + "; what that means is shown before by "
            f"`pxrs plan --move {status.uneven[0].buffer} -t {on}`",
        )
