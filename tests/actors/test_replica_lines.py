"""What replicas say to each other goes over a line of their own, in order, and through Ray where
there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from pxrs_ray.actors.buffer.replica_peers import ReplicaPeers
from pxrs_ray.actors.buffer.socket_server import SocketServer
from pxrs_ray.data.link_ports import LinkPorts
from tests.actors.conditions import until
from tests.actors.far_buffer import HERE

PEER, ME = "b" * 32, "a" * 32


class Answer:
    """What Ray would answer, to a loop or to a thread."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.ensure_future(work)

    def __await__(self) -> Any:
        return self._task.__await__()

    def future(self) -> Any:
        return self._task


class Replica:
    """Another replica's process: what it has heard, and by which way."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.through_ray = 0
        self.server = SocketServer({"hear": self._hear}, lambda: HERE)
        self.handle = SimpleNamespace(
            line=SimpleNamespace(remote=lambda *a: Answer(self._line(*a))),
            hear=SimpleNamespace(remote=lambda said: Answer(self._by_ray(said))),
        )

    async def _hear(self, said: list[bytes]) -> None:
        self.heard += said

    async def _by_ray(self, said: list[bytes]) -> None:
        self.through_ray += len(said)
        self.heard += said

    async def _line(self, network: bool, much: bool) -> Any:
        return await self.server.open_network(much=much)


def test_a_line_carries_it_in_order_and_ray_what_comes_before_and_after() -> None:
    async def main() -> None:
        replica, peers = Replica(), ReplicaPeers()
        replica.server.allow(LinkPorts())
        peers.are({PEER: replica.handle}, but=ME)
        said = []
        for number in range(400):
            data = b"%d" % number
            said.append(data)
            peers.send(PEER, data)
            await asyncio.sleep(0.002)
        await until(lambda: len(replica.heard) == len(said))
        assert replica.heard == said
        assert 0 < replica.through_ray < 200, "a line carries it from some time on"
        known = replica.through_ray
        replica.server.close()
        peers.send(PEER, b"lost or not")
        await asyncio.sleep(0.1)
        peers.send(PEER, b"through Ray again")
        await until(lambda: replica.heard[-1] == b"through Ray again")
        assert replica.through_ray > known
        await peers.close()

    asyncio.run(main())
