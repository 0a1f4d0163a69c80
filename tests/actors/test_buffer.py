"""The buffer's calls, on an event loop of our own: the actor's class needs no Ray."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.data.batch import batches
from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.data.protocol import Appended, Fetched, QueueSpec, Refused
from pxrs_ray.errors import (
    Fenced,
    LogLost,
    NotFound,
    OffsetOutOfRange,
    PartitionFull,
    RetentionBlocked,
    SequenceGap,
    UsageError,
)
from tests.actors.conditions import until
from tests.leases import let_serve
from tests.logs import wire
from tests.second_lives import second_lives as second_lives
from tests.settings import log_limits

# Every scenario goes on in further lives of its logs.
pytestmark = pytest.mark.usefixtures("second_lives")

LONG_MS = 20_000
Use = Callable[[Buffer], Awaitable[None]]


def use(folder: Path, test: Use, limits: LogLimits | None = None, opened: bool = True) -> None:
    """Run a test with an open buffer that holds partitions 0, 2 and 4 of a queue of 5."""

    async def run() -> None:
        buffer = Buffer("t", 0, 2, str(folder))
        try:
            if opened:
                await buffer.open(QueueSpec("q", 5, limits or log_limits()), {}, make=True)
            await let_serve(buffer)
            await asyncio.wait_for(test(buffer), 60)
        finally:
            await buffer.close()

    asyncio.run(run())


async def put(buffer: Buffer, partition: int, sequence: int, payload: bytes = b"x") -> Appended:
    (answer,) = await buffer.append("q", [(partition, *wire([payload], sequence))], LONG_MS)
    assert isinstance(answer, Appended), answer
    return answer


@pytest.mark.parametrize("durability", list(Durability))
def test_several_groups_read_what_was_appended(tmp_path: Path, durability: Durability) -> None:
    async def test(buffer: Buffer) -> None:
        for sequence in range(20):
            for partition in (0, 2, 4):
                await put(buffer, partition, sequence, b"%d" % sequence)
        for group in ("a", "b"):
            positions = dict.fromkeys((0, 2, 4), (1, 5))
            found = await buffer.fetch("q", group, positions, 1 << 20, 0)
            assert [f.partition for f in found] == [0, 2, 4]
            for fetched in found:
                assert isinstance(fetched, Fetched)
                assert (fetched.next_offset, fetched.start_offset, fetched.end_offset) == (
                    20,
                    0,
                    20,
                )
                payloads = [m.payload for batch in batches(fetched, 5) for m in batch]
                assert payloads == [b"%d" % i for i in range(5, 20)]
        stats = await buffer.stats()
        assert (stats.messages, stats.fetches, stats.repeats) == (60, 2, 0)

    use(tmp_path, test, log_limits(durability=durability))


def test_an_append_wakes_a_waiting_reader(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        reading = asyncio.ensure_future(
            buffer.fetch("q", "g", {0: (1, 0), 2: (1, 0)}, 1 << 20, LONG_MS)
        )
        await until(lambda: buffer._counts["fetches_waiting"] == 1)
        started = time.monotonic()
        await put(buffer, 2, 0)
        (fetched,) = await reading
        assert fetched.partition == 2
        assert time.monotonic() - started < 5
        assert await buffer.fetch("q", "g", {0: (1, 0)}, 1 << 20, 10) == []
        assert buffer._waiting == {}, "nobody waits any more"

    use(tmp_path, test)


def test_a_stale_epoch_is_refused_also_while_it_waits(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        waiting = asyncio.ensure_future(buffer.fetch("q", "g", {0: (3, 0)}, 1 << 20, LONG_MS))
        await until(lambda: buffer._counts["fetches_waiting"] == 1)
        await buffer.fence("q", "g", {0: 4})
        (refused,) = await waiting
        assert isinstance(refused, Refused) and isinstance(refused.error, Fenced)
        await put(buffer, 2, 0)
        found = await buffer.fetch("q", "g", {0: (3, 0), 2: (1, 0)}, 1 << 20, 0)
        assert [type(f) for f in found] == [Refused, Fetched]
        assert (await buffer.fetch("q", "other", {0: (3, 0)}, 1 << 20, 0)) == []
        assert (await buffer.stats()).fenced == 2

    use(tmp_path, test)


def test_where_logs_stand_is_told_with_the_epochs_that_have_read_and_the_room_that_is_left(
    tmp_path: Path,
) -> None:
    async def test(buffer: Buffer) -> None:
        await buffer.fence("q", "g", {0: 4})
        await buffer.fetch("q", "h", {0: (3, 0)}, 1 << 20, 0)
        ends = await buffer.ends("q")
        assert ends[0].epochs == {"g": 4, "h": 3} and ends[2].epochs == {}
        free = (await buffer.stats()).disk_free_bytes
        assert 0 < free <= shutil.disk_usage(tmp_path).total

    use(tmp_path, test)


def test_appends_that_come_too_early_wait_for_their_turn(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        late = [
            asyncio.ensure_future(buffer.append("q", [(0, *wire([b"%d" % s], s))], LONG_MS))
            for s in (3, 2, 1)
        ]
        await until(lambda: buffer._counts["appends_waiting"] == 3)
        await put(buffer, 0, 0, b"0")
        answers = [answer for (answer,) in await asyncio.gather(*late)]
        assert [a.base_offset for a in answers if isinstance(a, Appended)] == [3, 2, 1]
        (refused,) = await buffer.append("q", [(0, *wire([b"x"], 9))], 10)
        assert isinstance(refused, Refused) and isinstance(refused.error, SequenceGap)
        assert refused.expected_sequence == 4

    use(tmp_path, test)


def test_a_full_partition_waits_for_its_readers_or_says_so(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        await buffer.passed("q", "g", {0: 0})
        sequence = 0
        while True:
            (answer,) = await buffer.append("q", [(0, *wire([b"x" * 500], sequence))], 0)
            if isinstance(answer, Refused):
                break
            sequence += 1
        assert isinstance(answer.error, PartitionFull)
        assert "group 'g' has passed only 0" in str(answer.error)
        waiting = asyncio.ensure_future(
            buffer.append("q", [(0, *wire([b"x" * 500], sequence))], LONG_MS)
        )
        await until(lambda: buffer._counts["appends_waiting"] == 1)
        await buffer.passed("q", "g", {0: sequence})
        (answer,) = await waiting
        assert isinstance(answer, Appended) and answer.base_offset == sequence
        await put(buffer, 2, 0)  # the other partitions never noticed

    limits = log_limits(
        durability=Durability.MEMORY, partition_bytes_max=10_000, tail_bytes_max=1_000
    )
    use(tmp_path, test, limits)


def test_refusals_of_one_partition_hide_no_other(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        frames = [(0, *wire([b"x"], 0)), (1, *wire([b"x"], 0)), (2, *wire([b"x"], 0))]
        answers = await buffer.append("q", frames, 10)
        assert [type(a) for a in answers] == [Appended, Refused, Appended]
        assert isinstance(answers[1], Refused) and isinstance(answers[1].error, NotFound)
        positions = {0: (1, 5), 2: (1, 0), 3: (1, 0)}
        found = await buffer.fetch("q", "g", positions, 1 << 20, 10)
        assert [type(f) for f in found] == [Refused, Fetched]
        assert isinstance(found[0], Refused) and isinstance(found[0].error, OffsetOutOfRange)
        assert (found[0].start_offset, found[0].end_offset) == (0, 1)
        (unknown,) = await buffer.fetch("q", "g", {3: (1, 0)}, 1 << 20, 10)
        assert isinstance(unknown, Refused) and isinstance(unknown.error, NotFound)

    use(tmp_path, test)


def test_a_large_backlog_starves_no_other_partition(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        for sequence in range(50):
            for partition in (0, 2, 4):
                await put(buffer, partition, sequence, b"x" * 1_000)
        positions = dict.fromkeys((0, 2, 4), (1, 0))
        found = await buffer.fetch("q", "g", positions, 30_000, 0)
        assert [f.partition for f in found] == [0, 2, 4]
        brought = [f.next_offset for f in found if isinstance(f, Fetched)]
        assert min(brought) >= 4 and sum(brought) <= 30
        least = await buffer.fetch("q", "g", positions, 1, 0)
        assert [f.next_offset for f in least if isinstance(f, Fetched)] == [1, 1, 1]

    use(tmp_path, test)


def test_calls_before_open_wait_for_it(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        append = asyncio.ensure_future(buffer.append("q", [(0, *wire([b"x"], 0))], LONG_MS))
        fetch = asyncio.ensure_future(buffer.fetch("q", "g", {0: (1, 0)}, 1 << 20, LONG_MS))
        await until(lambda: buffer._counts["fetches_waiting"] == 1)
        await buffer.open(QueueSpec("q", 5, log_limits()), {}, make=True)
        assert isinstance((await append)[0], Appended)
        assert isinstance((await fetch)[0], Fetched)

    use(tmp_path, test, opened=False)


def test_a_restarted_buffer_serves_at_once_and_fences_the_same(tmp_path: Path) -> None:
    async def before(buffer: Buffer) -> None:
        for sequence in range(3):
            await put(buffer, 0, sequence)
        await buffer.fence("q", "g", {0: 7})
        await buffer.passed("q", "g", {0: 1})

    async def after(buffer: Buffer) -> None:
        assert (await buffer.ends("q"))[0].groups == {"g": 1}
        stale, good = [
            (await buffer.fetch("q", "g", {0: (epoch, 0)}, 1 << 20, 0))[0] for epoch in (6, 7)
        ]
        assert isinstance(stale, Refused) and isinstance(good, Fetched)
        assert (await put(buffer, 0, 2)).repeated
        assert (await put(buffer, 0, 3)).base_offset == 3

    use(tmp_path, before)
    use(tmp_path, after, opened=False)


def test_a_buffer_on_an_empty_disk_never_starts_at_0_again(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        (refused,) = await buffer.append("q", [(0, *wire([b"x"], 0))], 10)
        assert isinstance(refused, Refused), "nobody has said how far the log should reach"
        ends = await buffer.open(QueueSpec("q", 5, log_limits()), {0: 100, 2: 0}, make=True)
        assert (ends[0].state, ends[2].state) == ("lost", "open")
        assert ends[0].gaps[0].first == 0
        (refused,) = await buffer.append("q", [(0, *wire([b"x"], 0))], 10)
        assert isinstance(refused, Refused) and isinstance(refused.error, LogLost)
        assert (await put(buffer, 2, 0)).base_offset == 0
        accepted = await buffer.accept_loss("q", 0)
        assert accepted.state == "open"
        assert (await put(buffer, 0, 0)).base_offset == accepted.end_offset > 100
        (jump,) = await buffer.fetch("q", "g", {0: (1, 50)}, 1 << 20, 0)
        assert isinstance(jump, Fetched)

    use(tmp_path, test, opened=False)


def test_a_damaged_partition_takes_no_other_down(tmp_path: Path) -> None:
    async def before(buffer: Buffer) -> None:
        for sequence in range(3):
            await put(buffer, 0, sequence)
            await put(buffer, 2, sequence)

    async def after(buffer: Buffer) -> None:
        ends = await buffer.ends("q")
        assert (ends[0].state, ends[2].state) == ("failed", "open")
        assert ".seg" in ends[0].problem
        (refused,) = await buffer.append("q", [(0, *wire([b"x"], 3))], 10)
        assert isinstance(refused, Refused) and ".seg" in str(refused.error)
        await put(buffer, 2, 3)

    use(tmp_path, before)
    (segment,) = (tmp_path / "q" / "p00000").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[150] ^= 1
    segment.write_bytes(data)
    use(tmp_path, after, opened=False)


def test_inspection_truncation_and_times(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        for sequence in range(5):
            frame = wire([b"%d" % sequence], sequence, timestamp_ms=100 * sequence)
            await buffer.append("q", [(0, *frame)])
        assert (await buffer.get_message("q", 0, 3)).payload == b"3"
        with pytest.raises(OffsetOutOfRange):
            await buffer.get_message("q", 0, 5)
        assert await buffer.offset_at("q", 150) == {0: 2, 2: 0, 4: 0}
        assert await buffer.timestamps("q", {0: 4, 2: 0}) == {0: 400}
        await buffer.passed("q", "g", {0: 2})
        answers = await buffer.truncate("q", {0: 3})
        blocked = answers[0]
        assert isinstance(blocked, Refused) and isinstance(blocked.error, RetentionBlocked)
        forced = (await buffer.truncate("q", {0: 3}, force=True))[0]
        assert not isinstance(forced, Refused) and forced.start_offset == 3
        await buffer.drop_group("q", "g")
        assert (await buffer.ends("q"))[0].groups == {}

    use(tmp_path, test)


def test_what_never_changes_is_refused_and_limits_change_live(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        with pytest.raises(UsageError, match="has 5 partitions, not 6"):
            await buffer.open(QueueSpec("q", 6, log_limits()), {}, make=True)
        with pytest.raises(UsageError, match="make a new queue"):
            await buffer.open(
                QueueSpec("q", 5, log_limits(durability=Durability.MEMORY)), {}, False
            )
        await put(buffer, 0, 0)
        one_frame = log_limits(partition_bytes_max=sum(map(len, wire([b"x"], 1))))
        await buffer.open(QueueSpec("q", 5, one_frame), {}, make=True)
        (refused,) = await buffer.append("q", [(0, *wire([b"x"], 1))], 0)
        assert isinstance(refused, Refused) and isinstance(refused.error, PartitionFull)
        await buffer.drop_queue("q")
        assert not (tmp_path / "q" / "p00000").exists()
        with pytest.raises(NotFound):
            await buffer.ends("q")
        ends = await buffer.open(QueueSpec("q", 3, log_limits()), {}, make=True)
        assert ends[0].end_offset == 0

    use(tmp_path, test)


def test_an_interval_log_is_synced_soon_and_a_reader_of_always_sees_synced_only(
    tmp_path: Path,
) -> None:
    async def test(buffer: Buffer) -> None:
        await put(buffer, 0, 0)

        def durable() -> bool:
            return buffer._manager.log("q", 0).durable_offset == 1

        await until(durable)
        # It is counted once all of its logs are synced.
        await until(lambda: buffer._writer.syncs >= 1)
        assert (await buffer.stats()).syncs >= 1

    use(tmp_path, test)
