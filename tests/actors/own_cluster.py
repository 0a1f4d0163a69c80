"""What programs with a Ray of their own begin with: a cluster of nodes, and a topology on it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from pxrs_ray.actors.client.group import Group
from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from tests.actors.recording import Notebook, Recorder
from tests.light_ray import NODE, begin_no_workers_ahead

# A node that is silent counts as dead after about two seconds; Ray usually waits for thirty.
NOTICE = {
    "health_check_initial_delay_ms": 1_000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2_000,
    "health_check_failure_threshold": 4,
}


def on_a_cluster(num_cpus: int, scene: Callable[[Cluster], dict[str, Any]]) -> None:
    """Run a scene on a cluster that has a head, and print what was seen; it is gone at the end."""
    begin_no_workers_ahead()
    head = {"include_dashboard": False, "_system_config": NOTICE, **NODE, "num_cpus": num_cpus}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        told = scene(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()  # it also takes back that new drivers on this machine join it
    print(json.dumps(told))


@dataclass(frozen=True)
class Working:
    """A topology with a queue `q`, and a group `g` that records what it handles."""

    topology: Topology
    group: Group
    notebook: Notebook


@contextmanager
def working(name: str, group: GroupConfig, buffers: int, **queue: Any) -> Iterator[Working]:
    """Deploy it, and start as many consumers as the group is to have."""
    with tempfile.TemporaryDirectory(prefix=f"pxrs-{name}-") as folder:
        notes = Path(folder, "notes")
        notes.mkdir()
        config = PxrsConfig(
            name=name,
            data_dir=Path(folder),
            buffers=buffers,
            linger_ms=1,
            queues={"q": QueueConfig(**queue)},
            groups={"g": group},
        )
        topology = deploy(config)
        started = topology.group("g").start(Recorder(notes), consumers=group.consumers)
        yield Working(topology, started, Notebook(notes))
