"""`NodeWatch`: which nodes live, and what lies on their disks, by `ray.nodes()` and probes.

Rules of this file. A probe is a small task on the node in question, with a deadline; a process
looks at its own node without one. A node that does not answer reports nothing, and holds up nobody.
`NodeWatch` asks from a thread: while the GCS is away it answers None, at its deadline and never
later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, off_loop
from pxrs_ray.topology.disk_survey import Asked, Looked, SurveyedNode, look_here
from pxrs_ray.topology.homes import SHOWN
from pxrs_ray.topology.node_seen import NodeSeen

logger = logging.getLogger(__name__)

HEAD = "node:__internal_head__"
NODES_WAIT_S = 2.0
PROBE_WAIT_S = 30.0
# A node that does not tell in this time is waited for in the background.
FIRST_WAIT_S = 1.5
ANEW_WAIT_S = 5.0
AGAIN_S = 5.0


def asked_of(config: PxrsConfig, *, make: bool) -> Asked:
    """The question that nodes are asked about a topology."""
    data_dir = str(config.data_dir.expanduser().absolute())
    return Asked(config.name, data_dir, config.store_url, config.key_prefix, make)


def draining_nodes() -> set[str]:
    """The ids of the nodes that Ray is about to take away."""
    # Ray has no public call for it.
    return set(ray._private.state.state.get_draining_nodes())


def living_nodes() -> tuple[list[NodeSeen], str]:
    """The nodes that Ray takes for living, and the id of the head. Blocks while the GCS is away."""
    found, head = [], ""
    draining = draining_nodes()
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            has, node_id = node["Resources"], node["NodeID"]
            head = node_id if HEAD in has else head
            cpus, host = float(has.get("CPU", 0)), node["NodeManagerAddress"]
            draining_now = node_id in draining
            seen = NodeSeen(node_id, host, cpus=cpus, draining=draining_now, unknown=True)
            found.append(replace(seen, labels=dict(node.get("Labels") or {})))
    return sorted(found, key=lambda node: (node.host, node.node)), head


def node_here() -> str:
    """The id of the node that this process is on."""
    return str(ray.get_runtime_context().get_node_id())


def begin_probe(node: str, asked: Asked) -> Future[Looked]:
    """Have a node looked at. The answer may never come."""
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(look_here).options(
        num_cpus=0, max_retries=0, scheduling_strategy=where, runtime_env={}
    )
    answer: Future[Looked] = task.remote(asked).future()
    return answer


def answer_to(probe: Future[Looked], end_s: float) -> Looked:
    """What a node tells until then; a node that does not has that for its problem."""
    try:
        return probe.result(max(0.0, end_s - time.monotonic()))
    except TimeoutError:
        return Looked(problem=f"it was asked and has not answered for {PROBE_WAIT_S:.0f} s")
    except Exception as error:  # noqa: BLE001 - the node went, or cannot run a task
        return Looked(problem=told(error))


def look_everywhere(asked: Asked, nodes: Iterable[NodeSeen]) -> list[SurveyedNode]:
    """What every node tells, for a driver that decides by it: blocks until all did, or the
    deadline."""
    end_s = time.monotonic() + PROBE_WAIT_S
    probes = [(node, begin_probe(node.node, asked)) for node in nodes]
    return [SurveyedNode(node.node, node.host, answer_to(probe, end_s)) for node, probe in probes]


class NodeWatch:
    """What is known of the nodes, for an event loop. Close it."""

    def __init__(self, asked: Asked) -> None:
        self.problem = ""
        # Whose terms the disks are asked for; while `minds_all`, those of every topology as well.
        self.topology_id, self.minds_all = "", True
        self._asked = asked
        self._looked: dict[str, Looked] = {}
        self._looking: dict[str, tuple[asyncio.Future[Looked | None], float]] = {}
        self._supervisor = Supervisor("nodes")
        self._tried_s: dict[str, float] = {}
        self._here = node_here()

    async def living(self) -> list[NodeSeen] | None:
        """The living nodes, with the disks that are known; None when nobody tells in time."""
        try:
            found, _ = await gcs.ask("nodes", living_nodes, NODES_WAIT_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody has told
            self.problem = f"which nodes live is not known: {told(error)}"
            return None
        self.problem = ""
        return [self._known(node) for node in found]

    async def looked(self, nodes: list[NodeSeen], wait_s: float = FIRST_WAIT_S) -> list[NodeSeen]:
        """The same nodes, after those that were not looked at yet; slow ones follow later.

        Who does not wait for them (0) has only new ones looked at.
        """
        for node in nodes:
            if wait_s > 0 or node.node not in self._looked:
                self._begin(node.node)
        pending = [look for look, _ in self._looking.values()]
        if pending:
            await asyncio.wait(pending, timeout=wait_s)
        for node_id, (look, began_s) in list(self._looking.items()):
            if look.done():
                del self._looking[node_id]
                self._note(node_id, look)
            elif time.monotonic() - began_s > PROBE_WAIT_S:
                look.cancel()
                del self._looking[node_id]
        return [self._known(node) for node in nodes]

    def _begin(self, node: str) -> None:
        known = self._looked.get(node)
        tried_s = self._tried_s.get(node, -AGAIN_S)
        settled = known is not None and (known.disk or time.monotonic() - tried_s < AGAIN_S)
        if settled or node in self._looking:
            return
        self._tried_s[node] = time.monotonic()
        self._looking[node] = (
            self._supervisor.once(f"a look at node {node[:SHOWN]}", self._look(node)),
            time.monotonic(),
        )

    async def _look(self, node: str) -> Looked:
        try:
            if node == self._here:
                return await off_loop(look_here, self._asked)
            probe = await gcs.ask("probe", partial(begin_probe, node, self._asked))
            return await asyncio.wrap_future(probe)
        except (RayError, DeadlineExceeded) as error:
            return Looked(problem=told(error))

    def _note(self, node: str, look: asyncio.Future[Looked | None]) -> None:
        found = None if look.cancelled() else look.result()
        if found is None:
            return
        if found.problem:
            logger.warning("node %s: %s", node[:8], found.problem)
        self._looked[node] = found

    async def looked_anew(self, nodes: list[NodeSeen]) -> list[NodeSeen]:
        """The same nodes as they are now, for a plan; slow ones as they were."""
        once = self._supervisor.once
        looks = {n.node: once(f"a look at {n.node[:SHOWN]}", self._look(n.node)) for n in nodes}
        if looks:
            await asyncio.wait(looks.values(), timeout=ANEW_WAIT_S)
        for node_id, look in looks.items():
            found = look.result() if look.done() else None
            look.cancel()
            if found is not None and found.disk:  # what does not tell now is as it was
                self._looked[node_id] = found
        return [self._known(node) for node in nodes]

    def has_looked(self, node: str) -> bool:
        """Whether a node has answered what is there."""
        return node in self._looked and not self._looked[node].problem

    def forget(self, node: str) -> None:
        """What was seen there is not so any more: look anew."""
        self._looked.pop(node, None)

    def places(self, nodes: Iterable[NodeSeen]) -> list[SurveyedNode]:
        """What was seen, in full."""
        return [SurveyedNode(n.node, n.host, self._looked.get(n.node, Looked())) for n in nodes]

    def _known(self, node: NodeSeen) -> NodeSeen:
        looked: Any = self._looked.get(node.node)
        if looked is None:
            return node
        slots = {trace.slot: trace.identity.age for trace in looked.traces}
        return replace(
            node,
            disk=looked.disk,
            boot=looked.boot,
            slots=slots,
            terms=looked.terms("" if self.minds_all else self.topology_id),
            own_terms=looked.terms(self.topology_id),
            unknown=False,
            free_bytes=looked.free_bytes,
        )

    def close(self) -> None:
        """Ask no more."""
        for look, _ in self._looking.values():
            look.cancel()
        self._looking.clear()
