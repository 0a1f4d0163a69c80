"""What happens in a world while calls are failed: each scenario arms the plan for its own part.

A scenario ends when everything has come to rest by itself, or raises Broken.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pxrs_ray.actors.client.tenants import Tenants
from pxrs_ray.actors.client.topology import attach, deploy
from pxrs_ray.config import GroupConfig, QueueConfig
from pxrs_ray.feed.fields import KEY, PAYLOAD
from pxrs_ray.spark.ledger import Ledger
from pxrs_ray.spark.queue_ref import Target
from pxrs_ray.spark.routing import Feed, route
from pxrs_ray.tenants.profile import TenantProfile
from tests.world.plan import LATE_FAULTS, LATE_S
from tests.world.world import HANDLER, KEYS, Feeder, World, pace_s

REST_S = 120.0
ROWS = 24
TENANT = "acme"


def _deployed(world: World, consumers: int) -> None:
    world.do("deploy", lambda: deploy(world.config()))
    world.do("start", lambda: attach("t").group("g").start(HANDLER, consumers=consumers))


def _rest(world: World, *groups: str) -> None:
    """Return when every message is passed by members that are well."""

    def at_rest() -> bool:
        found = [attach("t").group(name).status() for name in groups or ("g",)]
        return all(
            status.lag == 0
            and not status.problem
            and all(p.owner and p.phase == "owned" for p in status.partitions)
            and all(c.state == "running" for c in status.consumers)
            for status in found
        )

    world.until("everything comes to rest", at_rest, REST_S)
    if world.plan.put and world.plan.fault in LATE_FAULTS:
        world.until(
            "the fault is long over", lambda: world.now_s > world.put_s + LATE_S + 5.0, 100.0
        )
        world.until("everything is at rest again", at_rest, REST_S)


def hand_over(world: World) -> None:
    """A consumer joins, and one leaves, under load."""
    _deployed(world, 1)
    feeder = Feeder(world)
    world.sleep(0.2)
    world.plan.armed = True
    world.do("scale out", lambda: attach("t").group("g").scale(2))
    world.sleep(0.3)
    world.do("scale in", lambda: attach("t").group("g").scale(1))
    world.sleep(0.3)
    world.plan.armed = False
    feeder.stop()
    _rest(world)


def commit(world: World) -> None:
    """Two consumers work and commit, and nothing else happens."""
    _deployed(world, 2)
    feeder = Feeder(world)
    world.sleep(0.2)
    world.plan.armed = True
    world.sleep(1.2)
    world.plan.armed = False
    feeder.stop()
    _rest(world)


def death(world: World) -> None:
    """A consumer's process dies under load, and another takes its place."""
    _deployed(world, 2)
    feeder = Feeder(world)
    world.sleep(0.3)
    world.plan.armed = True
    victim = next(p for p in world.kernel.processes if p.alive and "/consumer/" in p.name)
    world.kernel.kill(victim)
    world.sleep(0.8)
    world.plan.armed = False
    feeder.stop()
    _rest(world)


def deployment(world: World) -> None:
    """A topology is made, its group is started, and its configuration is changed under load."""
    world.plan.armed = True
    _deployed(world, 2)
    feeder = Feeder(world)
    changed = world.config(
        lease_ttl_seconds=2.5,
        queues={"q": QueueConfig(partitions=4, retention_ms=3_600_000)},
        groups={"g": GroupConfig(queue="q", commit_interval_ms=40, consumers=2)},
    )
    world.do("change", lambda: attach("t").apply(changed))
    world.sleep(0.3)
    world.plan.armed = False
    feeder.stop()
    _rest(world)


def feed(world: World) -> None:
    """A table of two Spark partitions is fed under a name; whoever feeds begins again."""
    _deployed(world, 1)
    told: list[str] = []

    def batches(number: int) -> list[pa.RecordBatch]:
        rows = range(number * ROWS, (number + 1) * ROWS)
        keys = [f"s{number}-{row % KEYS}".encode() for row in rows]
        texts = [f"s{number}-{row % KEYS}:{row}".encode() for row in rows]
        whole = pa.RecordBatch.from_pydict({PAYLOAD: texts, KEY: keys})
        return [whole.slice(0, ROWS // 2), whole.slice(ROWS // 2)]

    def write() -> None:
        target = Target.of("t", "q")
        work = Feed(target, "nightly")
        ledger = Ledger(target.ledger(), work.feed_id)
        ledger.open()
        state = ledger.read()
        if state.plan is None:
            ledger.tell_plan({"partitions": 2})
        for number in range(2):
            known = state.partitions.get(number)
            if known is None:
                from pxrs_ray.feed.facts import KnownProgress

                known = KnownProgress()
            route(work, number, batches(number), known)
            texts = [row.decode() for batch in batches(number) for row in batch[0].to_pylist()]
            told.extend(texts)
            for text in texts:
                world.witness.acknowledge(text, "q", 0, None, world.now_s)

    world.plan.armed = True
    world.do("feed", write)
    world.plan.armed = False
    world.sleep(0.5)
    _rest(world)


class _Tenant:
    """A producer of one tenant's messages, that begins again when it is killed."""

    def __init__(self, world: World) -> None:
        self.stopping = False
        self._world = world
        self._next = 0
        self.job = world.job("tenant", self._send)

    def _send(self) -> None:
        world = self._world
        with Tenants("t", "q", "g").producer() as producer:
            waiting = []
            while not self.stopping or waiting:
                if not self.stopping:
                    text = f"k0:{self._next}"
                    self._next += 1
                    waiting.append((text, producer.send(TENANT, "k0", text)))
                world.sleep(pace_s(self._next))
                while waiting and waiting[0][1].done():
                    text, receipt = waiting.pop(0)
                    receipt.result()
                    world.witness.acknowledge(text, "q", 0, None, world.now_s)


def tenant_move(world: World) -> None:
    """A tenant gets a queue of its own, and gives it up, while its messages flow."""
    _deployed(world, 1)
    tenant = _Tenant(world)
    world.sleep(0.3)
    world.plan.armed = True
    profile = TenantProfile("gold", isolated=True, partitions=2)
    world.do("promote", lambda: Tenants("t", "q", "g").promote(TENANT, profile), 400.0)
    world.sleep(0.5)
    world.do("demote", lambda: Tenants("t", "q", "g").demote(TENANT), 400.0)
    world.sleep(0.3)
    world.plan.armed = False
    tenant.stopping = True
    world.until("the tenant's producer ends", lambda: tenant.job.over, 200.0)
    if tenant.job.failed is not None:
        raise tenant.job.failed
    _rest(world, "g")


SCENARIOS: dict[str, Callable[[World], None]] = {
    scenario.__name__: scenario
    for scenario in (hand_over, commit, death, deployment, feed, tenant_move)
}
