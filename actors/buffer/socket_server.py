"""`SocketServer`: where a buffer takes the connections of its callers: of its node, and of others.

Rules of this file. It carries the same calls as Ray does, each of which may be repeated, and only
shortens the path. What is said is `link_messages`, who may say it `link_door`, over the network
inside of `link_tls` where Ray uses TLS. The network's door is opened when somebody of another node
asks for it through Ray, on the node's Ray address; it is closed when the option says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pxrs_ray.actors.buffer import local_socket, tcp_socket
from pxrs_ray.actors.buffer.server_end import ServerEnd
from pxrs_ray.data.link_door import LinkOffer, Tickets
from pxrs_ray.data.link_ports import LinkPorts
from pxrs_ray.data.link_tls import tls_files

logger = logging.getLogger(__name__)

# Strangers can make us say something that often, and no oftener.
TELL_EVERY_S = 10.0

# What is received at once, of whatever is not large.
STAGE_BYTES = 256 << 10

# See `LinkCalls` for what they may answer.
Methods = Mapping[str, Callable[..., Any]]


class SocketServer:
    """The buffer's end: calls the buffer's `append` and `fetch` on their event loop."""

    def __init__(
        self,
        methods: Methods,
        address: Callable[[], str] = str,
        counts: Counter[str] | None = None,
    ) -> None:
        """`address` answers the node's own; '' is none, and no network's door.

        `counts` gets how many `links` there are, their `link_calls`, and the `strangers_refused`.
        """
        self.tickets = Tickets()
        self.ends: set[ServerEnd] = set()
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.context: ssl.SSLContext | None = None
        # One for all ends: what is received is taken out of it before anything else is.
        self.stage = bytearray(STAGE_BYTES)
        self._methods = methods
        self._address = address
        self._ports: LinkPorts | None = None
        self._doors: dict[bool, tuple[asyncio.Server, str]] = {}
        self._told_s = 0.0

    def strangers(self, *, network: bool) -> int:
        """How many connections there are of which it is not known yet whose they are."""
        return sum(end.stranger and end.network == network for end in self.ends)

    async def open(self, *, much: bool = False) -> LinkOffer | None:
        """Leave for a process of this node to connect once; None where there are no sockets."""
        if sys.platform != "linux":
            return None
        if False not in self._doors:
            found, name = local_socket.listening_here()
            await self._listen(found, name, network=False)
        return self.tickets.offer(self._doors[False][1], time.monotonic(), much=much)

    async def open_network(self, *, much: bool) -> LinkOffer | None:
        """Leave for a process of another node to connect once; None where that is not to be."""
        if sys.platform != "linux" or self._ports is None or not (address := self._address()):
            return None
        try:
            files = tls_files(os.environ)
            fingerprint = b"" if files is None else files.fingerprint()
            self.context = None if files is None else files.context(server_side=True)
            if True not in self._doors:
                found = tcp_socket.listening(address, self._ports)
                where = tcp_socket.told(address, found.getsockname()[1])
                await self._listen(found, where, network=True)
        except OSError as error:
            self.tell("no links between nodes: %s", error)
            return None
        where = self._doors[True][1]
        return self.tickets.offer(
            where, time.monotonic(), network=True, much=much, fingerprint=fingerprint
        )

    async def _listen(self, found: socket.socket, where: str, *, network: bool) -> None:
        loop = asyncio.get_running_loop()
        make = loop.create_server if network else loop.create_unix_server

        def begun() -> ServerEnd:
            return ServerEnd(self, self._methods, network=network)

        made = await make(begun, sock=found, backlog=local_socket.BACKLOG)
        self._doors[network] = made, where

    def allow(self, ports: LinkPorts | None) -> None:
        """Take connections of other nodes on these ports; None: on none."""
        if ports != self._ports:
            self._ports = ports
            self._close_door(network=True)

    def tell(self, text: str, *about: object) -> None:
        """Say it in the log, unless something was said a moment ago."""
        now_s = time.monotonic()
        if now_s - self._told_s >= TELL_EVERY_S or not self._told_s:
            self._told_s = now_s
            logger.warning(text, *about)

    def close(self) -> None:
        """Take no more calls, and let those who wait call through Ray."""
        for network in (False, True):
            self._close_door(network=network)

    def _close_door(self, *, network: bool) -> None:
        if (door := self._doors.pop(network, None)) is not None:
            door[0].close()
        for end in [end for end in self.ends if end.network == network]:
            end.hang_up()
