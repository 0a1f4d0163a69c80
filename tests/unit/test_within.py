"""A wait that has a deadline, and which whoever is cancelled leaves: no loop goes on for ever."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pxrs_ray
from pxrs_ray.supervision.supervisor import within

PACKAGE = Path(pxrs_ray.__file__).parent


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(10):
            return await work()

    return asyncio.run(main())


def test_it_answers_what_comes_in_time_and_raises_when_nothing_does() -> None:
    async def scene() -> None:
        assert await within(5, asyncio.sleep(0, "done")) == "done"
        assert await within(None, asyncio.sleep(0, "done")) == "done"
        with pytest.raises(TimeoutError):
            await within(0.01, asyncio.Event().wait())
        there = asyncio.Event()
        there.set()
        assert await within(0, there.wait())

    run(scene)


@pytest.mark.parametrize("steps", range(6))
def test_a_cancellation_that_comes_as_the_work_is_done_ends_the_loop(steps: int) -> None:
    async def scene() -> bool:
        soon = asyncio.Event()

        async def loop() -> None:
            while True:
                with suppress(TimeoutError):
                    await within(60, soon.wait())
                soon.clear()

        task = asyncio.create_task(loop())
        await asyncio.sleep(0.01)
        soon.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=1)
        task.cancel()
        return bool(done)

    assert run(scene), "cancelled once, and it goes on"


def test_the_product_waits_in_no_other_way() -> None:
    found = [
        f"{path}:{node.lineno}"
        for folder in (".", "actors", "spark")  # links, which `rglob` does not follow
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "wait_for"
        and isinstance(node.value, ast.Name)
        and node.value.id == "asyncio"
    ]
    assert not found, f"`asyncio.wait_for` forgets cancellations: use `within` at {found}"
