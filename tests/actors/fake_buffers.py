"""A coordinator's buffers, and the nodes that they are on, without Ray: all in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pxrs_ray.actors.cluster import node_watch
from pxrs_ray.actors.coordinator import (
    buffer_slots,
    consumer_replicas,
    coordinator,
    home_controller,
)
from pxrs_ray.data.protocol import BufferInfo, ChangedEnds, QueueSpec
from pxrs_ray.topology.node_seen import NodeSeen


class FakeBuffer:
    """Answers as a buffer actor does; `faults` are raised by the next calls of a method."""

    def __init__(self, index: int) -> None:
        self.index, self.life = index, 1
        self.faults: dict[str, list[BaseException]] = {}
        self.refuses: dict[str, BaseException] = {}
        self.opened: set[str] = set()
        self.answers: dict[str, Any] = {}
        self.calls: list[str] = []

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        return _Method(self, method)

    async def answer(self, method: str, *arguments: Any) -> Any:
        self.calls.append(method)
        if self.faults.get(method):
            raise self.faults[method].pop(0)
        if method == "ping":
            return BufferInfo("shop", self.index, str(self.life), 1, "", (), monotonic_ms=1)
        if method == "open":
            spec: QueueSpec = arguments[0]
            if spec.queue in self.refuses:
                raise self.refuses[spec.queue]
            self.opened.add(spec.queue)
            return {}
        if method == "changed_ends":
            ends = self.answers.get("ends", {})
            opened = dict.fromkeys(sorted(self.opened), "")
            told = {queue: ends for queue in opened if ends}
            return ChangedEnds(str(self.life), len(self.calls), opened, told)
        if method == "belong":
            return arguments[0]
        return self.answers.get(method, {})

    def restart(self) -> None:
        self.life += 1
        self.opened.clear()


class _Method:
    def __init__(self, buffer: FakeBuffer, name: str) -> None:
        self._buffer, self._name = buffer, name

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._buffer.answer(self._name, *arguments))


async def until(check: Callable[[], Any]) -> None:
    for _ in range(2_000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within ten seconds")


class Nothing:
    def __init__(self, *_: Any) -> None: ...

    def close(self) -> None: ...

    async def report_for_ever(self, *_: Any) -> None:
        await asyncio.Event().wait()


def stand_in(monkeypatch: pytest.MonkeyPatch, count: int = 2) -> list[FakeBuffer]:
    """Let coordinators have fakes for buffers, on one node."""
    made = [FakeBuffer(index) for index in range(count)]
    monkeypatch.setattr(buffer_slots, "buffer_at_home", lambda topology, index, *_: made[index])
    monkeypatch.setattr(node_watch, "node_here", lambda: "here")
    monkeypatch.setattr(
        node_watch, "living_nodes", lambda: ([NodeSeen("here", "10.0.0.1")], "here")
    )
    monkeypatch.setattr(home_controller, "ROUND_PAUSE_S", 0.02)

    async def nobody(*_: object) -> None: ...

    monkeypatch.setattr(consumer_replicas, "kill_orphans", nobody)
    monkeypatch.setattr(coordinator, "DrainWatch", Nothing)
    monkeypatch.setattr(coordinator, "TopologyMetrics", Nothing)
    return made
