"""Waiting for something to become true on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Return when `condition` holds; fail after a generous while."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.001)
