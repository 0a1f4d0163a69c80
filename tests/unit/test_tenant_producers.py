"""Producers of tenants and the actor that moves them, real both, in one process without Ray.

Rules of this file. Leases run by a clock that only the test moves, in steps, each of which it waits
for to be seen: a machine that is short of time makes these tests slow, and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.client import tenants
from pxrs_ray.actors.client.tenants import TenantProducer
from pxrs_ray.actors.coordinator import tenant_router
from pxrs_ray.actors.coordinator.topology_requests import GetGroupStatus, OpenGroup
from pxrs_ray.data.frame import PRODUCER_ID_BYTES
from pxrs_ray.errors import DeadlineExceeded, ProducerFenced
from pxrs_ray.tenants import tenant_moves
from pxrs_ray.tenants.profile import TenantProfile
from tests.in_process import until

LEASE_S, GRACE_S = tenant_router.LEASE_S, tenant_router.GRACE_S
STEP_S = tenant_moves.STEP_MOST_S
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
        self.may_keep = threading.Event()
        self.may_keep.set()
        self.now_s = 1_000.0
        self.producers: list[TenantProducer] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def routes(self) -> Any:
        async def make() -> Any:
            return tenant_router.TenantRouter("shop", "orders", "billing", 20.0)

        made: Any = self.on_loop(make()).result(10)
        made._make_queue = lambda *_: None
        made._start = lambda *_: self.read_when.append(list(self.logs["orders"]))
        return Actor(made, self)

    def producer(self, routes: Any) -> TenantProducer:
        self.producers.append(TenantProducer("shop", "orders", routes))
        return self.producers[-1]

    def on_loop(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def pass_time(self, routes: Any, seconds: float, heard: TenantProducer | None = None) -> None:
        """Let time pass for leases; after each step the routes see it, and `heard` renews."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + STEP_S)
            until(lambda: routes.of._leases._seen_s >= self.now_s)
            until(lambda: heard is None or heard._life.sure_until_s >= self.now_s + LEASE_S)

    def close(self) -> None:
        self.may_keep.set()
        for producer in self.producers:  # also of a test that failed: nobody calls a closed loop
            producer._closing.set()
            producer._ended.set()
            producer._thread.join(30)

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.on_loop(end()).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(30)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class Actor:
    """Its methods as Ray has them. While `door` is shut, calls wait in front of it, unread."""

    def __init__(self, of: Any, stage: Stage) -> None:
        self.of, self._stage = of, stage
        self.door = threading.Event()
        self.door.set()
        self.waiting: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Future[Any]:
            if self.door.is_set():
                return self._stage.on_loop(getattr(self.of, name)(*arguments))
            answer: Future[Any] = Future()

            def make() -> None:
                answer.set_result(
                    self._stage.on_loop(getattr(self.of, name)(*arguments)).result(30)
                )

            self.waiting.append(make)
            return answer

        return SimpleNamespace(remote=remote)

    def open(self) -> None:
        """Let in who waits, in order."""
        self.door.set()
        for make in self.waiting:
            make()

    def kill(self) -> None:
        self._stage.on_loop(self.of._supervisor.close()).result(30)


class Silent(Future[Any]):
    """The answer of somebody who gives none, without the wait for it."""

    def result(self, timeout: float | None = None) -> Any:
        time.sleep(0.01)
        raise TimeoutError


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
            assert made.may_keep.wait(60)
            made.documents[name] = text

        def group(self, _: str) -> Any:
            return SimpleNamespace(stop=lambda: None)

        @property
        def _coordinator(self) -> Any:
            return SimpleNamespace(call=self._answer)

        def _answer(self, request: Any, wait_s: float) -> Any:
            if isinstance(request, OpenGroup):
                return request.name
            assert isinstance(request, GetGroupStatus)
            name = request.group
            log = made.logs["orders" if name == "billing" else "orders.isolated.acme"]
            end = len(log)
            row = SimpleNamespace(partition=0, end_offset=end, checkpoint=end)
            return SimpleNamespace(partitions=[row], lag=0, consumers=[])

        def producer_with(self, queue: str, identity: bytes, **_: Any) -> FakeProducer:
            assert len(identity) == PRODUCER_ID_BYTES
            return FakeProducer(made, queue, identity)

        def begin_producer(self, _: str, producer: str) -> bytes:
            found = tenants.named_producer_id(producer, 2)
            made.fenced.add(found[:10])
            return found

    for module in (tenants, tenant_router):
        monkeypatch.setattr(module, "Topology", FakeTopology)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    monkeypatch.setattr(tenant_router, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(tenants, "SYNC_EVERY_S", 0.05)
    monkeypatch.setattr(tenants, "GetTimeoutError", TimeoutError)
    get = SimpleNamespace(get=lambda call, timeout=None: call.result(timeout))
    monkeypatch.setattr(tenants, "ray", get)
    yield made
    made.close()


def sent(producer: TenantProducer, tenant: str, payload: bytes) -> bool:
    """Send without waiting; whether the tenant's route was known and open."""
    try:
        producer.send(tenant, "k", payload, timeout_s=0)
    except DeadlineExceeded:
        return False
    return True


def test_a_full_partition_holds_the_move_up_and_nobody_else(stage: Stage) -> None:
    stage.full.set()
    routes = stage.routes()
    producer = stage.producer(routes)
    producer.send("acme", "k", b"m1")
    routes.promote.remote("acme", GOLD).result(30)
    for _ in range(8):  # far longer than the lease: it is renewed all the same
        stage.pass_time(routes, 2 * STEP_S, heard=producer)
        assert sent(producer, "other", b"o"), "another tenant is held up"
    until(lambda: not sent(producer, "acme", b"m1 more"))
    assert stage.read_when == [] and stage.fenced == set()
    stage.full.clear()
    producer._producers["orders"].look()
    until(lambda: sent(producer, "acme", b"m2"))
    assert b"m1" in stage.logs["orders"] and stage.logs["orders.isolated.acme"] == [b"m2"]
    until(lambda: stage.read_when)
    assert b"m1" in stage.read_when[0]
    producer.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_that_hung_is_fenced_before_others_go_on(stage: Stage, restarted: bool) -> None:
    stage.full.set()
    asked = routes = stage.routes()
    producer = stage.producer(routes)
    producer.send("acme", "k", b"m1")
    former = producer._name
    hanging = producer._routes = SimpleNamespace(sync=SimpleNamespace(remote=lambda *_: Silent()))
    routes.promote.remote("acme", GOLD).result(30)
    if restarted:
        routes.kill()
        asked = stage.routes()
        asked.status.remote().result(30)
    stage.pass_time(asked, LEASE_S)
    assert stage.read_when == [] and stage.fenced == set(), "it may be heard yet"
    stage.pass_time(asked, GRACE_S + STEP_S)
    until(lambda: stage.read_when)
    assert stage.read_when == [[]], "nothing of it was in"
    stage.full.clear()
    producer._producers["orders"].look()
    assert stage.logs["orders"] == [], "what came late would stand behind what is read already"
    assert producer._routes is hanging and not sent(producer, "other", b"o")
    producer._routes = asked
    until(lambda: sent(producer, "acme", b"m1"))  # by itself, and nothing more is refused
    assert stage.logs["orders.isolated.acme"] == [b"m1"] and producer._name != former
    producer.close()
    until(lambda: asked.of._leases.names() == [])


def test_who_hears_of_its_fence_from_a_log_begins_anew(stage: Stage) -> None:
    producer = stage.producer(stage.routes())
    former = producer._name
    stage.fenced.add(tenants.named_producer_id(former, 1)[:10])
    with pytest.raises(ProducerFenced):
        producer.send("acme", "k", b"refused")
    until(lambda: sent(producer, "acme", b"m1"))
    assert stage.logs["orders"] == [b"m1"] and producer._name != former
    producer.close()


def test_routes_that_stood_still_themselves_fence_nobody(stage: Stage) -> None:
    routes = stage.routes()
    producer = stage.producer(routes)
    producer.send("acme", "k", b"m1")
    former = producer._name
    routes.door.clear()
    until(lambda: routes.waiting)
    stage.now_s += 100 * LEASE_S  # a starved process: it looks before it reads who asks
    until(lambda: routes.of._leases._seen_s >= stage.now_s)
    stage.on_loop(routes.of._look()).result(30)
    routes.open()
    stage.pass_time(routes, LEASE_S, heard=producer)
    assert stage.fenced == set() and producer._name == former
    assert sent(producer, "acme", b"m2") and stage.logs["orders"] == [b"m1", b"m2"]
    producer.close()


def test_a_producer_that_closes_keeps_its_lease_until_all_is_in(stage: Stage) -> None:
    stage.full.set()
    routes = stage.routes()
    producer = stage.producer(routes)
    producer.send("acme", "k", b"m1")
    with ThreadPoolExecutor(1) as threads:
        closed = threads.submit(producer.close)
        try:
            until(producer._closing.is_set)
            stage.pass_time(routes, 4 * LEASE_S, heard=producer)
            assert stage.fenced == set() and not closed.done()
        finally:
            stage.full.clear()
        closed.result(30)
    assert stage.logs["orders"] == [b"m1"]
    until(lambda: routes.of._leases.names() == [])


def test_a_producer_that_joins_slowly_is_not_silent(stage: Stage) -> None:
    routes = stage.routes()
    routes.status.remote().result(30)
    stage.may_keep.clear()
    with ThreadPoolExecutor(1) as threads:
        made = threads.submit(stage.producer, routes)
        try:
            until(lambda: routes.of._joining)
            stage.pass_time(routes, 4 * LEASE_S)
            assert stage.fenced == set() and not made.done()
        finally:
            stage.may_keep.set()
        producer = made.result(30)
    assert producer._name in stage.documents["tenants/orders/billing/producers"]
    until(lambda: sent(producer, "acme", b"m1"))
    assert stage.logs["orders"] == [b"m1"]
    producer.close()
