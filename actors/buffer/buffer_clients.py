"""`BufferClients`: the buffers of one topology as the threads of one process call them.

Rules of this file. A buffer is found by its name, and found anew when Ray says that its actor is
gone. A name that nobody has is a buffer that is away: it is being started, or moved.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.answer_poll import AnswerPoll
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.call_failure import ours
from pxrs_ray.actors.buffer.replica_client import leading_replica
from pxrs_ray.actors.buffer.shared_answers import answers_here
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.named_actors import find_actor
from pxrs_ray.actors.cluster.ray_errors import is_away
from pxrs_ray.errors import BufferAway, NotLeading

# For how long a caller waits for its connections before the first call, and how often it looks.
CONNECT_WAIT_S = 0.25
CONNECT_LOOK_S = 0.001


class BufferClients:
    """See the rules at the head of this file. Any thread may use it.

    Calls take sockets whose answers are heard by `hears`, or else by the thread that this process
    has for it. They end with it, or when it is closed.
    """

    def __init__(
        self,
        topology: str,
        handles: Mapping[int, Any] | None = None,
        hears: AnswerPoll | None = None,
    ) -> None:
        self._topology = topology
        self._hears = hears or answers_here()
        self._closed = False
        self._lock = threading.Lock()
        self._clients = {
            index: BufferClient(handle, self._hears) for index, handle in (handles or {}).items()
        }
        # A poll holds its lines: who is forgotten without an end would leave them open.
        weakref.finalize(self, _close, self._clients).atexit = False

    def of(self, index: int) -> BufferClient:
        """The client of a buffer. Raises BufferAway."""
        client = self._clients.get(index)
        if client is not None:
            return client
        handle = find_buffer(self._topology, index)
        made = BufferClient(handle, None if self._closed else self._hears)
        with self._lock:
            return self._clients.setdefault(index, made)

    def connect(self, indexes: Iterable[int], wait_s: float = CONNECT_WAIT_S) -> None:
        """Have the connections to these buffers made before the first call.

        Returns also when that takes longer than `wait_s`: it goes on then beside the calls.
        """
        end_s = time.monotonic() + wait_s
        while indexes := [index for index in indexes if self._is_connecting(index)]:
            if time.monotonic() >= end_s:
                return
            time.sleep(CONNECT_LOOK_S)

    def _is_connecting(self, index: int) -> bool:
        try:
            return self.of(index).connect()
        except BufferAway:
            return False

    def failed(self, index: int, error: BaseException) -> None:
        """A call to a buffer has failed: find it anew, if it may be another actor now."""
        elsewhere = isinstance(error, Exception) and isinstance(ours(error), NotLeading)
        if elsewhere or is_away(error) or is_away(error.__cause__):
            with self._lock:
                client = self._clients.pop(index, None)
            if client is not None:
                client.close()

    def close(self) -> None:
        """End the sockets; a call that is made after this goes through Ray."""
        with self._lock:
            self._closed = True
            clients = dict(self._clients)
        _close(clients)


def _close(clients: Mapping[int, BufferClient]) -> None:
    for client in clients.values():
        client.close()


def find_buffer(topology: str, index: int) -> Any:
    """The actor of a running buffer. Raises BufferAway, which says how to start one."""
    return _there(_found(topology, index), topology, index)


def _found(topology: str, index: int) -> Any | None:
    """Blocks. Where a buffer has several replicas, it is the one that leads."""
    found = find_actor(names.buffer(topology, index))
    return found if found is not None else leading_replica(topology, index)


async def find_buffer_on_loop(topology: str, index: int, wait_s: float) -> Any:
    """The same from an event loop. Raises DeadlineExceeded when nobody can say in time."""
    found = await gcs.ask("find", partial(_found, topology, index), wait_s)
    return _there(found, topology, index)


def _there(found: Any | None, topology: str, index: int) -> Any:
    if found is None:
        raise BufferAway(
            f"no buffer {names.buffer(topology, index)!r} runs in this Ray cluster: deploy "
            f"topology {topology!r} first"
        )
    return found
