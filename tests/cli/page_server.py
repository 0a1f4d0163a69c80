"""The live page, served by a thread with a loop of its own: for a browser beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from pxrs_ray.dashboard.server import Server
from pxrs_ray.dashboard.shown_topology import PageSources

WAIT_S = 40
TOKEN = "s3cret"


@contextmanager
def page_of(sources: PageSources, interval_s: float = 0.1) -> Iterator[str]:
    """Its address, with the token."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = web.AppRunner(Server(sources, TOKEN, interval_s).app(), shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/?token={TOKEN}"

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(WAIT_S)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()
