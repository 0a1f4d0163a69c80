"""A buffer serves while it has a lease, on the disk that is its own; the class needs no Ray."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

import pytest

from pxrs_ray.actors.buffer import lease_gate
from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import Appended, BufferGrant, Fetched, OutFrame, QueueSpec, Refused
from pxrs_ray.errors import LeaseOver
from pxrs_ray.files import Files
from pxrs_ray.log.disk_id import make_disk_id
from pxrs_ray.log.identity import Identity
from pxrs_ray.supervision.passing_trouble import passes
from tests.actors.conditions import until
from tests.leases import let_serve
from tests.logs import wire
from tests.settings import log_limits

LONG_MS = 20_000
SPEC = QueueSpec("q", 1, log_limits(durability=Durability.ALWAYS), queue_id="one")
Use = Callable[[Buffer], Awaitable[None]]


async def made(buffer: Buffer) -> None:
    for make in (True, False):
        await buffer.open(SPEC, {}, make=make)


def use(folder: Path, test: Use, *, disk_id: str = "", opened: bool = True) -> None:
    async def run() -> None:
        buffer = Buffer("t", 0, 1, str(folder / "t"), disk_id=disk_id)
        try:
            if opened:
                await made(buffer)
            await asyncio.wait_for(test(buffer), 60)
        finally:
            await buffer.close()

    asyncio.run(run())


def frame(sequence: int) -> OutFrame:
    return (0, *wire([b"x"], sequence))


async def lease(buffer: Buffer, lease_ms: int, *, generation: int = 1, term: int = 1) -> None:
    info = await buffer.ping()
    grant = BufferGrant(generation, term, lease_ms, info.monotonic_ms, info.incarnation)
    await buffer.ping(grant)


def is_over(answer: object) -> bool:
    return isinstance(answer, Refused) and isinstance(answer.error, LeaseOver)


def test_without_a_lease_nothing_is_served_and_whoever_asks_may_try_again(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        (answer,) = await buffer.append("q", [frame(0)], 0)
        assert is_over(answer) and isinstance(answer, Refused) and passes(answer.error)
        (found,) = await buffer.fetch("q", "g", {0: (1, 0)}, 1 << 20, 0)
        assert is_over(found)
        for call in (
            buffer.begin_producer("q", "p", 1, "token"),
            buffer.truncate("q", {0: 0}),
            buffer.passed("q", "g", {0: 0}),
        ):
            with pytest.raises(LeaseOver):
                await call
        assert (await buffer.ends("q"))[0].end_offset == 0
        await let_serve(buffer)
        (answer,) = await buffer.append("q", [frame(0)], 0)
        assert isinstance(answer, Appended)

    use(tmp_path, test)


def test_who_waits_for_a_lease_is_served_the_moment_that_it_comes(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        append = asyncio.ensure_future(buffer.append("q", [frame(0)], LONG_MS))
        fetch = asyncio.ensure_future(buffer.fetch("q", "g", {0: (1, 0)}, 1 << 20, LONG_MS))
        await until(lambda: buffer._counts["fetches_waiting"] == 1)
        await let_serve(buffer)
        assert isinstance((await append)[0], Appended)
        assert isinstance((await fetch)[0], Fetched)

    use(tmp_path, test)


def test_a_long_poll_ends_with_the_lease(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        await lease(buffer, 300)
        began_s = asyncio.get_running_loop().time()
        (found,) = await buffer.fetch("q", "g", {0: (1, 0)}, 1 << 20, LONG_MS)
        assert is_over(found)
        assert asyncio.get_running_loop().time() - began_s < LONG_MS / 2_000

    use(tmp_path, test)


def test_an_append_whose_lease_ends_before_its_sync_is_not_acknowledged(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        await lease(buffer, 60_000)
        do_each = buffer._writer.do_each

        async def slowly(*arguments: object) -> object:
            found = await do_each(*arguments)  # type: ignore[arg-type]
            buffer._gate.tenure.until_ms = 0
            return found

        with mock.patch.object(buffer._writer, "do_each", slowly):
            (answer,) = await buffer.append("q", [frame(0)], 0)
        assert is_over(answer)
        await let_serve(buffer)
        (answer,) = await buffer.append("q", [frame(0)], 0)
        assert isinstance(answer, Appended) and answer.repeated, "it is not kept twice"

    use(tmp_path, test)


def test_what_is_appended_at_once_needs_a_lease_before_and_after(tmp_path: Path) -> None:
    little = QueueSpec("little", 1, log_limits(durability=Durability.INTERVAL), queue_id="two")

    async def test(buffer: Buffer) -> None:
        for make in (True, False):
            await buffer.open(little, {}, make=make)
        (answer,) = await buffer.append("little", [frame(0)], 0)
        assert is_over(answer)
        assert (await buffer.ends("little"))[0].end_offset == 0
        await lease(buffer, 60_000)
        at_once = buffer._writer.at_once

        def slowly(*arguments: object) -> bool:
            assert at_once(*arguments)  # type: ignore[arg-type]
            buffer._gate.tenure.until_ms = 0
            return True

        with mock.patch.object(buffer._writer, "at_once", slowly):
            (answer,) = await buffer.append("little", [frame(0)], 0)
        assert is_over(answer)
        await let_serve(buffer)
        (answer,) = await buffer.append("little", [frame(0)], 0)
        assert isinstance(answer, Appended) and answer.repeated, "it is not kept twice"

    use(tmp_path, test)


def test_what_was_read_while_the_lease_ended_is_not_handed_on(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        await lease(buffer, 60_000)
        await buffer.append("q", [frame(0)], 0)
        read = buffer._reader.fetch

        def slowly(*arguments: object) -> object:
            found = read(*arguments)  # type: ignore[arg-type]
            buffer._gate.tenure.until_ms = 0
            return found

        async def from_files(*arguments: object) -> object:
            return slowly(*arguments)

        for reads in (slowly, from_files):
            await lease(buffer, 60_000)
            with mock.patch.object(buffer._reader, "fetch", reads):
                (found,) = await buffer.fetch("q", "g", {0: (1, 0)}, 1 << 20, 0)
            assert is_over(found)

    use(tmp_path, test)


def test_a_grant_of_an_older_coordinator_or_process_gives_nothing(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        await buffer.ping(BufferGrant(7, 3, 60_000))
        for generation, term in ((6, 9), (7, 2)):
            await lease(buffer, 60_000, generation=generation, term=term)
            assert is_over((await buffer.append("q", [frame(0)], 0))[0])
        info = await buffer.ping(
            BufferGrant(7, 3, 60_000, lease_gate.lease_clock_ms(), "another life")
        )
        assert (info.generation, info.term) == (7, 3)
        assert is_over((await buffer.append("q", [frame(0)], 0))[0])

    use(tmp_path, test)


def test_a_buffer_on_another_disk_serves_nothing_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    here = make_disk_id(Files(), tmp_path)
    before = sorted(tmp_path.rglob("*"))

    async def test(buffer: Buffer) -> None:
        info = await buffer.ping()
        assert info.disk_id == here and "belongs to disk elsewhere" in info.problem
        await buffer.ping(BufferGrant(1, 1, 60_000, info.monotonic_ms, info.incarnation))
        with pytest.raises(LeaseOver, match="belongs to disk elsewhere"):
            await buffer.open(SPEC, {}, make=True)
        with pytest.raises(LeaseOver):
            await buffer.append("q", [frame(0)], 0)

    use(tmp_path, test, disk_id="elsewhere", opened=False)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_that_comes_later_is_found_by_the_next_look(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        info = await buffer.ping()
        assert info.disk_id == "" and "no disk" in info.problem
        (tmp_path / "disk.json").write_text('{"disk_id": "late"}')
        info = await buffer.ping()
        assert (info.disk_id, info.problem) == ("late", "")
        await made(buffer)
        await let_serve(buffer)
        assert isinstance((await buffer.append("q", [frame(0)], 0))[0], Appended)

    use(tmp_path, test, disk_id="late", opened=False)


def test_a_slot_remembers_its_newest_coordinator(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        ours = Identity("t-1", 5, "us", "disk", "host")
        assert await buffer.belong(ours, False) == ours
        assert await buffer.belong(ours, False) == ours, "the same one, once more"
        newer = Identity("t-1", 6, "next")
        assert await buffer.belong(newer, False) == ours
        for stale in (ours, Identity("t-1", 6, "another of that number")):
            assert stale.is_behind(await buffer.belong(stale, False))
            assert await buffer.belong(newer, False) == newer
        assert await buffer.belong(ours, True) == newer
        assert await buffer.belong(ours, False) == ours

    use(tmp_path, test)


def test_known_ends_travel_with_a_ping(tmp_path: Path) -> None:
    async def test(buffer: Buffer) -> None:
        await let_serve(buffer)
        for sequence in range(3):
            await buffer.append("q", [frame(sequence)], 0)
        assert (await buffer.ping()).ends == {"one": {0: 3}}

    use(tmp_path, test)


def test_who_is_closed_is_woken_by_its_coordinator_alone(tmp_path: Path) -> None:
    """While its last bytes are copied to another disk, a consumer that starts asks everybody."""

    async def test(buffer: Buffer) -> None:
        await let_serve(buffer)
        await buffer.append("q", [frame(0)], 0)
        info = await buffer.ping()
        await buffer.close()
        with pytest.raises(LeaseOver):
            await buffer.ping()
        assert buffer.life.is_closed
        woken = await buffer.ping(BufferGrant(1, 1, LONG_MS, info.monotonic_ms, info.incarnation))
        assert woken.incarnation != info.incarnation and not buffer.life.is_closed
        assert is_over((await buffer.append("q", [frame(1)], 0))[0]), "the lease was another life's"
        await buffer.open(SPEC, {0: 1}, make=False)
        await let_serve(buffer)
        (answer,) = await buffer.append("q", [frame(1)], 0)
        assert isinstance(answer, Appended) and answer.base_offset == 1

    use(tmp_path, test)


def test_who_closes_it_again_hears_when_all_is_closed(tmp_path: Path) -> None:
    """The coordinator that told it to is gone; the next one copies the files when it has closed."""

    async def test(buffer: Buffer) -> None:
        await let_serve(buffer)
        goes_on, begun = threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow() -> None:
            loop.call_soon_threadsafe(begun.set)
            assert goes_on.wait(30)

        writing = asyncio.ensure_future(buffer._writer.do(slow, ()))
        await begun.wait()
        closing = [asyncio.ensure_future(buffer.close()) for _ in range(2)]
        done, _ = await asyncio.wait(closing, timeout=0.2)
        goes_on.set()
        assert not done, "it says that it is closed, and still writes"
        await asyncio.gather(writing, *closing)

    use(tmp_path, test)


def test_who_is_closed_changes_no_file(tmp_path: Path) -> None:
    """Its logs are copied then, and a coordinator tells epochs to whoever is there."""

    async def test(buffer: Buffer) -> None:
        await buffer.fence("q", "g", {0: 1})
        await buffer.close()
        before = await buffer.slot_files()
        await buffer.fence("q", "g", {0: 2})
        assert await buffer.slot_files() == before != []

    use(tmp_path, test)
