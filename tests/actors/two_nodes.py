"""A cluster of two nodes, of which one goes: without warning, then drained. Run as a program.

It has a Ray of its own, so it runs in a process of its own; see test_nodes.py.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import ray
from ray.cluster_utils import Cluster

from pxrs_ray.config import GroupConfig
from tests.actors.load import Load
from tests.actors.own_cluster import on_a_cluster, working
from tests.actors.recording import eventually
from tests.light_ray import NODE

DRAIN_PREEMPTION = 2


def nodes_of(group: Any) -> dict[str, str]:
    return {c.member: c.node for c in group.status().consumers if c.state == "running"}


def spread(group: Any, node: str) -> Any:
    """The status once everybody owns something, and somebody does so on `node`."""
    status = group.status()
    shares = [len(owned) for owned in status.owners.values()]
    fair = sum(shares) == 8 and len(shares) == 4
    return fair and node in nodes_of(group).values() and status


GROUP = GroupConfig(
    queue="q",
    consumers=4,
    commit_interval_ms=50,
    lease_ttl_seconds=2.0,
    ray_options={"num_cpus": 0.5, "scheduling_strategy": "SPREAD"},
)


def main() -> None:
    """Lose a node, drain another, and print what was seen; the cluster is gone at the end."""
    on_a_cluster(3, lose_and_drain)


def lose_and_drain(cluster: Cluster) -> dict[str, Any]:
    second = cluster.add_node(num_cpus=2, **NODE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    told: dict[str, Any] = {}
    with working("nodes", GROUP, 2, partitions=8) as found:
        topology, group, notebook = found.topology, found.group, found.notebook
        with Load(topology, 200) as load:
            lost = second.node_id
            before = eventually(lambda: spread(group, lost), 60)
            there = {member for member, node in nodes_of(group).items() if node == lost}
            eventually(lambda: len(notebook.notes()) > 200)
            at_s = time.time()
            cluster.remove_node(second, allow_graceful=False)
            mine = {p for member in there for p in before.owners[member]}
            epochs = {p.partition: p.epoch for p in before.partitions}

            def taken() -> Any:
                newer = {n.partition for n in notebook.notes() if n.epoch > epochs[n.partition]}
                return mine <= newer

            eventually(taken, 60)
            told["node_loss_takeover_s"] = time.time() - at_s
            eventually(lambda: len(nodes_of(group)) == 4, 60)

            third = cluster.add_node(num_cpus=2, **NODE)
            group.scale(2)
            group.scale(4)
            eventually(lambda: spread(group, third.node_id), 60)
            version = group.status().version
            began_s = time.time()
            drain(third.node_id)
            eventually(
                lambda: len(nodes_of(group)) == 4 and third.node_id not in nodes_of(group).values(),
                60,
            )
            told["drain_s"] = time.time() - began_s

            def causes() -> Any:
                return sorted({c.cause for c in group.history(version) if c.kind == "release"})

            # The new ones are there before the old ones have handed over.
            told["drain_causes"] = eventually(causes, 60)
        eventually(lambda: group.lag() == 0, 60)
        done = notebook.notes()
        told["sent"], told["processed"] = load.sent, len({note.payload for note in done})
        again = [note for note in done if note.at_s > began_s]
        told["repeated_in_drain"] = len(again) - len({n.payload for n in again})
        topology.shutdown()
    return told


def drain(node: str) -> None:
    """What Ray does with a node that is about to be taken away."""
    from ray._raylet import GcsClient

    client = GcsClient(address=ray.get_runtime_context().gcs_address)
    deadline_ms = int(time.time() * 1_000) + 60_000
    accepted, why = client.drain_node(node, DRAIN_PREEMPTION, "test", deadline_ms)
    assert accepted, why


if __name__ == "__main__":
    main()
    sys.exit(0)
