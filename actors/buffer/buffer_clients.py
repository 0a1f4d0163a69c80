"""`BufferClients`: the buffers of one topology as the threads of one process call them.

Rules of this file. A buffer is found by its name, and found anew when Ray says that its actor is
gone. A name that nobody has is a buffer that is away: it is being started, or moved.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.ray_errors import is_away
from pxrs_ray.errors import BufferAway


class BufferClients:
    """See the rules at the head of this file. Any thread may use it; with `sockets`, close it."""

    def __init__(
        self, topology: str, handles: Mapping[int, Any] | None = None, *, sockets: bool = False
    ) -> None:
        self._topology = topology
        self._sockets = sockets
        self._lock = threading.Lock()
        self._clients = {
            index: BufferClient(handle, sockets=sockets)
            for index, handle in (handles or {}).items()
        }

    def of(self, index: int) -> BufferClient:
        """The client of a buffer. Raises BufferAway."""
        client = self._clients.get(index)
        if client is not None:
            return client
        made = BufferClient(find_buffer(self._topology, index), sockets=self._sockets)
        with self._lock:
            return self._clients.setdefault(index, made)

    def failed(self, index: int, error: BaseException) -> None:
        """A call to a buffer has failed: find it anew, if it may be another actor now."""
        if is_away(error) or is_away(error.__cause__):
            with self._lock:
                client = self._clients.pop(index, None)
            if client is not None:
                client.close()

    def close(self) -> None:
        """End the sockets; a call that is made after this goes through Ray."""
        with self._lock:
            self._sockets = False
            clients = list(self._clients.values())
        for client in clients:
            client.close()


def find_buffer(topology: str, index: int) -> Any:
    """The actor of a running buffer. Raises BufferAway, which says how to start one."""
    try:
        return ray.get_actor(names.buffer(topology, index), namespace=names.NAMESPACE)
    except ValueError:
        raise _nobody(topology, index) from None


async def find_buffer_on_loop(topology: str, index: int, wait_s: float) -> Any:
    """The same from an event loop. Raises DeadlineExceeded when nobody can say in time."""
    try:
        return await gcs.find(names.buffer(topology, index), wait_s)
    except ValueError:
        raise _nobody(topology, index) from None


def _nobody(topology: str, index: int) -> BufferAway:
    return BufferAway(
        f"no buffer {names.buffer(topology, index)!r} runs in this Ray cluster: deploy topology "
        f"{topology!r} first"
    )
