"""A cluster of two nodes, of which one is drained by `pxrs drain`. Run as a program; it has a Ray
of its own. See test_nodes.py.

Both nodes show one disk here, so nothing is copied: tests/hosts has disks of their own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import ray
from ray.cluster_utils import Cluster

from pxrs_ray.cli.root import run
from tests.actors.load import Load
from tests.actors.own_cluster import on_a_cluster, working
from tests.actors.recording import eventually
from tests.actors.two_nodes import GROUP, nodes_of, spread
from tests.light_ray import NODE


def main() -> None:
    """Drain the node, and print what was seen; the cluster is gone at the end."""
    on_a_cluster(3, drain)


def pxrs(*arguments: str) -> tuple[int, str, str]:
    """Run a command as a terminal would."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(arguments)
    return status, out.getvalue(), err.getvalue()


def on(node: str) -> Callable[[], Any]:
    def look() -> Any:
        status, out, _ = pxrs("status", "--json")
        return status == 0 and [p["buffer"] for p in json.loads(out)["places"] if p["node"] == node]

    return look


def drain(cluster: Cluster) -> dict[str, Any]:
    second = cluster.add_node(num_cpus=2, **NODE).node_id
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    head = ray.get_runtime_context().get_node_id()
    told: dict[str, Any] = {}
    with working("drained", GROUP, 2, partitions=8, durability="always") as found:
        topology, group, notebook = found.topology, found.group, found.notebook
        with Load(topology, 100) as load:
            eventually(lambda: spread(group, second), 60)
            told["buffers_there"] = eventually(on(second), 60)
            status, out, _ = pxrs("plan", "--drain", second, "--json")
            (plan,) = json.loads(out)
            told["plan"] = [status, [move["buffer"] for move in plan["moves"]], plan["cannot"]]
            told["consumers_hand_over"] = len(plan["consumers"])
            told["head"] = pxrs("drain", head, "--yes")
            told["unknown"] = pxrs("drain", "nonsense", "--yes")
            told["both"] = pxrs("drain", second, "g-0")
            told["drained"] = pxrs("drain", second[:8], "--deadline", "90")
            told["left"] = on(second)()
            told["consumers_left"] = [n for n in nodes_of(group).values() if n == second]
        eventually(lambda: group.lag() == 0, 60)
        done = notebook.notes()
        told["sent"], told["processed"] = load.sent, len({note.payload for note in done})
        topology.shutdown()
    return told


if __name__ == "__main__":
    main()
    sys.exit(0)
