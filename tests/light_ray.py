"""What a Ray of the tests does without: it takes of the two cores that all tests share.

No test reads the logs of workers through Ray, whose monitor looks at each file of each of hundreds
of workers all the time; and workers that were begun ahead of need are killed with their node.
"""

from __future__ import annotations

import os

NO_WORKERS_AHEAD = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}
# Of a node that is added to a `ray.cluster_utils.Cluster`.
NODE = {"include_log_monitor": False}


def begin_no_workers_ahead() -> None:
    """For every node that this process and its children start from now on."""
    os.environ.update(NO_WORKERS_AHEAD)


def end_log_monitor() -> None:
    """Of the Ray that this process has just started."""
    from ray._private.worker import _global_node

    _global_node.kill_log_monitor(check_alive=False)
