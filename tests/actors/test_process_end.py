"""The end of a process is told at once, and no descriptor is left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pxrs_ray.actors.cluster import process_end as module
from pxrs_ray.actors.cluster.process_end import NO_PROCESS, process_end
from pxrs_ray.actors.coordinator.consumer_autopsy import PROCESS_DIED, first_told
from pxrs_ray.processing.suspects import EXITED


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def child(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program])


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_kill_is_told_within_milliseconds() -> None:
    async def run() -> float:
        sleeper = child("import time; time.sleep(60)")
        try:
            async with process_end(sleeper.pid) as ended:
                _, waiting = await asyncio.wait({ended}, timeout=0.05)
                assert waiting
                sleeper.kill()
                began_s = time.perf_counter()
                await asyncio.wait_for(ended, 10)
                return time.perf_counter() - began_s
        finally:
            sleeper.wait()

    before = open_descriptors()
    assert min(asyncio.run(run()) for _ in range(3)) < 0.01
    assert open_descriptors() == before


def test_a_process_that_is_gone_is_told_at_once_and_none_is_never_told() -> None:
    async def run() -> None:
        gone = child("")
        gone.wait()
        async with process_end(gone.pid) as ended:
            assert ended.done()
        async with process_end(NO_PROCESS) as ended:
            _, waiting = await asyncio.wait({ended}, timeout=0.02)
            assert waiting

    asyncio.run(run())


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import os; os.kill(os.getpid(), 9)", 9),
        ("import os; os._exit(7)", EXITED + 7),
        ("", EXITED),
    ],
)
def test_how_it_ended_is_known_before_its_parent_has_taken_note(program: str, told: int) -> None:
    async def run() -> int:
        async with process_end(process.pid) as ended:
            return await asyncio.wait_for(ended, 30)

    process = child(program)
    try:
        assert asyncio.run(run()) == told  # nobody has waited for it: it is a zombie
    finally:
        process.wait()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
@pytest.mark.parametrize(("cause", "status"), [(PROCESS_DIED, 9), ("ended by itself", 0)])
def test_how_it_ended_is_known_though_ray_tells_of_it_before_the_kernel(
    cause: str, status: int
) -> None:
    async def main() -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        run, ended = loop.create_future(), loop.create_future()
        run.set_result(cause)
        loop.call_later(0.05, ended.set_result, 9)
        return await first_told(run, ended, here=True)

    assert asyncio.run(main()) == (cause, status)


def test_nobody_waits_for_ever_for_a_kernel_that_does_not_tell() -> None:
    async def main() -> tuple[str, int]:
        run, ended = (asyncio.get_running_loop().create_future() for _ in range(2))
        run.set_result(PROCESS_DIED)
        return await asyncio.wait_for(first_told(run, ended, here=True), 10)

    assert asyncio.run(main()) == (PROCESS_DIED, 0)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
@pytest.mark.parametrize(("unknown", "told"), [(3, 9), (1_000, 0)])
def test_how_it_ended_is_looked_at_again_while_its_parent_takes_note(
    monkeypatch: pytest.MonkeyPatch, unknown: int, told: int
) -> None:
    """For a moment neither place says it; for ever, where the kernel tells nothing afterwards."""
    looks = iter([0] * unknown + [9])
    monkeypatch.setattr(module, "how_it_ended", lambda pid, descriptor: next(looks))

    async def run() -> int:
        sleeper = child("import time; time.sleep(60)")
        try:
            async with process_end(sleeper.pid) as ended:
                sleeper.kill()
                return await asyncio.wait_for(ended, 10)
        finally:
            sleeper.wait()

    before = open_descriptors()
    assert asyncio.run(run()) == told
    assert open_descriptors() == before
