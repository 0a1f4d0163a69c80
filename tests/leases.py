"""Leases that never end, for buffers and workers that have no coordinator."""

from __future__ import annotations

import threading
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


class AlwaysHeld:
    """What a worker needs of a member's lease, when nobody can take it."""

    begin_until_s = float("inf")

    def may_begin(self, stopping: threading.Event) -> bool:
        """Unless it is to end."""
        return not stopping.is_set()


async def let_serve(buffer: Pinged) -> None:
    """Grant a buffer its lease."""
    await buffer.ping(for_ever(await buffer.ping()))
