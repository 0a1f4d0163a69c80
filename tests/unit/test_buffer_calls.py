"""What a buffer decides on one call that reads, while files are read for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pxrs_ray.data.protocol import Fetched, QueueSpec, Refused
from pxrs_ray.errors import Fenced, LogCorrupted
from pxrs_ray.log.buffer_calls import read_parts
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.read_fence import ReadFence
from tests.logs import NOW_MS, put
from tests.settings import log_limits


def test_who_is_fenced_while_a_file_is_read_for_another_partition_gets_nothing(
    tmp_path: Path,
) -> None:
    manager = LogManager(tmp_path, 0, 1, NOW_MS)
    manager.open(QueueSpec("q", 2, log_limits(tail_bytes_max=1)), {}, NOW_MS, make=True)
    for partition in (0, 1):
        for sequence in range(3):
            put(manager.log("q", partition), sequence)
    fence = ReadFence(tmp_path / "fence.jsonl")
    positions = {0: (1, 2), 1: (1, 0)}  # the newest message is in memory, the oldest is not
    parts = read_parts(manager, fence, Counter(), "q", "g", positions, 1 << 20, True)
    cold = next(parts)
    fence.fence("q", "g", {0: 2})
    with pytest.raises(StopIteration) as read:
        parts.send(cold())
    hot, other = read.value.value
    assert isinstance(hot, Refused) and isinstance(hot.error, Fenced)
    assert isinstance(other, Fetched) and other.partition == 1
    fence.close()
    manager.close()


def test_who_takes_a_disk_over_knows_what_was_written_until_the_locks_were_free(
    tmp_path: Path,
) -> None:
    """The former process has the logs, and goes on, while the next one is started."""
    before = LogManager(tmp_path, 0, 1, NOW_MS)
    before.open(QueueSpec("q", 2, log_limits()), {}, NOW_MS, make=True)
    after = LogManager(tmp_path, 0, 1, NOW_MS)
    fence = ReadFence(after.folder / "fence.jsonl")
    after.taken_over = fence.another_wrote
    assert before.producers.begin("q", "p", 7, "token")
    former = ReadFence(before.folder / "fence.jsonl")
    former.fence("q", "g", {0: 5})
    former.close()
    before.abandon()
    for place in after.due(10_000):
        after.mend(place, NOW_MS, 10_000)
    known = after.producers.begin("q", "p", 6, "another")
    assert known is not None and known.number == 7
    with pytest.raises(Fenced):
        fence.check("q", "g", 0, 4)
    fence.fence("q", "g", {1: 9})
    kept = ReadFence(after.folder / "fence.jsonl")
    assert kept.epochs("q", "g") == {0: 5, 1: 9}, "both lie in the file that has the name"
    for each in (fence, kept):
        each.close()
    after.close()


def test_a_start_that_fails_leaves_no_lock_behind(tmp_path: Path) -> None:
    before = LogManager(tmp_path, 0, 1, NOW_MS)
    before.open(QueueSpec("q", 1, log_limits()), {}, NOW_MS, make=True)
    before.producers.begin("q", "p", 7, "token")
    before.close()
    kept = before.folder / "producers.json"
    sound = kept.read_bytes()
    kept.write_bytes(b"no list of producers")
    with pytest.raises(LogCorrupted):
        LogManager(tmp_path, 0, 1, NOW_MS)
    kept.write_bytes(sound)
    after = LogManager(tmp_path, 0, 1, NOW_MS)
    after.open(QueueSpec("q", 1, log_limits()), {}, NOW_MS, make=False)
    assert after.log("q", 0).state == "open"
    after.close()
