"""A node that the autoscaler added, with a log on it, and then nothing else. Run as a program.

It has a Ray of its own, so it runs in a process of its own: see tests/examples.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import ray

from pxrs_ray.actors.cluster.node_drain import begin_drain
from pxrs_ray.config import GroupConfig
from tests.actors.own_cluster import working
from tests.actors.recording import eventually
from tests.autoscaling_cluster import AutoscaledCluster

IDLE_S = 4.0
SENT = 300
# How long each step may take: on a machine that others use, the autoscaler takes a minute for one.
WAIT_S = 150.0
# The autoscaler looks every second, and ends a node that has been idle for IDLE_S.
LOOKS_S = 3 * IDLE_S


@ray.remote(num_cpus=0, resources={"worker": 1})
class Asking:
    """Asks for a node."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def alive(node: str) -> bool:
    return any(n["NodeID"] == node and n["Alive"] for n in ray.nodes())  # type: ignore[no-untyped-call]


def scene() -> dict[str, Any]:
    # Detached: Ray takes a waiting actor for nobody's when its owner answers too late, as a process
    # does on a busy machine, and ends it.
    asking = Asking.options(name="asking", lifetime="detached").remote()  # type: ignore[attr-defined]
    second = ray.get(asking.node.remote(), timeout=240)
    told: dict[str, Any] = {}
    with working("scaled", GroupConfig(queue="q", consumers=1), 2, partitions=4) as found:
        topology, group, notebook = found.topology, found.group, found.notebook

        def there() -> list[int]:
            return [p.buffer for p in topology.status().places if p.node == second]

        told["there"] = eventually(there, WAIT_S)
        ray.kill(asking)
        with topology.producer("q") as producer:
            for number in range(SENT):
                producer.send(b"k%d" % (number % 20), b"%d" % number)
            time.sleep(LOOKS_S)
            told["kept"] = alive(second)
            told["served"] = eventually(lambda: group.lag() == 0, WAIT_S)
            begin_drain(second, 60)
            told["moved"] = eventually(lambda: not there(), WAIT_S)
            told["gone"] = eventually(lambda: not alive(second), WAIT_S)
            for number in range(SENT, 2 * SENT):
                producer.send(b"k%d" % (number % 20), b"%d" % number)
        eventually(lambda: group.lag() == 0, WAIT_S)
        told["sent"] = 2 * SENT
        told["processed"] = len({note.payload for note in notebook.notes()})
        told["problems"] = [str(each) for each in topology.status().reports]
        topology.shutdown()
    return told


def main() -> None:
    """Print what was seen; the cluster is gone at the end."""
    with AutoscaledCluster({"CPU": 1, "worker": 1}, 1, head_cpus=2, idle_s=IDLE_S) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        try:
            told = scene()
        finally:
            ray.shutdown()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
    sys.exit(0)
