"""A tenant gets a queue of its own, and gives it up, on a real Ray and under load."""

from __future__ import annotations

import threading

import pytest

from pxrs_ray.tenants.profile import TenantProfile
from tests.actors.conftest import Stage
from tests.actors.recording import Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

KEYS = 6


def test_promotion_and_return_under_load_lose_and_reorder_nothing(stage: Stage) -> None:
    from pxrs_ray.actors.client.tenants import Tenants

    topology = stage.deploy(partitions=2)
    topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    tenants = Tenants(topology.name, "q", "g")
    stop = threading.Event()
    sent = {"acme": 0, "other": 0}

    def load(tenant: str) -> None:
        with tenants.producer() as producer:
            while not stop.wait(0.002):
                number = sent[tenant]
                producer.send(tenant, f"{tenant}-{number % KEYS}", str(number))
                sent[tenant] += 1

    threads = [threading.Thread(target=load, args=(tenant,)) for tenant in sent]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: sent["acme"] > 50)
        status = tenants.promote("acme", TenantProfile("gold", isolated=True, partitions=3))
        assert (status.queue, status.alarm) == ("q.isolated.acme", "")
        moved = sent["acme"]
        eventually(lambda: sent["acme"] > moved + 100)
        own = topology.group("g.isolated.acme")
        eventually(lambda: sum(p.checkpoint for p in own.status().partitions) > 100)
        tenants.demote("acme")
        moved = sent["acme"]
        eventually(lambda: sent["acme"] > moved + 100)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    group = topology.group("g")
    eventually(lambda: group.lag() == 0 and own.lag() == 0)
    eventually(lambda: len(stage.notebook.notes()) == sum(sent.values()))
    for tenant, count in sent.items():
        for key in range(KEYS):
            name = f"{tenant}-{key}"
            numbers = [int(n.payload) for n in stage.notebook.notes() if n.key == name]
            assert numbers == list(range(key, count, KEYS)), name
    assert [status.phase for status in tenants.status()] == ["shared"]


def test_an_isolated_tenant_that_nobody_serves_is_served_by_others_with_an_alarm(
    stage: Stage,
) -> None:
    from pxrs_ray.actors.client.tenants import Tenants

    topology = stage.deploy(partitions=1)
    topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    tenants = Tenants(topology.name, "q", "g", served_after_s=0.5)
    nowhere = TenantProfile("gold", isolated=True, partitions=1, resources={"nowhere": 1})
    tenants.promote("acme", nowhere)
    with tenants.producer() as producer:
        producer.send("acme", b"k", "unserved")
    eventually(lambda: stage.notebook.payloads() == ["unserved"], 60)
    [status] = tenants.status()
    assert "no consumer of its profile 'gold' runs" in status.alarm
