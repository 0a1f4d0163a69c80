"""A lease that never ends, for buffers that have no coordinator."""

from __future__ import annotations

from typing import Protocol

from pxrs_ray.data.protocol import BufferGrant, BufferInfo

FOR_EVER_MS = 1 << 50


class Pinged(Protocol):
    """A buffer in this process."""

    async def ping(self, grant: BufferGrant | None = None) -> BufferInfo: ...


def for_ever(info: BufferInfo) -> BufferGrant:
    """What lets the process that told `info` serve for as long as it lives."""
    return BufferGrant(
        max(1, info.generation), max(1, info.term), FOR_EVER_MS, info.monotonic_ms, info.incarnation
    )


async def let_serve(buffer: Pinged) -> None:
    """Grant a buffer its lease."""
    await buffer.ping(for_ever(await buffer.ping()))
