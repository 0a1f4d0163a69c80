"""`BufferLink`: one caller's connection to one buffer, made where it is worth it, and made anew.

Rules of this file. Where a buffer listens is asked through Ray, which says who is who; so is the
ticket that a connection needs. Until there is a connection, and whenever there is none, calls go
through Ray. `LinkPlan` says when one is asked for, and when again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.buffer import local_socket, tcp_socket
from pxrs_ray.actors.buffer.answer_poll import AnswerPoll
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.data.link_messages import VERSION
from pxrs_ray.data.link_plan import SPREAD_LEAST, SPREAD_MOST, LinkPlan
from pxrs_ray.data.link_tls import TlsStream, tls_files
from pxrs_ray.errors import ProtocolError

if TYPE_CHECKING:
    from pxrs_ray.data.link_door import LinkOffer

logger = logging.getLogger(__name__)


class LinkWay(Enum):
    """Where a connection goes, and what it carries."""

    HERE = "on this node"
    HERE_MUCH = "on this node, for what is large"
    SMALL = "to another node"
    MUCH = "to another node, for what is large"

    @property
    def is_here(self) -> bool:
        """Whether it stays on this node."""
        return self in (LinkWay.HERE, LinkWay.HERE_MUCH)

    @property
    def is_much(self) -> bool:
        """Whether it carries what is large."""
        return self in (LinkWay.MUCH, LinkWay.HERE_MUCH)


class BufferLink:
    """See the rules at the head of this file. Any thread may use it, unless `hears` is a loop."""

    def __init__(
        self, handle: Any, hears: AnswerPoll | asyncio.AbstractEventLoop | None, way: LinkWay
    ) -> None:
        self.elsewhere = False
        self.socket: SocketClient | None = None
        # What is made, and waits for its event loop.
        self._coming: socket.socket | None = None
        self._handle = handle
        self._hears = hears
        self._way = way
        self._lock = threading.RLock()  # a forgotten client may be ended in the middle of a call
        self._closed = False
        self._plan = LinkPlan(rests=not way.is_here)

    def is_coming(self) -> bool:
        """Have a connection made before there are calls for it: whether there will be one soon."""
        if self._line(self._plan.wanted) is not None:
            return False
        return self._plan.asking or self.socket is not None

    def line(self) -> SocketClient | None:
        """The connection, once there is one; until then calls go through Ray. On this node what is
        large asks for one at once: a single call of it through Ray costs more than a connection.
        """
        much_here = self._way is LinkWay.HERE_MUCH
        return self._line(self._plan.wanted if much_here else self._plan.called)

    def _line(self, ask_now: Callable[[float], bool]) -> SocketClient | None:
        line = self.socket
        if line is not None and not line.broken:
            if line.welcome:
                return line
            line.check_welcome_in_time()
            return None
        if self._closed or self._hears is None:
            return None
        with self._lock:
            if line is not None and self.socket is line:
                self.socket = None
                self._rest_after(line)
            if self.socket is not None:  # one was made meanwhile
                return None
            if not ask_now(time.monotonic()):
                return None
        try:
            self._ask().future().add_done_callback(self._told)
        except Exception:  # noqa: BLE001 - the call that comes now meets the same
            self._none()
        return None

    def _ask(self) -> Any:
        return self._handle.line.remote(not self._way.is_here, self._way.is_much)

    def _rest_after(self, line: SocketClient) -> None:
        """With the lock held: `line` has broken."""
        self.elsewhere = False  # who is started anew may be nearer
        now_s = time.monotonic()
        self._plan.broke(now_s, now_s - line.since_s, _spread(), welcome=line.welcome)

    def _told(self, done: Future[LinkOffer | None]) -> None:
        """The buffer has said where it listens. Called on a thread of Ray's: nothing waits."""
        offer = done.result() if done.exception() is None else None
        try:
            connected = self._connected(offer)
        except Exception as error:  # noqa: BLE001 - Ray carries the calls, whatever it is
            logger.warning("no link %s: %s", self._way.value, error)
            connected = None
        if offer is None or connected is None:
            self.elsewhere = self._way is LinkWay.HERE and done.exception() is None
            self._none()
        elif self._hears is None or isinstance(self._hears, AnswerPoll):
            self.take(connected, offer)
        else:
            with self._lock:
                if self._closed:
                    connected.close()
                    return
                self._coming = connected
            try:
                self._hears.call_soon_threadsafe(self.take, connected, offer)
            except RuntimeError:  # the loop is closed: nobody will take it
                connected.close()

    def _connected(self, offer: LinkOffer | None) -> socket.socket | None:
        if offer is None:
            return None
        if offer.version != VERSION:
            logger.warning(
                "a buffer speaks version %d of links and this process %d: calls go through Ray",
                offer.version,
                VERSION,
            )
            return None
        if self._way.is_here:
            found = local_socket.connect(offer.address)
            if found is not None and self._way.is_much:
                local_socket.widen(found)
            return found
        if (tls_files(os.environ) is None) != (not offer.fingerprint):
            raise ProtocolError("one end uses TLS and the other does not: see RAY_USE_TLS of both")
        return tcp_socket.begin_to_connect(offer.address)

    def _none(self) -> None:
        self._plan.found_none(time.monotonic(), _spread())

    def take(self, connected: socket.socket, offer: LinkOffer) -> None:
        """Go on with a connection that is made, or being made."""
        with self._lock:
            self._plan.took()
            self._coming = None
            if self._closed or self._hears is None:  # closed meanwhile
                connected.close()
                return
            try:
                tls = self._tls(offer)
                much = self._way.is_much
                self.socket = SocketClient(connected, offer, self._hears, tls, much=much)
            except OSError as error:
                logger.warning("no link %s: %s", self._way.value, error)
                connected.close()
                self._none()

    @staticmethod
    def _tls(offer: LinkOffer) -> TlsStream | None:
        files = tls_files(os.environ) if offer.fingerprint else None
        if files is None:
            return None
        context = files.context(server_side=False)
        return TlsStream(context, server_side=False, fingerprint=offer.fingerprint)

    def close(self) -> None:
        """End the connection; calls that are made after this go through Ray."""
        with self._lock:
            self._closed = True
            line, self.socket = self.socket, None
            coming, self._coming = self._coming, None
        if coming is not None:
            coming.close()
        if line is not None:
            line.close()


def _spread() -> float:
    return random.uniform(SPREAD_LEAST, SPREAD_MOST)
