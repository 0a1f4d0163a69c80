"""`ReplicaPeers`: what one replica says to the others of its slot, on its way.

Rules of this file. What is said may be late, lost or doubled: replicas say again what was not
answered. So nobody waits here, a peer that takes nothing has what waits for it dropped, and a call
that fails is forgotten. It goes over a connection of its own where there is one, and through Ray
where there is none. What producers' lives are is told with an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Collection, Mapping
from typing import Any

from pxrs_ray.actors.buffer.buffer_link import BufferLink, LinkWay
from pxrs_ray.errors import LeaseOver, ProtocolError
from pxrs_ray.log.producer_fence import ProducerLife
from pxrs_ray.replication.placement import Disk
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, within

logger = logging.getLogger(__name__)

# What one call carries, how many are under way to one peer, and what may wait for them.
CALL_BYTES_MAX = 4 << 20
CALLS_MAX = 4
WAITING_BYTES_MAX = 64 << 20
CALL_WAIT_S = 2.0
TEACH_WAIT_S = 2.0
LIVES_IN_A_CALL = 5_000


class _Peer:
    """One other replica's process, and what waits for it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.link = BufferLink(handle, asyncio.get_running_loop(), LinkWay.MUCH)
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.calls = 0

    def taken(self) -> list[bytes]:
        """What the next call carries."""
        found: list[bytes] = []
        size = 0
        while self.waiting and (not found or size + len(self.waiting[0]) <= CALL_BYTES_MAX):
            data = self.waiting.popleft()
            size += len(data)
            found.append(data)
        self.waiting_bytes -= size
        return found

    def say(self, said: list[bytes]) -> Awaitable[Any]:
        """Say this; the answer is that it was heard."""
        line = self.link.line()
        if line is not None:
            try:
                heard: Awaitable[Any] = line.call("hear", said)
                return heard
            except ProtocolError:
                pass  # it is too much for a line
        through_ray: Awaitable[Any] = self.handle.hear.remote(said)
        return through_ray


class ReplicaPeers:
    """See the rules at the head of this file. For one event loop. `joining` are those that were
    told of producers, because they are about to be in sync."""

    def __init__(self) -> None:
        self.joining: set[Disk] = set()
        self._peers: dict[Disk, _Peer] = {}
        self._supervisor = Supervisor("replicas")

    def are(self, handles: Mapping[Disk, Any], *, but: Disk) -> None:
        """These are the others' processes now."""
        for disk, handle in handles.items():
            known = self._peers.get(disk)
            if disk != but and (known is None or known.handle != handle):
                self._forget(disk)
                self._peers[disk] = _Peer(handle)
        for disk in [disk for disk in self._peers if disk not in handles]:
            self._forget(disk)

    def _forget(self, disk: Disk) -> None:
        peer = self._peers.pop(disk, None)
        if peer is not None:
            peer.link.close()

    def send(self, to: Disk, data: bytes) -> None:
        """Say this to another replica."""
        peer = self._peers.get(to)
        if peer is None:
            return
        if peer.waiting_bytes > WAITING_BYTES_MAX:
            peer.waiting.clear()
            peer.waiting_bytes = 0
        peer.waiting.append(data)
        peer.waiting_bytes += len(data)
        if peer.calls < CALLS_MAX:
            peer.calls += 1
            self._supervisor.once(f"speaking to {to[:8]}", self._speak(to, peer))

    async def _speak(self, to: Disk, peer: _Peer) -> None:
        try:
            while peer.waiting and self._peers.get(to) is peer:
                said = peer.taken()
                try:
                    await within(CALL_WAIT_S, peer.say(said))
                except Exception as error:  # noqa: BLE001 - it is said again, whatever it is
                    logger.info("replica %s did not hear: %s", to[:8], told(error))
                    await asyncio.sleep(0.05)
        finally:
            peer.calls -= 1

    async def teach(self, to: Collection[Disk], lives: Collection[ProducerLife]) -> None:
        """Return once these know of all these lives. Raises LeaseOver where one does not answer."""
        parts = list(lives)
        for at in range(0, len(parts), LIVES_IN_A_CALL):
            part = parts[at : at + LIVES_IN_A_CALL]
            for disk in to:
                peer = self._peers.get(disk)
                try:
                    if peer is None:
                        raise LeaseOver("it is away")
                    await within(TEACH_WAIT_S, peer.handle.learn.remote(part))
                except Exception as error:
                    raise LeaseOver(
                        f"replica {disk[:8]} does not know of a producer yet: {told(error)}"
                    ) from error

    async def close(self) -> None:
        """Say nothing more."""
        for disk in list(self._peers):
            self._forget(disk)
        await self._supervisor.close()
