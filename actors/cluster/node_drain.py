"""Drains a Ray node, from a driver: what `ray drain-node` and the autoscaler do.

Rules of this file. Ray does not take a drain back, and ends nothing at the deadline: the owner of
the host does. The head is never drained, because all of Ray ends with it. `DrainWatch` of every
topology sees the drain within a second, and empties the node.
"""

from __future__ import annotations

from contextlib import suppress

import ray

from pxrs_ray.actors.cluster.node_watch import living_nodes
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.topology.homes import SHOWN
from pxrs_ray.topology.move_plan import find_node
from pxrs_ray.topology.node_seen import NodeSeen

# DRAIN_NODE_REASON_PREEMPTION of Ray's autoscaler protocol: the host goes, idle or not.
PREEMPTION = 2


def node_to_drain(wanted: str) -> NodeSeen:
    """The living node of that host's address or id; one that is drained already may be drained
    again, and is waited for. Raises NotFound, UsageError for the head, or for the only node."""
    nodes, head = living_nodes()
    node = find_node(nodes, wanted)
    if len(nodes) == 1:
        raise UsageError(f"host {node.host} is the only node of this cluster: add one first")
    if node.node == head:
        raise UsageError(
            f"host {node.host} is the head of this Ray cluster, and all of Ray ends with it: it "
            "cannot be drained. `pxrs down FILE` stops a topology"
        )
    return node


def node_called(wanted: str) -> NodeSeen | None:
    """The living node of that host's address or id, the head as well; None when there is none."""
    with suppress(NotFound):
        return find_node(living_nodes()[0], wanted)
    return None


def nodes_told() -> str:
    """The living nodes, by host and id."""
    return ", ".join(f"{node.host} ({node.node[:SHOWN]})" for node in living_nodes()[0])


def begin_drain(node: str, deadline_s: float) -> None:
    """Have Ray mark a node as one that goes after so many seconds. Raises UsageError when it
    refuses."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # there is no public call

    client = GcsClient(address=ray.get_runtime_context().gcs_address)
    end_ms = wall_ms() + round(deadline_s * 1_000)
    accepted, why = client.drain_node(node, PREEMPTION, "pxrs drain", end_ms)
    if not accepted:
        raise UsageError(f"Ray does not drain node {node[:8]}: {why}")
