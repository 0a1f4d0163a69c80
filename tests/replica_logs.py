"""What the tests of replicas' logs share: logs, one that follows another, a disk that dies."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.files import Files
from pxrs_ray.log.replica_log import ReplicaLog
from tests.logs import NOW_MS, SMALL, contents
from tests.settings import log_limits
from tests.simulation.simulator.disk import SimulatedDisk

ALL = 1 << 40
TINY = log_limits(
    durability=Durability.ALWAYS,
    segment_bytes_max=1_200,
    tail_bytes_max=700,
    index_interval_bytes=300,
    retention_passed=True,
)


def opened(
    folder: Path, limits: LogLimits = SMALL, *, files: Files | None = None, boot: str | None = None
) -> ReplicaLog:
    log = ReplicaLog.open(
        folder, "q", 0, limits, now_ms=NOW_MS, files=files, boot=boot or "boot-1", lock_wait_ms=0
    )
    if log.state == "waiting":
        log.confirm(0, NOW_MS)
    return log


def everything(log: ReplicaLog) -> dict[int, bytes]:
    """What the log has, read or not: nothing is above the high watermark then."""
    log.advance(log.end_offset)
    log.sync()
    return contents(log)


def ship(leader: ReplicaLog, follower: ReplicaLog, bytes_max: int = 900, runs: int = ALL) -> None:
    """What the follower lacks, in so many runs."""
    while follower.end_offset < leader.end_offset and runs:
        runs -= 1
        first = follower.end_offset
        run = leader.read_unsettled(first, bytes_max)
        follower.append_replicated(first, b"".join(run.chunks), leader.epochs(), NOW_MS)


class Ended(BaseException):
    """The process is no more."""


class DyingDisk(SimulatedDisk):
    """One operation that changes something fails, or the process ends right before it."""

    at, fails = -1, False

    def _step(self) -> None:
        self.at -= 1
        if self.at == 0:
            if self.fails:
                raise OSError(errno.EIO, "failed (simulated)")
            raise Ended

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        self._step()
        return super().write_some(fd, pieces, position)

    def sync(self, fd: int) -> None:
        self._step()
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._step()
        super().truncate(fd, size)

    def sync_folder(self, folder: Path) -> None:
        self._step()
        super().sync_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)


class TwoLogs:
    """A log that lives and dies, and `other`, which is on the same machine."""

    def __init__(self, seed: int, folder: str, limits: LogLimits = TINY) -> None:
        self.dice = Random(seed)
        self.disk = DyingDisk(seed)
        self._folder, self._limits = Path(folder), limits
        self._open_other()
        self.open()

    def open(self) -> None:
        self.log = opened(Path("/log"), TINY, files=self.disk, boot=self.disk.boot_id())

    def _open_other(self) -> None:
        boot = self.disk.boot_id()
        self.other = opened(self._folder, self._limits, files=self.disk, boot=boot)

    def restarts(self) -> None:
        how = self.dice.choice(("close", "abandon", "power"))
        (self.log.close if how == "close" else self.log.abandon)()
        if how == "power":
            self.dies(power=True)
        self.open()

    def dies(self, *, power: bool) -> None:
        """All processes of the machine; the other log had everything synced."""
        self.other.close()
        if power:
            self.disk.cut_power()
        else:
            self.disk.end_processes()
        self._open_other()
