"""What one partition's log does to its reader is nothing to the other partitions."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from typing import Any

import pytest

from pxrs_ray.actors.consumer import fetcher as reading_module
from pxrs_ray.data.protocol import Refused
from pxrs_ray.errors import LogCorrupted
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world

FAULTS: dict[str, Exception] = {
    "EIO": OSError(errno.EIO, "Input/output error"),
    "EMFILE": OSError(errno.EMFILE, "Too many open files"),
    "ValueError": ValueError("an index that is none"),
    "MemoryError": MemoryError(),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_partition_that_cannot_be_read_holds_up_itself_alone_and_heals(
    world: Any, kind: str
) -> None:
    asked: Counter[int] = Counter()
    bad = {1}

    def faults(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "fetch":
            asked.update(arguments[2].keys())
            if bad & arguments[2].keys():
                raise FAULTS[kind]

    async def main() -> None:
        here: World = world(3)
        here.faults = faults
        await here.up()
        for partition in range(3):
            await here.produce([b"k"] * 5, partition)
        consumer = await here.consumer("c1", lambda message: None)
        await here.reaches(5, 0, 5)
        for partition in (0, 2):
            await here.produce([b"k"] * 5, partition)
        await here.reaches(10, 0, 10)
        [told] = consumer._problems()
        assert told.startswith("reading of partition 1")
        await asyncio.sleep(1.0)
        assert asked[1] < 15, "it is not asked without a pause"
        bad.clear()
        await here.reaches(10, 5, 10)
        await until(lambda: consumer._problems() == [])
        assert consumer._live().failed is None
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_frame_that_is_none_holds_up_its_partition_alone(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {1}
    real = reading_module.batches

    def batches(part: Any, offset: int) -> Any:
        if part.partition in bad:
            raise LogCorrupted("bytes that are no frame")
        return real(part, offset)

    monkeypatch.setattr(reading_module, "batches", batches)

    async def main() -> None:
        here: World = world(2)
        await here.up()
        for partition in range(2):
            await here.produce([b"k"] * 5, partition)
        consumer = await here.consumer("c1", lambda message: None)
        await here.reaches(5, 0)
        assert any("reading of partition 1" in told for told in consumer._problems())
        bad.clear()
        await here.reaches(5, 5)
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_refusal_rests_its_partition_and_not_the_others(world: Any) -> None:
    asked: Counter[int] = Counter()

    async def main() -> None:
        here: World = world(2)
        await here.up()
        real = here.buffer.fetch

        async def fetch(*arguments: Any) -> Any:
            asked.update(arguments[2].keys())
            if 1 in arguments[2]:
                good = {p: at for p, at in arguments[2].items() if p != 1}
                answer = await real(*arguments[:2], good, *arguments[3:]) if good else []
                return [*answer, Refused(1, LogCorrupted("a bad segment"), None)]
            return await real(*arguments)

        here.buffer.fetch = fetch  # type: ignore[method-assign]
        await here.produce([b"k"] * 5, 0)
        consumer = await here.consumer("c1", lambda message: None)
        await here.reaches(5, 0)
        await asyncio.sleep(1.5)
        assert 2 <= asked[1] < 15
        assert any("a bad segment" in told for told in consumer._problems())
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))
