"""What a buffer and a member do costs by what changes, and nothing by what sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pxrs_ray.actors.buffer.log_writer import MANY_LOGS, SYNC_THREADS, in_threads
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import LogAway, LogError
from pxrs_ray.files import Files
from pxrs_ray.log.cold_pace import BUSY_BYTES_PER_S, READ_PART, REST_MOST_S, ColdPace
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.retained import TICK_MS
from tests.logs import NOW_MS, put
from tests.settings import log_limits

LIMITS = log_limits()
LOGS = 12


def retained(manager: LogManager, now_ms: int) -> list[int]:
    """A round of retention; which partitions it looked at."""
    logs = manager.to_retain(now_ms)
    for log in logs:
        log.retain(now_ms)
    return sorted(log.partition for log in logs)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """Many logs that retention and mends have looked at, and that sleep now."""
    made = LogManager(tmp_path, 0, 1, NOW_MS)
    limits = log_limits(retention_ms=10_000)
    made.open(QueueSpec("q", LOGS, limits), {}, NOW_MS, make=True)
    assert retained(made, NOW_MS) == list(range(LOGS)) and made.due(0) == []
    for partition in (7, 8):
        put(made.log("q", partition), 0)
    assert retained(made, NOW_MS) == [7, 8]
    yield made
    made.close()


def test_retention_looks_at_what_changes_or_comes_of_age_and_at_nothing_that_sleeps(
    manager: LogManager,
) -> None:
    assert retained(manager, NOW_MS + 1) == [], "nothing has changed"
    assert retained(manager, NOW_MS + 10_000) == []
    put(manager.log("q", 7), 1, timestamp_ms=NOW_MS + 5_000)
    assert retained(manager, NOW_MS + 10_000) == [7]
    assert retained(manager, NOW_MS + 10_001) == [8], "that is of age, and 7 is younger now"
    assert retained(manager, NOW_MS + 10_001) == [8], "what was dropped is a change"
    assert retained(manager, NOW_MS + 15_001) == [7]
    assert [manager.log("q", p).size_bytes for p in (7, 8)] == [manager.log("q", 0).size_bytes] * 2


def test_retention_that_waits_for_a_reader_goes_on_when_it_has_passed(manager: LogManager) -> None:
    log = manager.log("q", 7)
    log.passed("slow", 0)
    late_ms = NOW_MS + 20_000
    assert retained(manager, late_ms) == [7, 8]
    retained(manager, late_ms)
    assert retained(manager, late_ms + 60_000) == [] and log.start_offset == 0
    log.passed("slow", 1)
    assert retained(manager, late_ms + 60_000) == [7] and log.start_offset == 1


def test_retention_that_failed_is_tried_in_the_next_round(manager: LogManager) -> None:
    late_ms = NOW_MS + 20_000
    assert [log.partition for log in manager.to_retain(late_ms)] == [7, 8], "and nobody retains"
    assert retained(manager, late_ms) == [7, 8]


def test_what_is_known_of_producers_ages_in_logs_that_sleep(manager: LogManager) -> None:
    late_ms = NOW_MS + 20_000
    retained(manager, late_ms)
    retained(manager, late_ms)
    assert retained(manager, late_ms + TICK_MS - 1) == []
    assert retained(manager, late_ms + TICK_MS) == [7, 8]


def test_a_mend_looks_at_logs_that_changed_and_finds_each_that_failed(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.due(0)
    looked = []
    ails = manager._ails
    monkeypatch.setattr(manager, "_ails", lambda place: looked.append(place) or ails(place))
    assert manager.due(0) == [] and looked == []
    with pytest.raises(LogAway):
        manager.log("q", 9)._fail("cannot be written", OSError("a broken disk"))
    assert manager.due(0) == [("q", 9)] and set(looked) == {("q", 9)}
    assert manager.due(0) == [("q", 9)], "until it is mended"
    assert manager.mend(("q", 9), NOW_MS, 0) and manager.due(0) == []


def test_a_coordinator_hears_the_ends_of_what_has_changed_since_it_heard_them(
    tmp_path: Path,
) -> None:
    manager = LogManager(tmp_path, 0, 1, NOW_MS)
    for make in (True, False):
        manager.open(QueueSpec("q", LOGS, LIMITS, queue_id="1"), {}, NOW_MS, make=make)
    assert manager.known_ends() == {"1": dict.fromkeys(range(LOGS), 0)}
    heard = manager.changed.newest
    assert manager.known_ends(heard) == {}
    put(manager.log("q", 3), 0)
    assert manager.known_ends(heard) == {"1": {3: 1}}
    assert manager.known_ends(manager.changed.newest) == {}
    manager.close()


def test_opening_a_queue_touches_the_logs_of_no_other(tmp_path: Path) -> None:
    manager = LogManager(tmp_path, 0, 1, NOW_MS)
    for queue in ("a", "b"):
        manager.open(QueueSpec(queue, 4, LIMITS), {}, NOW_MS, make=True)
    before = {log: log.changes for log in manager.all_logs()}
    manager.open(QueueSpec("b", 4, LIMITS), {}, NOW_MS, make=False)
    changed = [log.queue for log, changes in before.items() if log.changes != changes]
    assert "a" not in changed
    manager.close()


def read_for(seconds: float, appended_per_s: float) -> float:
    """A reader of a backlog that would read 1 GB/s; how many bytes a second it gets."""
    pace, now_s, read = ColdPace(0.0), 0.0, 0
    while now_s < seconds:
        rest_s = pace.rest_s(now_s)
        assert rest_s <= REST_MOST_S
        now_s += rest_s + 0.001
        read += 1_000_000
        pace.read(1_000_000, round(appended_per_s * now_s), now_s)
    return read / now_s


def test_a_backlog_is_read_at_a_part_of_what_is_appended_and_freely_where_that_is_little() -> None:
    for appended_per_s in (2 * BUSY_BYTES_PER_S, 300e6):
        part = read_for(200.0, appended_per_s) / appended_per_s
        assert READ_PART * 0.9 < part < READ_PART * 1.2
    assert read_for(5.0, 0.0) > 900e6
    assert read_for(5.0, 0.5 * BUSY_BYTES_PER_S) > 900e6


def test_a_reader_of_a_backlog_is_held_up_no_longer_than_the_appends_last() -> None:
    pace, now_s = ColdPace(0.0), 0.0
    for _ in range(100):
        now_s += 0.01
        pace.read(8 << 20, round(2 * BUSY_BYTES_PER_S * now_s), now_s)
    assert 0 < pace.rest_s(now_s) <= REST_MOST_S
    appended = round(2 * BUSY_BYTES_PER_S * now_s)
    now_s += 1.0
    pace.read(8 << 20, appended, now_s)
    now_s += 0.2
    pace.read(8 << 20, appended, now_s)
    assert pace.rest_s(now_s) == 0


class SlowFiles(Files):
    """A disk that takes a moment to sync, and how many waited for it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0

    def sync(self, fd: int) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.01)
        super().sync(fd)
        with self._lock:
            self._now -= 1


def test_many_logs_wait_for_the_disk_together_when_they_are_made_opened_and_closed(
    tmp_path: Path,
) -> None:
    spec = QueueSpec("q", MANY_LOGS, LIMITS, queue_id="one")
    for life in range(2):
        files = SlowFiles()
        manager = LogManager(tmp_path, 0, 1, NOW_MS, files=files, each=in_threads)
        most = [files.most]
        for make in (True, False) if life == 0 else (False,):
            manager.open(spec, {}, NOW_MS, make=make)
        for partition in range(MANY_LOGS):
            put(manager.log("q", partition), life)
        most.append(files.most)
        files.most = 0
        manager.close()
        most.append(files.most)
        assert most[1:] == [SYNC_THREADS, SYNC_THREADS], f"in life {life}: {most}"


def test_one_log_of_many_that_cannot_be_opened_takes_no_other_with_it(tmp_path: Path) -> None:
    spec = QueueSpec("q", MANY_LOGS, LIMITS, queue_id="one")
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "p00007").write_text("no folder")
    manager = LogManager(tmp_path, 0, 1, NOW_MS, each=in_threads)
    with pytest.raises(LogError, match="p00007"):
        manager.open(spec, {}, NOW_MS, make=True)
    assert len(manager.all_logs()) == MANY_LOGS - 1
    manager.close()
