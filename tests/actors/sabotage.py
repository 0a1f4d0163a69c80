"""What goes wrong inside processes of a chaos run: disks that are full, syncs that fail, clocks.

Rules of this file. Nothing in the product knows of it. A chaos run starts Ray with `install` as
the hook that each worker process calls first; it puts itself between the product and the system
there, and does what the folder's `now.json` says at the moment. Without that folder it does
nothing; the wall clock of a coordinator is left alone, for its history is what is judged.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "PXRS_TESTS_SABOTAGE"
HOOK = f"{__name__}.install"
COORDINATOR = "pxrs_ray.actors.coordinator.coordinator"
LOOK_EVERY_S = 0.05
KINDS = ("full", "sync", "wall_ms")


class Orders:
    """What shall go wrong now: given by the run, read by each process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "now.json"
        self._looked_s = 0.0
        self._now: dict[str, Any] = {}

    def give(self, **now: Any) -> None:
        """Let this go wrong from now on, and nothing else."""
        assert now.keys() <= set(KINDS)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(now))
        fresh.replace(self._file)

    def of(self, kind: str) -> Any:
        """What is ordered of a kind; looked up now and then."""
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_EVERY_S:
            self._looked_s = now_s
            try:
                self._now = json.loads(self._file.read_text())
            except (OSError, ValueError):
                self._now = {}
        return self._now.get(kind)

    @contextmanager
    def given(self, **now: Any) -> Iterator[None]:
        """Give orders for as long as the block takes."""
        self.give(**now)
        try:
            yield
        finally:
            self.give()


class _Clock(ModuleType):
    """The module `time`, with another idea of the date."""

    def __init__(self, orders: Orders) -> None:
        super().__init__("time")
        self._orders = orders

    def time_ns(self) -> int:
        if COORDINATOR in sys.modules:
            return time.time_ns()
        return time.time_ns() + int(self._orders.of("wall_ms") or 0) * 1_000_000

    def time(self) -> float:
        return self.time_ns() / 1e9

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def environment(folder: Path) -> dict[str, Any]:
    """The runtime environment of a run whose orders lie in `folder`."""
    return {"env_vars": {VARIABLE: str(folder)}, "worker_process_setup_hook": HOOK}


def install() -> None:
    """Called by Ray in each worker process, before anything else."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    from pxrs_ray import clock
    from pxrs_ray.files import Files

    orders = Orders(Path(folder))
    write_some, sync = Files.write_some, Files.sync

    def write_if_room(self: Files, fd: int, pieces: Any, position: int) -> int:
        if orders.of("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_some(self, fd, pieces, position)

    def sync_or_fail(self: Files, fd: int) -> None:
        if orders.of("sync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(self, fd)

    Files.write_some, Files.sync = write_if_room, sync_or_fail  # type: ignore[method-assign]
    clock.time = _Clock(orders)  # type: ignore[assignment, attr-defined]
