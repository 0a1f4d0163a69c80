"""Where the hosts stand: a folder, and namespaces that hold the switch and the disks' mounts.

Nothing is mounted and no interface is made outside of them, and they end with the processes that
hold them: those end with the test's process, however that ends. What can stay behind is the
folder; `sweep` removes those of runs that are dead.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.hosts import kernel

PREFIX = "pxrs-hosts-"
OWNER = "owner"
PROCESSES = "processes"
KEEP = "PXRS_HOSTS_KEEP"
NETWORK = "10.99.0"
GATEWAY = f"{NETWORK}.254"
UP_S_MAX = 20
GONE_S_MAX = 20


class Rack:
    """One run's place; `close` takes away everything that stands in it."""

    def __init__(self) -> None:
        kernel.require_or_raise()
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        (self.folder / OWNER).write_text(_told(os.getpid()))
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self._stand()
        except BaseException:
            self.close()
            raise

    def _stand(self) -> None:
        own = kernel.namespace(os.getpid(), "mnt")
        holder = ["unshare", "--net", "--mount", "--propagation", "private", "sleep", "infinity"]
        self.process = kernel.begin(holder)
        self.note(self.process.pid)
        kernel.wait_for(
            lambda: (
                kernel.command_line(self.pid).startswith("sleep")
                and kernel.namespace(self.pid, "mnt") != own
            ),
            UP_S_MAX,
            "the rack's namespaces",
        )
        # It answers what leads nowhere, so that nobody waits for an internet that is not there.
        self.ip(
            "link set lo up",
            "link add br0 type bridge",
            f"addr add {GATEWAY}/24 dev br0",
            "link set br0 up",
        )
        self.enter(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward || true"])

    @property
    def pid(self) -> int:
        """The process that holds the namespaces."""
        assert self.process is not None
        return self.process.pid

    def note(self, pid: int) -> None:
        """Remember a process for a later sweep, should this run not end it itself."""
        with (self.folder / PROCESSES).open("a") as file:
            file.write(_told(pid) + "\n")

    def entering(self) -> list[str]:
        """The beginning of a command that runs where the disks and the switch are."""
        return ["nsenter", "--target", str(self.pid), "--mount", "--net", "--"]

    def enter(self, command: list[str]) -> str:
        """Run a short command there."""
        return kernel.do([*self.entering(), *command])

    def ip(self, *lines: str) -> None:
        """Commands of ip(8) for the switch."""
        kernel.do([*self.entering(), "ip", "-batch", "-"], "\n".join(lines) + "\n")

    def bounded(self, folder: Path, bytes_max: int) -> None:
        """Make a folder a disk of that size."""
        options = f"size={bytes_max},mode=0755"
        self.enter(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)])

    def close(self) -> None:
        """End the namespaces and remove the folder (unless PXRS_HOSTS_KEEP is set)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(GONE_S_MAX)
            self.process = None
        if not os.environ.get(KEEP):
            _remove(self.folder)


def _told(pid: int) -> str:
    return f"{pid} {kernel.started_at(pid)}"


def _lives(told: str) -> int:
    """The pid that a note tells, when it still is the same process; else 0."""
    pid, _, ticks = told.strip().partition(" ")
    return int(pid) if pid.isdigit() and ticks and kernel.started_at(int(pid)) == ticks else 0


def sweep() -> list[Path]:
    """End and remove what runs left behind whose process is dead; answer their folders."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            told = (folder / OWNER).read_text()
        except OSError:
            # Another run may have made it a moment ago.
            young = folder.exists() and time.time() - folder.stat().st_mtime < 60
            told = _told(os.getpid()) if young else ""
        if _lives(told) or (folder / KEEP).exists():
            continue
        noted = folder / PROCESSES
        left = noted.read_text().splitlines() if noted.exists() else []
        kernel.end((pid for pid in map(_lives, left) if pid), signal.SIGKILL)
        _remove(folder)
        found.append(folder)
    return found


def _remove(folder: Path) -> None:
    """A process that was killed a moment ago may still make a file while its folder goes."""
    end_s = time.monotonic() + GONE_S_MAX
    while folder.exists() and time.monotonic() < end_s:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.1)
