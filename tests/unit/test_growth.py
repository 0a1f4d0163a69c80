"""What a buffer and a member do costs by what changes, and nothing by what sleeps."""

from __future__ import annotations

from pathlib import Path

from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.log.log_manager import LogManager
from tests.logs import NOW_MS
from tests.settings import log_limits

LIMITS = log_limits()


def test_opening_a_queue_touches_the_logs_of_no_other(tmp_path: Path) -> None:
    manager = LogManager(tmp_path, 0, 1, NOW_MS)
    for queue in ("a", "b"):
        manager.open(QueueSpec(queue, 4, LIMITS), {}, NOW_MS, make=True)
    before = {log: log.changes for log in manager.all_logs()}
    manager.open(QueueSpec("b", 4, LIMITS), {}, NOW_MS, make=False)
    changed = [log.queue for log, changes in before.items() if log.changes != changes]
    assert "a" not in changed
    manager.close()
