"""`BufferClients`: the buffers of one topology as the threads of one process call them.

Rules of this file. A buffer is found by its name, and found anew when Ray says that its actor is
gone. A name that nobody has is a buffer that is away: it is being started, or moved.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.answer_poll import AnswerPoll
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.call_failure import ours
from pxrs_ray.actors.buffer.replica_client import FIND_S, leading_replica
from pxrs_ray.actors.buffer.shared_answers import answers_here
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.named_actors import find_actor
from pxrs_ray.actors.cluster.ray_errors import is_away
from pxrs_ray.errors import BufferAway, NotLeading
from pxrs_ray.supervision.supervisor import Supervisor

# For how long a caller waits for its connections before the first call, and how often it looks.
CONNECT_WAIT_S = 0.25
CONNECT_LOOK_S = 0.001
# For how long a thread that nobody else waits for looks for whoever leads: among those that there
# are, and until there are others.
LOOK_S = 0.5
LOOKS = 4


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
        self._looks: dict[int, Future[BufferClient]] = {}
        self._supervisor = Supervisor(f"buffers of {topology}")
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

    @property
    def has_replicas(self) -> bool:
        """Whether a buffer was found that may be led by another actor some time."""
        return any(_is_replica(client.handle) for client in list(self._clients.values()))

    def known(self, index: int) -> BufferClient | None:
        """The client of a buffer that was found."""
        return self._clients.get(index)

    def when_found(self, index: int) -> Future[BufferClient]:
        """As `of`, without a wait: a thread looks, until the buffer is there or for long enough."""
        return self._looked_for(index, self.known(index), LOOKS)

    def doubt(self, index: int) -> Future[BufferClient] | None:
        """A buffer is silent. If it has replicas, a thread looks whether another one leads now, and
        that one is called from then on; None where there is nothing to look for."""
        client = self.known(index)
        if client is None or not _is_replica(client.handle):
            return None
        return self._looked_for(index, client, 1)

    def _looked_for(
        self, index: int, known: BufferClient | None, looks: int
    ) -> Future[BufferClient]:
        with self._lock:
            coming = self._looks.get(index)
            if coming is not None:
                return coming
            coming = self._looks[index] = Future()

        def run() -> None:
            try:
                found = self._look(index, known, looks)
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                del self._looks[index]
                coming.set_exception(error)
            else:
                del self._looks[index]
                coming.set_result(found)

        try:
            self._supervisor.thread("finding a buffer", run).start()
        except RuntimeError as error:  # the system gives no more threads
            del self._looks[index]
            coming.set_exception(BufferAway(f"it cannot be looked for now: {error}"))
        return coming

    def _look(self, index: int, known: BufferClient | None, looks: int) -> BufferClient:
        """Find who is to be called now; `known` is, unless another one is found."""
        handle: Any = None
        for left in reversed(range(looks)):
            began_s = time.monotonic()
            try:
                handle = find_buffer(self._topology, index, LOOK_S)
                break
            except BufferAway:
                # Who has no replicas is not there, and that is known at once.
                if not left or time.monotonic() - began_s < LOOK_S / 2:
                    raise
        if known is not None and known.handle == handle:
            return known
        made = BufferClient(handle, None if self._closed else self._hears)
        with self._lock:
            now = self._clients.get(index)
            if now is not None and now is not known:
                return now  # another thread has found it
            self._clients[index] = made
        if known is not None:
            known.close()
        return made

    def connect(
        self, indexes: Iterable[int], wait_s: float = CONNECT_WAIT_S, *, much: bool = False
    ) -> None:
        """Have the connections to these buffers made before the first call; those for `much` too,
        to buffers that were found.

        Returns also when that takes longer than `wait_s`: it goes on then beside the calls.
        """
        end_s = time.monotonic() + wait_s
        while indexes := [index for index in indexes if self._is_connecting(index, much)]:
            if time.monotonic() >= end_s:
                return
            time.sleep(CONNECT_LOOK_S)

    def _is_connecting(self, index: int, much: bool) -> bool:
        try:
            client = self.known(index) if much else self.of(index)
            return client is not None and client.connect(much=much)
        except BufferAway:
            return False

    def failed(self, index: int, error: BaseException, called: BufferClient | None = None) -> None:
        """A call to a buffer has failed: find it anew, if it may be another actor now. Where it is
        known who was `called`, whoever was found since then stays."""
        told = ours(error) if isinstance(error, Exception) else error
        gone = is_away(error) or is_away(error.__cause__) or isinstance(told, NotLeading)
        with self._lock:
            client = self._clients.get(index)
            if client is None or client is not (called or client):
                return
            # A replica whose line broke may have ended: then another one is about to lead.
            broke = isinstance(told, BufferAway) and _is_replica(client.handle)
            if not (gone or broke):
                return
            del self._clients[index]
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


def _is_replica(handle: Any) -> bool:
    """Whether another actor may lead in its place."""
    return hasattr(handle, "leads")


def find_buffer(topology: str, index: int, wait_s: float = FIND_S) -> Any:
    """The actor of a running buffer; of its replicas the one that leads, as soon as one does within
    `wait_s`. Raises BufferAway, which says how to start one."""
    return _there(_found(topology, index, wait_s), topology, index)


def _found(topology: str, index: int, wait_s: float = FIND_S) -> Any | None:
    """Blocks. Where a buffer has several replicas, it is the one that leads."""
    found = find_actor(names.buffer(topology, index))
    return found if found is not None else leading_replica(topology, index, wait_s)


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
