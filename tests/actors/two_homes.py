"""A cluster of two nodes that show one disk, of which the one with the coordinator goes.

Run as a program: it has a Ray of its own. See test_nodes.py.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from pxrs_ray.actors import names
from pxrs_ray.actors.client.queue_reader import QueueReader
from pxrs_ray.actors.client.topology import deploy
from pxrs_ray.actors.cluster.actor_process import whereabouts
from pxrs_ray.actors.coordinator.coordinator_actor import make_coordinator
from pxrs_ray.config import PxrsConfig, QueueConfig
from tests.actors.own_cluster import on_a_cluster
from tests.actors.recording import eventually
from tests.light_ray import NODE

COUNT = 400
WAIT_S = 60


def main() -> None:
    """Lose the node, and print what was seen; the cluster is gone at the end."""
    on_a_cluster(2, lose_the_coordinators_node)


def node_of(actor: str) -> str:
    found = whereabouts(actor)
    return found.node if found is not None and found.state == "ALIVE" else ""


def lose_the_coordinators_node(cluster: Cluster) -> dict[str, Any]:
    second = cluster.add_node(num_cpus=2, **NODE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pxrs-homes-") as folder:
        config = PxrsConfig(
            name="homes",
            data_dir=Path(folder),
            buffers=2,
            linger_ms=1,
            lease_ttl_seconds=2.0,
            queues={"q": QueueConfig(partitions=4, durability="always")},
        )
        make_coordinator(config, 2, second.node_id)
        topology = deploy(config)
        coordinator = names.coordinator("homes")
        buffers = [names.buffer("homes", index) for index in (0, 1)]
        told["coordinator_on_second"] = node_of(coordinator) == second.node_id
        told["buffers_on"] = len({node_of(each) for each in buffers})
        with topology.producer("q") as producer:
            receipts = [producer.send(f"k{n}", b"%d" % n) for n in range(COUNT)]
            for receipt in receipts:
                receipt.result(30)
            cluster.remove_node(second, allow_graceful=False)
            gone_s = time.monotonic()
            eventually(lambda: node_of(coordinator) not in ("", second.node_id), WAIT_S)
            told["coordinator_back_s"] = time.monotonic() - gone_s
            more = [producer.send(f"k{n}", b"%d" % n) for n in range(COUNT, 2 * COUNT)]
            for receipt in more:
                receipt.result(WAIT_S)
        told["buffers_back"] = all(node_of(each) not in ("", second.node_id) for each in buffers)
        ends = QueueReader.of(topology, "q").ends()
        told["kept"] = sum(end.end_offset - end.start_offset for end in ends.values())
        told["gaps"] = sum(len(end.gaps) for end in ends.values())
        status = eventually(topology.status, WAIT_S)
        told["problems"] = [str(report) for report in status.reports]
        topology.shutdown()
        # The whole of it again, by what lies on the disk.
        ends = QueueReader.of(deploy(config), "q").ends()
        told["kept_again"] = sum(end.end_offset - end.start_offset for end in ends.values())
        topology.shutdown()
    return told


if __name__ == "__main__":
    main()
    sys.exit(0)
