"""What a Ray of the tests does without: it takes of the two cores that all tests share.

No test reads the logs of workers through Ray, whose monitor looks at each file of each of hundreds
of workers all the time, nor asks the agents, who look at each process as often. Workers that were
begun ahead of need are killed with their node. What a process of Ray loads before its first
statement is loaded once for all of a node: see `warm_ray`.
The tests of the command line, where all is installed and begun as users do it, do without nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

NO_WORKERS_AHEAD = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}
# No test asks the agent of a node how each of its processes does.
AGENTS_LOOK_SELDOM = {"REPORTER_UPDATE_INTERVAL_MS": "600000"}
# Of a node that is added to a `ray.cluster_utils.Cluster`.
NODE = {"include_log_monitor": False}

# Where it is on PYTHONPATH, programs of Ray are begun by forks.
WARM = Path(__file__).with_name("warm_ray")
# Where this is set, Ray begins them itself, as it does for users.
COLD = "PXRS_TEST_COLD_RAY"


def python_path(*folders: str | Path) -> str:
    """PYTHONPATH of these folders for processes that may start Ray."""
    warm = () if os.environ.get(COLD) else (WARM,)
    return os.pathsep.join(map(str, (*warm, *folders)))


def begin_processes_by_forks() -> None:
    """Those of every Ray that children of this process start from now on."""
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(WARM) not in found:
        os.environ["PYTHONPATH"] = python_path(*filter(None, found))


def begin_no_workers_ahead() -> None:
    """For every node that this process and its children start from now on."""
    os.environ.update(NO_WORKERS_AHEAD)


def let_agents_look_seldom() -> None:
    """For every node that this process and its children start from now on."""
    os.environ.update(AGENTS_LOOK_SELDOM)


def end_log_monitor() -> None:
    """Of the Ray that this process has just started."""
    from ray._private.worker import _global_node

    _global_node.kill_log_monitor(check_alive=False)
