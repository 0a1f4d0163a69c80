"""A SIGTERM is told to a loop, also while the main thread runs no Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, ctypes, os, signal, threading
from pxrs_ray.actors.cluster.sigterm import on_terminate

async def run():
    told = asyncio.Event()
    close = on_terminate(told.set)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(told.wait(), 20)
    close()
    print("told", flush=True)
    os._exit(0)

threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
# The main thread waits in C, and no Python signal handler can run.
ctypes.CDLL(None).sleep.argtypes = [ctypes.c_uint]
while True:
    ctypes.CDLL(None).sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM there")
def test_a_sigterm_is_told_and_does_nothing_else() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, "told\n"), ran.stderr
