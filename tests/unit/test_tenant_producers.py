"""Producers of tenants and the actor that moves them, real both, in one process without Ray."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors import tenant_routes, tenants
from pxrs_ray.actors.tenants import TenantProducer
from pxrs_ray.errors import ProducerFenced
from pxrs_ray.log.frame import PRODUCER_ID_BYTES
from pxrs_ray.tenants.resolve import TenantProfile
from tests.in_process import until

LEASE_S = 0.3
GOLD = TenantProfile("gold", isolated=True, partitions=1, consumers=1)


class Stage:
    """Two queues of one partition each, as lists; the shared one can be full."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {"orders": [], "orders.isolated.acme": []}
        self.passed: dict[str, int] = {}
        self.full = threading.Event()
        self.fenced: set[bytes] = set()
        self.documents: dict[str, str] = {}
        self.read_when: list[list[bytes]] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def routes(self) -> Any:
        async def make() -> Any:
            return tenant_routes.TenantRoutes("shop", "orders", "billing", 20.0)

        made: Any = asyncio.run_coroutine_threadsafe(make(), self.loop).result(10)
        made._make_queue = lambda *_: None
        made._start = lambda *_: self.read_when.append(list(self.logs["orders"]))
        return Actor(made, self.loop)

    def close(self) -> None:
        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class Actor:
    """Its methods as Ray has them."""

    def __init__(self, of: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.of, self._loop, self.frozen = of, loop, False

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Future[Any]:
            if self.frozen:
                return Future()
            work = getattr(self.of, name)(*arguments)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

        return SimpleNamespace(remote=remote)


class FakeReceipt:
    def __init__(self) -> None:
        self.done_: Future[None] = Future()

    def done(self) -> bool:
        return self.done_.done()


class FakeProducer:
    """As the real one: what finds no room is tried on and on, what is fenced is refused."""

    def __init__(self, stage: Stage, queue: str, identity: bytes) -> None:
        self.stage, self.queue, self.identity = stage, queue, identity
        self.pending: list[tuple[bytes, FakeReceipt]] = []
        self.lock = threading.Lock()

    def send(self, _key: Any, payload: Any, _headers: Any) -> FakeReceipt:
        if self.identity[:10] in self.stage.fenced:
            raise ProducerFenced("fenced")
        receipt = FakeReceipt()
        self.pending.append((payload, receipt))
        self.look()
        return receipt

    def look(self) -> None:
        with self.lock:
            while self.pending and not (self.queue == "orders" and self.stage.full.is_set()):
                payload, receipt = self.pending.pop(0)
                if self.identity[:10] in self.stage.fenced:
                    receipt.done_.set_exception(ProducerFenced("fenced"))
                else:
                    self.stage.logs[self.queue].append(payload)
                    receipt.done_.set_result(None)

    def flush(self, _timeout_s: float) -> None:
        until(lambda: (self.look(), not self.pending)[1])

    def close(self) -> None:
        self.flush(10)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage()

    class FakeTopology:
        def __init__(self, _: str) -> None:
            self.config = SimpleNamespace(queues=made.logs)

        def document(self, name: str) -> str:
            return made.documents.get(name, "")

        def keep_document(self, name: str, text: str) -> None:
            made.documents[name] = text

        def group(self, name: str, **_: Any) -> Any:
            log = made.logs["orders" if name == "billing" else "orders.isolated.acme"]
            end = len(log)
            row = SimpleNamespace(partition=0, end_offset=end, checkpoint=end)
            status = SimpleNamespace(partitions=[row], lag=0, consumers=[])
            return SimpleNamespace(status=lambda: status, stop=lambda: None)

        def producer_with(self, queue: str, identity: bytes, **_: Any) -> FakeProducer:
            assert len(identity) == PRODUCER_ID_BYTES
            return FakeProducer(made, queue, identity)

        def begin_producer(self, _: str, producer: str) -> bytes:
            found = tenants.named_producer_id(producer, 2)
            made.fenced.add(found[:10])
            return found

    for module in (tenants, tenant_routes):
        monkeypatch.setattr(module, "Topology", FakeTopology)
        monkeypatch.setattr(module, "LEASE_S", LEASE_S)
    monkeypatch.setattr(tenant_routes, "GRACE_S", 0.2)
    monkeypatch.setattr(tenant_routes, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(tenants, "SYNC_EVERY_S", 0.05)
    monkeypatch.setattr(tenants, "GetTimeoutError", TimeoutError)
    get = SimpleNamespace(get=lambda call, timeout=None: call.result(timeout))
    monkeypatch.setattr(tenants, "ray", get)
    yield made
    made.close()


def test_a_full_partition_holds_the_move_up_and_nobody_else(stage: Stage) -> None:
    stage.full.set()
    routes = stage.routes()
    producer = TenantProducer("shop", "orders", routes)
    producer.send("acme", "k", b"m1")
    routes.promote.remote("acme", GOLD).result(10)
    end_s = time.monotonic() + 4 * LEASE_S
    while time.monotonic() < end_s:  # longer than the lease: it is renewed all the same
        began_s = time.monotonic()
        producer.send("other", "k", b"o")
        assert time.monotonic() - began_s < LEASE_S, "another tenant is held up"
        time.sleep(0.02)
    assert stage.read_when == [] and stage.fenced == set()
    stage.full.clear()
    stage_producer = producer._producers["orders"]
    stage_producer.look()
    producer.send("acme", "k", b"m2", timeout_s=10)
    assert b"m1" in stage.logs["orders"] and stage.logs["orders.isolated.acme"] == [b"m2"]
    until(lambda: stage.read_when)
    assert b"m1" in stage.read_when[0]
    producer.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_that_hung_is_fenced_before_others_go_on(stage: Stage, restarted: bool) -> None:
    stage.full.set()
    routes = stage.routes()
    producer = TenantProducer("shop", "orders", routes)
    producer.send("acme", "k", b"m1")
    hanging = producer._routes = SimpleNamespace(
        sync=SimpleNamespace(remote=lambda *_: Future()), leave=routes.leave
    )
    asked = stage.routes() if restarted else routes
    asked.promote.remote("acme", GOLD).result(10)
    until(lambda: stage.read_when)
    assert stage.read_when == [[]], "nothing of it was in"
    stage.full.clear()
    producer._producers["orders"].look()
    assert stage.logs["orders"] == [], "what came late would stand behind what is read already"
    assert producer._routes is hanging
    producer._routes = asked
    until(lambda: time.monotonic() < producer._sure_until_s)
    with pytest.raises(ProducerFenced):
        for _ in range(2):
            producer._producers["orders"].send("k", b"x", [])
    producer._fenced = True
    receipt = producer.send("acme", "k", b"m1", timeout_s=10)
    assert receipt.done() and stage.logs["orders.isolated.acme"] == [b"m1"]
    producer.close()
