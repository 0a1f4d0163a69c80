"""`FetchClient`: carries one reader's fetches to one buffer. Runs in the reader's process. Large
answers come through Ray, which moves them without a copy; small ones through a local socket where
the buffer is on this node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.buffer.local_socket import (
    REPLY_BYTES_MAX,
    AsyncSocketClient,
    connect,
    reply_bytes,
)
from pxrs_ray.data.protocol import Fetched, Refused
from pxrs_ray.errors import BufferAway
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

ASK_AGAIN_S = 60.0


class FetchClient:
    """A buffer's handle, and a socket to it. For one event loop; close it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._line: AsyncSocketClient | None = None
        self._supervisor = Supervisor("a line to a buffer")
        self._asking: asyncio.Task[None] | None = None
        self._much = False

    def fetch(self, *arguments: Any) -> Awaitable[list[Fetched | Refused]]:
        """Make the call at once; it takes the arguments of `Buffer.fetch`, by position.

        Raises what Ray raises for a call of an actor.
        """
        if self._asking is None:
            self._asking = self._supervisor.keep("asking for one", self._ask)
        line = self._line
        if line is None or line.broken or self._much:
            return self._by_ray(self._handle.fetch.remote(*arguments))
        return self._by_line(line.call("fetch", *arguments), arguments)

    async def _by_ray(self, reference: Any) -> list[Fetched | Refused]:
        found: list[Fetched | Refused] = await reference
        self._much = reply_bytes(found) > REPLY_BYTES_MAX
        return found

    async def _by_line(self, answer: Awaitable[Any], arguments: Any) -> list[Fetched | Refused]:
        try:
            found: list[Fetched | Refused] | None = await answer
        except BufferAway:
            found, self._asking = None, None
        if found is None:  # too much for a line, or no line any more
            return await self._by_ray(self._handle.fetch.remote(*arguments))
        return found

    async def _ask(self) -> None:
        """Ask for a line; without one, or while there is none yet, Ray carries everything."""
        connected = None
        while connected is None:
            try:
                connected = connect(await self._handle.line.remote())
            except RayError as error:
                logger.info("asked for a line: %s", error)
            if connected is None:  # of another node, or just gone
                await asyncio.sleep(ASK_AGAIN_S)
        self._line = await AsyncSocketClient.to(connected)

    def close(self) -> None:
        """End the line."""
        if self._asking is not None:
            self._asking.cancel()
        if self._line is not None:
            self._line.close()
