"""`Tenants`: producing for tenants, and giving one a queue of its own while messages flow.

tenants = Tenants("shop", queue="orders", group="billing")
with tenants.producer() as producer:
    producer.send("acme", b"order-7", b"...")
tenants.promote("acme", TenantProfile("gold", isolated=True, partitions=8, consumers=4))
tenants.demote("acme")
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.actors.cluster.join import join
from pxrs_ray.actors.coordinator.tenant_router import TenantStatus, routes_actor
from pxrs_ray.closing import Closing
from pxrs_ray.data.batch import Headers
from pxrs_ray.data.message_form import checked_headers, checked_name
from pxrs_ray.errors import DeadlineExceeded, ProducerError, ProducerFenced, PxrsError
from pxrs_ray.log.producer_fence import named_producer_id
from pxrs_ray.model import TENANT_HEADER
from pxrs_ray.producer.receipt import Receipt
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.tenants.followed_routes import FollowedRoutes
from pxrs_ray.tenants.migration import Route
from pxrs_ray.tenants.profile import Service, TenantDirectory, TenantProfile, isolated_queue
from pxrs_ray.tenants.tenant_moves import LEASE_S

logger = logging.getLogger(__name__)

SYNC_EVERY_S = LEASE_S / 6
CALL_WAIT_S = 60.0
MOVE_WAIT_S = 120.0
SEND_WAIT_S = 60.0
LOOK_EVERY_S = 0.05
# What the routes fence is this one; a producer that begins anew has another name.
FIRST_LIFE = 1


class Tenants:
    """The tenants of one queue and of the group that works it.

    When none of an isolated tenant's own consumers has run for `served_after_s`, others serve it,
    with an alarm. The first `Tenants` of a queue and a group sets that time.
    """

    def __init__(
        self, topology: str, queue: str, group: str, *, served_after_s: float = 20.0
    ) -> None:
        join()
        self.topology, self.queue, self.group = topology, queue, group
        self._routes = routes_actor(topology, queue, group, served_after_s)

    def producer(self, **limits: Any) -> TenantProducer:
        """A producer that sends each tenant's messages where they belong; close it."""
        return TenantProducer(self.topology, self.queue, self._routes, **limits)

    def promote(
        self, tenant: str, profile: TenantProfile, wait_s: float = MOVE_WAIT_S
    ) -> TenantStatus:
        """Give a tenant a queue and consumers of its own; returns when these read it.

        Raises DeadlineExceeded when it is still on its way after `wait_s`; it goes on then.
        """
        ray.get(self._routes.promote.remote(tenant, profile), timeout=CALL_WAIT_S)
        return self._await(tenant, "isolated", wait_s)

    def demote(self, tenant: str, wait_s: float = MOVE_WAIT_S) -> TenantStatus:
        """Let a tenant share the queue again; returns when it does. Raises as `promote`."""
        ray.get(self._routes.demote.remote(tenant), timeout=CALL_WAIT_S)
        return self._await(tenant, "shared", wait_s)

    def status(self) -> list[TenantStatus]:
        """Every tenant that was ever moved, with the alarms about it."""
        found: list[TenantStatus] = ray.get(self._routes.status.remote(), timeout=CALL_WAIT_S)
        return found

    def directory(self) -> TenantDirectory:
        """Who is isolated now, and where each message belongs: `resolve(group, tenant, entity)`."""
        config = Topology(self.topology).config
        queue = config.resolved_queue(self.queue)
        service = Service(self.group, self.queue, queue.partitions, config.prefix, queue.hash)
        profiles = {
            found.tenant: TenantProfile(
                found.tenant, isolated=True, partitions=config.queues[found.queue].partitions
            )
            for found in self.status()
            if found.phase != "shared" and found.queue in config.queues
        }
        return TenantDirectory({self.group: service}, profiles, {name: name for name in profiles})

    def _await(self, tenant: str, phase: str, wait_s: float) -> TenantStatus:
        end_s = time.monotonic() + wait_s
        while True:
            found = {status.tenant: status for status in self.status()}
            status = found.get(tenant) or TenantStatus(tenant, "shared", self.queue, self.group)
            if status.phase == phase:
                return status
            if time.monotonic() > end_s:
                raise DeadlineExceeded(
                    f"tenant {tenant!r} is {status.phase} after {wait_s:g} s, and goes on; "
                    f"producers that have not switched: {', '.join(status.waiting_for) or 'none'}"
                )
            time.sleep(LOOK_EVERY_S)


class TenantProducer(Closing):
    """Sends for many tenants. A thread of its own learns of moves, even while nothing is sent.

    See `FollowedRoutes`, which decides. A producer that was silent for longer than its lease is
    fenced: what it had under way is refused with ProducerFenced. It begins anew by itself as soon
    as it learns of that.
    """

    def __init__(self, topology: str, queue: str, routes: Any, **limits: Any) -> None:
        self._topology = Topology(topology)
        self._queue = queue
        self._routes = routes
        self._limits = limits
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._anew()
        self._sync()
        self._thread = Supervisor(f"tenants of {queue}").thread(
            "pxrs-tenants", self._run, again=lambda: not self._ended.is_set()
        )
        self._thread.start()

    def _anew(self) -> None:
        """Be a producer that has sent nothing yet, and is not known to the routes."""
        self._life = FollowedRoutes(f"tenants/{uuid.uuid4().hex}")
        self._producers: dict[str, Any] = {}

    @property
    def _name(self) -> str:
        return self._life.name

    def send(
        self,
        tenant: str,
        key: bytes | str | None,
        payload: bytes | str,
        headers: Headers = None,
        timeout_s: float = SEND_WAIT_S,
    ) -> Receipt:
        """Send one message of a tenant; its header `tenant` says whose it is.

        Waits while the tenant is moving. Raises DeadlineExceeded, and ProducerFenced when this
        producer was silent for so long that the routes went on without it: what was not
        acknowledged is refused, and the next message begins anew.
        """
        whose = checked_name(tenant, "a tenant").encode()
        pairs = [pair for pair in checked_headers(headers or ())[0] if pair[0] != TENANT_HEADER]
        pairs.append((TENANT_HEADER, whose))
        end_s = time.monotonic() + timeout_s
        with self._changed:
            route = self._wait_for_route(tenant, end_s, timeout_s)
            queue = self._queue if route is Route.SHARED else isolated_queue(self._queue, tenant)
            producer = self._producer(queue)
            life = self._life
            life.begins(tenant)
        receipt: Receipt | None = None
        try:
            receipt = producer.send(key, payload, pairs)
            return receipt
        except ProducerFenced:
            with self._changed:
                life.found_fenced()
            raise
        finally:
            with self._changed:
                life.began(tenant, receipt)

    def _wait_for_route(self, tenant: str, end_s: float, timeout_s: float) -> Route:
        while True:
            if self._closing.is_set():
                raise ProducerError("the producer is closed")
            now_s = time.monotonic()
            route = self._life.route(tenant, now_s)
            if route is not None:
                return route
            left_s = end_s - now_s
            if left_s <= 0:
                sure = self._life.is_sure(now_s)
                why = "is moving" if sure else "may be moving: the tenant router does not answer"
                raise DeadlineExceeded(f"tenant {tenant!r} {why}, for {timeout_s:g} s")
            self._changed.wait(min(left_s, SYNC_EVERY_S))

    def _producer(self, queue: str) -> Any:
        if queue not in self._producers:
            identity = named_producer_id(self._name, FIRST_LIFE)
            self._producers[queue] = self._topology.producer_with(queue, identity, **self._limits)
        return self._producers[queue]

    def flush(self, timeout_s: float = SEND_WAIT_S) -> None:
        """Return when everything that was sent is acknowledged. Raises DeadlineExceeded."""
        with self._changed:
            producers = list(self._producers.values())
        for producer in producers:
            producer.flush(timeout_s)

    def _run(self) -> None:
        # Also while it closes: a lease must not end because the last messages take long.
        while not self._ended.wait(SYNC_EVERY_S):
            try:
                self._sync()
            except (RayError, GetTimeoutError, PxrsError) as error:
                logger.warning("routes of tenants: asking again, for %s", error)

    def _begin_anew(self) -> None:
        with self._changed:
            former = list(self._producers.values())
            self._anew()
        for producer in former:  # fenced: nothing of it is under way any more
            _close(producer)

    def _sync(self) -> None:
        """Renew the lease, hear of moves, and follow those before which everything is in the logs.

        Nothing here waits for a log: a lease must not end because a partition is full.
        """
        if self._life.fenced:
            self._begin_anew()
        life, again = self._life, True
        while again:
            asked_s, is_new = time.monotonic(), not life.joined
            call = self._routes.sync.remote(life.name, life.follows(), is_new)
            answer = ray.get(call, timeout=CALL_WAIT_S if is_new else LEASE_S)
            with self._changed:
                again = life.answered(asked_s, answer)
                self._changed.notify_all()

    def close(self) -> None:
        """Send everything, and say goodbye, so that nobody waits for this producer.

        Raises DeadlineExceeded when something is not acknowledged; then no goodbye is said, for it
        may come in yet, until this producer is fenced.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        with self._changed:
            producers = list(self._producers.values())
        troubles = [error for error in map(_close, producers) if error is not None]
        self._ended.set()
        self._thread.join(CALL_WAIT_S)
        if troubles:
            raise troubles[0]
        ray.get(self._routes.leave.remote(self._name), timeout=CALL_WAIT_S)


def _close(producer: Any) -> PxrsError | None:
    """Close the producer of one queue; what went wrong is logged, and keeps no other one open."""
    try:
        producer.close()
    except PxrsError as error:
        logger.warning("a producer of tenants could not send everything: %s", error)
        return error
    return None
