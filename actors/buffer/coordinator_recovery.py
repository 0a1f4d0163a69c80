"""`CoordinatorRecovery`: a buffer that hears no coordinator any more starts one on the registry's
node.

Rules of this file. Ray gives up a coordinator that is pinned to a host for good when it gives up
that host. When the host is back, only the buffers are left to notice. Each buffer looks for itself,
on a thread of its own; `CoordinatorWatch` says when it makes one, and where. Ray makes one actor of
a name, so of several buffers that try one succeeds.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from ray.exceptions import RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster.named_actors import find_actor, runs
from pxrs_ray.actors.coordinator.coordinator_actor import make_coordinator
from pxrs_ray.actors.coordinator.topology_requests import Ping
from pxrs_ray.errors import PxrsError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.supervision.coordinator_watch import (
    ANYWHERE,
    LOOK_PAUSE_S,
    CoordinatorWatch,
)
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from pxrs_ray.config import PxrsConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What buffers need to start the next coordinator; the present one leaves it with them."""

    config: PxrsConfig
    buffers: int


class CoordinatorRecovery:
    """One buffer's watch over its coordinator. Close it."""

    def __init__(self, topology: str, index: int, lease_s: float) -> None:
        self._topology = topology
        self._judged = CoordinatorWatch(lease_s, time.monotonic())
        self._will: RecoveryPlan | None = None
        self._closed = threading.Event()
        self._supervisor = Supervisor(f"buffer {index}")

    def heard(self) -> None:
        """A coordinator has spoken."""
        self._judged.heard(time.monotonic())

    def remember(self, will: RecoveryPlan) -> None:
        """From now on, should the coordinator go, make another one of this."""
        self._judged.told(time.monotonic())
        if self._will is None and not self._closed.is_set():
            watch = self._supervisor.thread(
                "its coordinator's watch", self._watch, again=lambda: not self._closed.is_set()
            )
            watch.start()
        self._will = will

    def close(self) -> None:
        """The topology is shut down: nobody is made any more."""
        self._judged.close()
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_PAUSE_S):
            will = self._will
            if will is None or not self._judged.misses_it(time.monotonic()):
                continue
            try:
                self._make_where_it_belongs(will)
            # Also when the GCS is away, or the one that it named went just now.
            except (PxrsError, RayError, ValueError) as error:
                logger.info("no coordinator of %s can be made: %s", self._topology, told(error))

    def _make_where_it_belongs(self, will: RecoveryPlan) -> None:
        from pxrs_ray.actors.cluster.coordinator_placement import FILE, node_of_registry
        from pxrs_ray.actors.cluster.node_watch import living_nodes

        if runs(self._topology):
            return
        node: str | None = ANYWHERE
        if will.config.store_url.startswith(FILE):
            nodes, _ = living_nodes()
            ids = frozenset(each.node for each in nodes)
            if not self._judged.looks_at_disks(ids, time.monotonic()):
                return
            node = node_of_registry(will.config, nodes)
            self._judged.disks_seen(ids, time.monotonic())
        if node is None or not self._judged.makes(node, runs=runs(self._topology)):
            return
        if make_coordinator(will.config, will.buffers, node):
            logger.error("%s had no coordinator: one is made", self._topology)
            made = find_actor(names.coordinator(self._topology))
            if made is not None:  # it starts at its first request
                made.answer.remote(Ping())
