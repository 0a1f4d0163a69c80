"""The end of a process is told at once, and no descriptor is left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pxrs_ray.actors.cluster.process_end import NO_PROCESS, process_end


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
