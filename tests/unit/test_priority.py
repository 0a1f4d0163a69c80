"""An actor takes an ordinary priority for all its threads, and nobody else's process is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.cluster import priority

PROGRAM = """
import os, threading
from pathlib import Path
from pxrs_ray.actors.cluster.priority import set_niceness
os.nice(15)
over = threading.Event()
threading.Thread(target=over.wait, daemon=True).start()
set_niceness(WANTED)
threading.Thread(target=over.wait, daemon=True).start()
threads = [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
print(len(threads), sorted({os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}))
"""


def told(wanted: int) -> str:
    program = PROGRAM.replace("WANTED", str(wanted))
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return found.stdout.split(" ", 1)[1].strip()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own here")
def test_every_thread_takes_it_where_the_system_lets_it() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    allowed = os.geteuid() == 0
    assert told(3) == ("[3]" if allowed else f"[{min(19, before + 15)}]")
    assert told(19) == "[19]", "to be nicer is always allowed"


def test_a_process_that_is_no_actor_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(priority, "set_niceness", taken.append)

    def seen(*, begun: bool, actor: str | None) -> Any:
        context = SimpleNamespace(get_actor_id=lambda: actor)
        monkeypatch.setattr(priority.ray, "is_initialized", lambda: begun)
        monkeypatch.setattr(priority.ray, "get_runtime_context", lambda: context)
        priority.be_as_nice_as(7)
        return taken

    assert seen(begun=False, actor=None) == []
    assert seen(begun=True, actor=None) == [], "a driver is the user's"
    assert seen(begun=True, actor="abc") == [7]
