"""Process files: which process of this node plays which part, and how to end exactly that one.

Rules of this file. The system reuses process numbers, so a process is identified by its number, the
moment at which it began (in ticks of the kernel) and the boot. It is ended through a descriptor
whose process was checked after the descriptor was opened, so no other process can be hit. Only
Linux offers all that; elsewhere there are no process files, and no process is ended.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import DiskFull
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass

logger = logging.getLogger(__name__)

FOLDER = "processes"
SUFFIX = ".process"
FILES_KEPT = 1_024
STATE_AT, STARTED_AT = 0, 19


@dataclass(frozen=True, slots=True)
class ProcessFile:
    """One process: its part in the topology, its identity, and the socket that answers for its
    pulse."""

    role: str
    pid: int
    started_ticks: int
    boot: str
    pulse: str
    lease_ms: int


CODEC = json_codec("process file", ProcessFile)


def boot_id() -> str:
    """Which boot of this machine it is; '' where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """The fields of a process behind its name, which may hold anything; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def started_ticks(pid: int) -> int | None:
    """When a process began; None when there is none of that number."""
    stat = _stat(pid)
    return None if stat is None else int(stat[STARTED_AT])


def is_stopped(pid: int) -> bool:
    """Whether the system has stopped the process, by a signal or for a debugger."""
    stat = _stat(pid)
    return stat is not None and stat[STATE_AT] in ("T", "t")


def write_process_file(
    folder: Path, role: str, pulse: str, lease_s: float, files: Files | None = None
) -> None:
    """Say that this process plays `role` now. A disk that is full leaves it unwatched."""
    pid = os.getpid()
    began, boot = started_ticks(pid), boot_id()
    if sys.platform != "linux" or began is None or not boot or not pulse:
        return
    place = folder / FOLDER
    name = place / f"{role.replace(' ', '-')}{SUFFIX}"
    made = ProcessFile(role, pid, began, boot, pulse, round(lease_s * 1_000))
    try:
        files = files or Files()
        files.make_folder(place)
        files.replace(name, CODEC.encode(made), sync=False)
    except (OSError, DiskFull) as error:
        logger.warning("%s is not watched by its node: %s", role, error)


@lru_cache(maxsize=FILES_KEPT)
def _said_by(path: Path, _inode: int, _written_ns: int) -> ProcessFile:
    """What a file says that was written then; it is looked at every second, and never changed, but
    replaced. Raises OSError, ValueError."""
    found: ProcessFile = CODEC.decode(path.read_bytes())
    return found


def processes_of(folder: Path) -> Iterator[ProcessFile]:
    """The processes that the files in `folder` name and that live, this one left out."""
    boot = boot_id()
    try:
        paths = sorted((folder / FOLDER).glob(f"*{SUFFIX}"))
    except OSError:
        return
    for path in paths:
        try:
            stat = path.stat()
            if stat.st_uid != os.geteuid():
                continue
            found = _said_by(path, stat.st_ino, stat.st_mtime_ns)
        except (OSError, ValueError) as error:
            logger.debug("%s says nothing: %s", path, error)
            continue
        if found.boot == boot and found.pid != os.getpid() and is_that(found):
            yield found


def is_that(process: ProcessFile) -> bool:
    """Whether the number is still that very process."""
    return started_ticks(process.pid) == process.started_ticks


def end_process(process: ProcessFile) -> bool:
    """Kill exactly that process; False when it is gone, or is not ours to end."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        return False
    try:
        if process.boot != boot_id() or not is_that(process):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError as error:
        logger.warning("%s (pid %d) cannot be ended: %s", process.role, process.pid, error)
        return False
    finally:
        os.close(descriptor)
    return True
