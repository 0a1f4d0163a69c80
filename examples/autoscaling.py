"""Consumers follow the lag, and nodes follow the consumers.

    export RAY_ADDRESS=auto                   # the cluster here, whose autoscaler can add nodes
    python examples/autoscaling.py trace.png  # load for 40 s, then little; plots what happened

Each consumer asks Ray for a piece of the resource `worker`. When load rises the group asks for more
consumers; those that find no room make the Ray autoscaler add nodes; when the load has gone the
consumers are drained, and their empty nodes are removed. Without RAY_ADDRESS it starts a local Ray,
where there is room from the beginning.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from pxrs_ray import Delivery, PxrsConfig, QueueConfig, Topology, deploy

PARTITIONS = 8
CONSUMERS_MAX = 4
WORK_S = 0.002
CALM_S, MESSAGES_A_SECOND = 35.0, 1_200
SCALING = {
    "consumers_max": CONSUMERS_MAX,
    "target_lag_ms": 2_000,
    "drain_ms": 5_000,
    "settle_ms": 4_000,
    "calm_ms": 8_000,
}


class OneAtATime:
    """A handler that can do one thing at a time, as one with a GPU or a paid API would."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes = Path(tempfile.gettempdir()) / "pxrs-autoscaling-notes"

    def handle(self, message: Delivery) -> None:
        """Work, and note what was worked on."""
        with self._lock:
            time.sleep(WORK_S)
            with (self._notes / str(threading.get_ident())).open("a") as file:
                file.write(f"{message.partition}:{message.offset}\n")


@dataclass
class Trace:
    """What was seen, moment by moment."""

    seconds: list[float] = field(default_factory=list)
    lag: list[int] = field(default_factory=list)
    consumers: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    def look(self, seconds: float, group: Any) -> None:
        """Note one moment."""
        status = group.status()
        self.seconds.append(seconds)
        self.lag.append(status.lag)
        self.consumers.append(sum(c.state == "running" for c in status.consumers))
        self.nodes.append(sum(node["Alive"] for node in ray.nodes()))  # type: ignore[no-untyped-call]

    def plot(self, file: Path) -> None:
        """Write lag, consumers and nodes over time as a picture."""
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(9, 5))
        top.plot(self.seconds, self.lag, color="tab:red")
        top.set_ylabel("messages waiting")
        bottom.step(self.seconds, self.consumers, where="post", label="consumers")
        bottom.step(self.seconds, self.nodes, where="post", label="nodes", linestyle="--")
        bottom.set_xlabel("seconds")
        bottom.legend()
        figure.tight_layout()
        figure.savefig(file, dpi=110)
        plt.close(figure)


def send(topology: Topology, busy_s: float) -> int:
    """Much for a while, then little; answers how many messages that was."""
    sent = 0
    with topology.producer("work") as producer:
        for rate, seconds in ((MESSAGES_A_SECOND, busy_s), (50, busy_s / 4)):
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                for _ in range(rate // 20):
                    producer.send(b"key-%d" % (sent % 997), b"x")
                    sent += 1
                time.sleep(0.05)
    return sent


def run(topology: Topology, busy_s: float) -> tuple[Trace, int]:
    """Send and look, until everything is done and the consumers have gone back to one."""
    group = topology.group(
        "workers",
        queue="work",
        scaling=SCALING,
        ray_options={"num_cpus": 0, "resources": {"worker": 1}},
    )
    group.start(OneAtATime, consumers=1)
    trace, sent = Trace(), []
    sending = threading.Thread(target=lambda: sent.append(send(topology, busy_s)))
    sending.start()
    started_s = time.monotonic()
    nodes_before = None
    while (seconds := time.monotonic() - started_s) < 2 * busy_s + 3 * CALM_S:
        trace.look(seconds, group)
        nodes_before = nodes_before or trace.nodes[0]
        rested = trace.lag[-1] == 0 and trace.consumers[-1] == 1
        if not sending.is_alive() and rested and trace.nodes[-1] <= nodes_before:
            break
        time.sleep(1)
    sending.join()
    return trace, sent[0]


def main(arguments: list[str]) -> None:
    """See the head of this file."""
    busy_s = float(arguments[1]) if len(arguments) > 1 else 40.0
    if not ray.is_initialized():
        if os.environ.get("RAY_ADDRESS", "local") != "local":
            ray.init(log_to_driver=False)
        else:
            resources = {"worker": float(CONSUMERS_MAX)}
            ray.init("local", num_cpus=4, resources=resources, log_to_driver=False)
    notes = Path(tempfile.gettempdir()) / "pxrs-autoscaling-notes"
    notes.mkdir(exist_ok=True)
    for old in notes.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        queues = {"work": QueueConfig(partitions=PARTITIONS)}
        topology = deploy(
            PxrsConfig(name="autoscaling", data_dir=Path(folder), buffers=1, queues=queues)
        )
        try:
            trace, sent = run(topology, busy_s)
        finally:
            topology.shutdown()
    worked = Counter(line for file in notes.iterdir() for line in file.read_text().split())
    shutil.rmtree(notes)
    if arguments:
        trace.plot(Path(arguments[0]))
    print(
        json.dumps(
            {
                "sent": sent,
                "worked": len(worked),
                "redelivered": sum(worked.values()) - len(worked),
                "consumers": [trace.consumers[0], max(trace.consumers), trace.consumers[-1]],
                "nodes": [trace.nodes[0], max(trace.nodes), trace.nodes[-1]],
                "lag_most": max(trace.lag),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
