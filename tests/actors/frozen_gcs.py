"""A cluster whose GCS stands still for a while, with everything at work. Run as a program.

It has a Ray of its own, and freezes the `gcs_server` that this Ray made, no other; see test_gcs.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray

from pxrs_ray.config import GroupConfig
from pxrs_ray.status.problem import Kind
from tests.actors.load import Load
from tests.actors.own_cluster import working
from tests.actors.recording import Notebook, eventually

FROZEN_S = 9.0
LEASE_S = 3.0
GROUP = GroupConfig(
    queue="q", consumers=3, commit_interval_ms=50, lease_ttl_seconds=LEASE_S, respawn=True
)


def gcs_of_ours() -> int:
    """The process of the GCS that this very program started."""
    node = ray._private.worker._global_node
    assert node is not None
    [made] = node.all_processes["gcs_server"]
    pid = int(made.process.pid)
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    assert "gcs_server" in told[0] and int(told[2].split()[1]) == os.getpid(), told
    return pid


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        print(json.dumps(freeze(gcs_of_ours())))
    finally:
        ray.shutdown()


def freeze(gcs: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    with working("frozen-gcs", GROUP, 1, partitions=6) as found:
        topology, group, notebook = found.topology, found.group, found.notebook
        with Load(topology, 150) as load:
            eventually(lambda: len(notebook.notes()) > 200, 60)
            before = eventually(lambda: len(group.status().owners) == 3 and group.status(), 30)
            # Nobody forgets to thaw it, whatever is wrong in between.
            thaw = threading.Timer(FROZEN_S, os.kill, (gcs, signal.SIGCONT))
            os.kill(gcs, signal.SIGSTOP)
            began_s = time.monotonic()
            thaw.start()
            try:
                told |= _while_frozen(topology, group, notebook, before)
                told["seen_in_s"] = time.monotonic() - began_s
            finally:
                thaw.join()
                os.kill(gcs, signal.SIGCONT)

            def healed() -> Any:
                running = [c for c in group.status().consumers if c.state == "running"]
                return len(running) == 3 and not _gcs_problems(topology)

            eventually(healed, 60)
            told["healed"] = True
        eventually(lambda: group.lag() == 0, 60)
        done = {note.payload for note in notebook.notes()}
        told["sent"], told["processed"] = load.sent, len(done)
        notes_by_token = {(n.partition, n.epoch, n.offset, n.pid) for n in notebook.notes()}
        owners = {(partition, epoch): set[int]() for partition, epoch, _, _ in notes_by_token}
        for partition, epoch, _, pid in notes_by_token:
            owners[partition, epoch].add(pid)
        told["epochs_of_two"] = sum(len(pids) > 1 for pids in owners.values())
        topology.shutdown()
    return told


def _gcs_problems(topology: Any) -> list[str]:
    return [r.text for r in topology.status().reports if r.kind is Kind.GCS_AWAY]


def _while_frozen(topology: Any, group: Any, notebook: Notebook, before: Any) -> dict[str, Any]:
    told: dict[str, Any] = {}
    victim = next(c for c in before.consumers if c.state == "running")
    mine = set(before.owners[victim.member])
    epochs = {p.partition: p.epoch for p in before.partitions}
    killed_s = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)

    def taken() -> Any:
        newer = {n.partition for n in notebook.notes() if n.epoch > epochs[n.partition]}
        return mine <= newer

    eventually(taken, 2 * LEASE_S, "others work what the killed one had")
    told["takeover_s"] = time.monotonic() - killed_s
    answers, checkpoints = list[float](), list[int]()
    while time.monotonic() - killed_s < FROZEN_S - 2:
        asked_s = time.monotonic()
        status = group.status()
        answers.append(time.monotonic() - asked_s)
        checkpoints.append(sum(p.checkpoint for p in status.partitions))
        told["problem"] = "; ".join(_gcs_problems(topology))
        time.sleep(0.3)
    told["status_longest_s"] = max(answers)
    told["committed"] = checkpoints[-1] - checkpoints[0]
    return told


if __name__ == "__main__":
    main()
    sys.exit(0)
