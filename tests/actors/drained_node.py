"""A cluster of two nodes, of which one is drained by `pxrs drain`. Run as a program; it has a Ray
of its own. See test_nodes.py.

Both nodes show one disk here, so nothing is copied: tests/hosts has disks of their own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from pxrs_ray.actors.client.topology import deploy
from pxrs_ray.cli.root import run
from pxrs_ray.config import PxrsConfig, QueueConfig
from tests.actors.load import Load
from tests.actors.recording import Notebook, Recorder, eventually
from tests.actors.two_nodes import GROUP, NOTICE, nodes_of, spread


def main() -> None:
    """Drain the node, and print what was seen; the cluster is gone at the end."""
    head = {"num_cpus": 3, "include_dashboard": False, "_system_config": NOTICE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        told = drain(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(told))


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
    second = cluster.add_node(num_cpus=2).node_id
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    head = ray.get_runtime_context().get_node_id()
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pxrs-drained-") as folder:
        notes = Path(folder, "notes")
        notes.mkdir()
        notebook = Notebook(notes)
        config = PxrsConfig(
            name="drained",
            data_dir=Path(folder),
            buffers=2,
            linger_ms=1,
            queues={"q": QueueConfig(partitions=8, durability="always")},
            groups={"g": GROUP},
        )
        topology = deploy(config)
        group = topology.group("g").start(Recorder(notes), consumers=4)
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
