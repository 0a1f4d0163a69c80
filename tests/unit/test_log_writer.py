"""`LogWriter`: what runs at once, and what has to wait for its turn or for a sync."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.buffer.log_writer import LogWriter
from pxrs_ray.actors.buffer.replica_buffer import ReplicaBuffer
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.write_turns import AT_ONCE_BYTES_MAX, WriteJob, WriteTurns
from tests.actors.conditions import until
from tests.logs import ALWAYS, NOW_MS, SMALL, open_log, wire

WAIT_S = 10
Use = Callable[[LogWriter, PartitionLog, list[PartitionLog]], Awaitable[None]]


def use(folder: Path, test: Use, limits: Any = SMALL) -> None:
    """Run a test with a writer, a log, and the logs that the writer has told of as changed."""
    log = open_log(folder, limits)

    async def run() -> None:
        changed: list[PartitionLog] = []
        writer = LogWriter(changed.append)
        await asyncio.wait_for(test(writer, log, changed), WAIT_S)
        await writer.close()

    asyncio.run(run())
    log.close()


def appends(log: PartitionLog, sequence: int) -> Callable[[], Any]:
    return lambda: log.append(*wire([b"x"], sequence), NOW_MS)


def test_little_runs_at_once_and_is_synced_later(tmp_path: Path) -> None:
    async def test(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        for sequence in range(3):
            assert writer.at_once(appends(log, sequence), {log}, 100)
            assert log.end_offset == sequence + 1, "it did not wait for the event loop"
            assert changed == [log] * (sequence + 1)
        await until(lambda: log.durable_offset == 3)
        await until(lambda: writer.syncs >= 1)

    use(tmp_path, test)


def test_what_runs_at_once_overtakes_nothing_that_was_given_before(tmp_path: Path) -> None:
    async def test(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        queued = asyncio.ensure_future(writer.do(appends(log, 0), {log}, 100))
        await asyncio.sleep(0)
        assert not writer.at_once(appends(log, 1), {log}, 100), "one is queued"
        assert log.end_offset == 0
        await queued
        go_on = threading.Event()
        running = asyncio.ensure_future(writer.do(lambda: go_on.wait(WAIT_S), {log}))
        await until(lambda: writer._turns.busy and not writer._turns._jobs)
        assert not writer.at_once(appends(log, 1), {log}, 100), "one is under way on the thread"
        go_on.set()
        await running
        assert writer.at_once(appends(log, 1), {log}, 100)
        assert log.end_offset == 2

    use(tmp_path, test)


def test_little_passes_much_of_other_logs_and_nothing_of_its_own(tmp_path: Path) -> None:
    async def test(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        other = open_log(tmp_path / "other", SMALL)
        go_on = threading.Event()
        large = asyncio.ensure_future(writer.do(lambda: go_on.wait(WAIT_S), {other}))
        await until(lambda: writer._turns.busy)
        assert writer.at_once(appends(log, 0), {log}, 100)
        assert not writer.at_once(appends(other, 0), {other}, 100), "it is being written"
        assert not writer.at_once(appends(log, 1), {log, other}, 100)
        queued = asyncio.ensure_future(writer.do(appends(log, 1), {log}, 100))
        await until(lambda: bool(writer._turns._jobs))
        assert not writer.at_once(appends(log, 2), {log}, 100), "it would pass one of its own"
        assert log.end_offset == 1 and changed == [log]
        go_on.set()
        await asyncio.gather(large, queued)
        assert writer.at_once(appends(log, 2), {log}, 100) and log.end_offset == 3
        other.close()

    use(tmp_path / "small", test)


def test_where_logs_have_something_in_common_nothing_passes(tmp_path: Path) -> None:
    log, other = open_log(tmp_path / "a", SMALL), open_log(tmp_path / "b", SMALL)
    for apart in (True, False):
        turns = WriteTurns(apart=apart)
        turns.give(WriteJob(lambda: None, {other}))
        assert turns.may_run_now({log}, 100) is apart
        turn = turns.next_turn()
        assert turn is not None and turns.may_run_now({log}, 100) is apart
        turns.over(turn)
        assert turns.may_run_now({log}, 100)
    assert ReplicaBuffer.logs_apart is False
    log.close()
    other.close()


def test_nothing_passes_a_job_that_may_be_about_any_log(tmp_path: Path) -> None:
    async def test(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        go_on = threading.Event()
        one = asyncio.ensure_future(writer.do(lambda: go_on.wait(WAIT_S), ()))
        await until(lambda: writer._turns.busy)
        assert not writer.at_once(appends(log, 0), {log}, 100), "such a one is under way"
        other = open_log(tmp_path / "other", SMALL)
        go_on.set()
        await one
        go_on.clear()
        first = asyncio.ensure_future(writer.do(lambda: go_on.wait(WAIT_S), {other}))
        await until(lambda: writer._turns.busy)
        waits = asyncio.ensure_future(writer.do(lambda: None, ()))
        await until(lambda: bool(writer._turns._jobs))
        assert not writer.at_once(appends(log, 0), {log}, 100), "such a one waits"
        go_on.set()
        await asyncio.gather(first, waits)
        assert writer.at_once(appends(log, 0), {log}, 100)
        other.close()

    use(tmp_path / "small", test)


def test_much_and_what_must_be_synced_first_do_not_run_at_once(tmp_path: Path) -> None:
    async def test(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        assert not writer.at_once(appends(log, 0), {log}, AT_ONCE_BYTES_MAX + 1)
        assert log.end_offset == 0

    use(tmp_path / "much", test)

    async def synced(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        assert not writer.at_once(appends(log, 0), {log}, 100)
        assert log.end_offset == 0

    use(tmp_path / "always", synced, ALWAYS)


def test_a_closed_writer_runs_nothing(tmp_path: Path) -> None:
    async def test(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        await writer.do(lambda: None, ())
        writer._turns.closed = True
        assert not writer.at_once(appends(log, 0), {log}, 100)
        assert log.end_offset == 0
        writer._turns.closed = False

    use(tmp_path, test)


def test_a_job_that_fails_is_its_callers_and_what_it_had_written_is_known(tmp_path: Path) -> None:
    async def test(writer: LogWriter, log: PartitionLog, changed: list[PartitionLog]) -> None:
        def half() -> None:
            appends(log, 0)()
            raise KeyError("the other half")

        with pytest.raises(KeyError):
            writer.at_once(half, {log}, 100)
        assert changed == [log]
        await until(lambda: log.durable_offset == 1)
        assert writer.at_once(appends(log, 1), {log}, 100)

    use(tmp_path, test)
