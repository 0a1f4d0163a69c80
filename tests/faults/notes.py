"""Every file operation of whoever writes small files beside the logs, failed one by one.

The coordinator's note of what its registry had accepted, the keys of its seals, process files, and
folders that a queue is exported to: each is written and read through several lives, and each
operation on the way fails, or is the last before a kill or a power cut. What passes must have done
no lasting harm: once it is over, everything is known that was told without a problem.
`python -m tests.faults.notes` tells every failure.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

from pxrs_ray.actors.cluster.process_file import CODEC, FOLDER, write_process_file
from pxrs_ray.errors import PxrsError, StoreCorrupted
from pxrs_ray.interop.folder_queue import FolderQueue
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.topology.registry_witness import RegistryWitness
from pxrs_ray.topology.seal import seal_of
from tests.faults import FaultReport
from tests.faults.faulty_files import ENDS, KINDS, Ended, Fault, FaultyFiles

LIVES = 4
TRIES = 20
BURSTS = {"ENOSPC": (1, 7), "EIO": (1, 5), "EMFILE": (1, 7), "EACCES": (1, 5)}


class Broken(AssertionError):
    """A promise was broken; says which."""


class Disk:
    """A folder on a disk that fails once; `lives` of whoever writes there, one after the other."""

    def __init__(self, fault: Fault | None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pxrs-notes-"))
        self.folder = self.root / "t"
        self.files = FaultyFiles()
        self.fault = fault
        self._random = Random(0 if fault is None else fault.at)

    def life(self, do: Callable[[], None]) -> bool:
        """Let somebody live; whether it was not killed."""
        try:
            do()
        except Ended:
            for link in Path("/proc/self/fd").iterdir():
                with suppress(OSError):
                    if str(link.readlink()).startswith(str(self.root)):
                        os.close(int(link.name))
            if self.fault is not None and self.fault.kind in ("power", "torn"):
                self.files.cut_power(self.root, self._random)
            self.files.begin_anew()
            return False
        return True

    def heal(self) -> None:
        """From here on nothing fails."""
        self.files.fault = None

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def high_water(disk: Disk) -> None:
    """A registry that only goes on is never refused, and one that goes back always.

    One group is noted by the first life alone: what later lives do may not forget it.
    """
    noted, told = {"g": 0, "h": 0}, True

    def lead(number: int) -> None:
        nonlocal noted, told
        found = RegistryWitness(disk.folder, "registry", files=disk.files)
        found.check("g", number, number)
        for group in ("g", "h")[: 2 if number == 1 else 1]:
            found.note(group, number, number)
            told = not found.problems
            noted[group] = number if told else noted[group]

    for number in range(1, LIVES):
        try:
            alive = disk.life(lambda number=number: lead(number))
        except StoreCorrupted as error:
            raise Broken(f"the registry at {number} is refused: {error}") from error
        if not alive and disk.fault is not None and disk.fault.kind != "kill":
            noted = {"g": 0, "h": 0}  # a note is a witness: it is not synced
    disk.heal()
    for group, number in noted.items():
        found = RegistryWitness(disk.folder, "registry", files=disk.files)
        with suppress(StoreCorrupted):
            found.check(group, number, 0)
            if number:
                raise Broken(f"{group} was noted at {number}, and one that went back is believed")
    lead(LIVES)
    if not told:
        raise Broken("the note does not heal")
    with suppress(StoreCorrupted):
        RegistryWitness(disk.folder, "another", files=disk.files)
        raise Broken("another registry is taken for this one")


def seals(disk: Disk) -> None:
    """What any former start has sealed is known, once its key was kept."""
    disk.folder.mkdir()
    kept: list[str] = []
    for number in range(LIVES + 1):
        if number == LIVES:
            disk.heal()

        def start(number: int = number) -> None:
            seal, problem = seal_of(disk.folder, bytes([number + 1]) * 32, disk.files)
            unknown = [text for text in kept if not seal.opened("place", text)[1]]
            if unknown and not problem:
                raise Broken(f"start {number} does not know {len(unknown)} seals, and says nothing")
            if not problem:
                kept.append(seal.sealed("place", f"by start {number}"))

        disk.life(start)
    seal, problem = seal_of(disk.folder, b"z" * 32, disk.files)
    forgotten = [text for text in kept if not seal.opened("place", text)[1]]
    if problem or forgotten:
        raise Broken(f"{len(forgotten)} of {len(kept)} kept keys are gone; {problem!r}")


def process_files(disk: Disk) -> None:
    """A file that cannot be written stops nobody; what is there is a whole one, or none."""

    def begin() -> None:
        write_process_file(disk.folder, "coordinator", "pulse", 1.0, disk.files)

    for _ in range(2):
        disk.life(begin)
    disk.heal()
    begin()
    [path] = (disk.folder / FOLDER).glob("*.process")
    if CODEC.decode(path.read_bytes()).pid != os.getpid():
        raise Broken("the process file names another process")


def queue_of(disk: Disk) -> FolderQueue:
    """The folder, as anybody reads it."""
    return FolderQueue(disk.folder)


def exports(disk: Disk) -> None:
    """An export that was cut off anywhere is finished by the next one; a finished one lasts."""
    wanted = {offset: b"payload of %d" % offset for offset in range(1, 8)}

    def export() -> None:
        queue = FolderQueue(disk.folder, disk.files)
        for first in range(1, 8, 3):
            begin = max(first, queue.next_offset(0))
            queue.write(0, [(o, wanted[o], 1_000) for o in range(begin, min(first + 3, 8))])
        queue.commit("g", [(0, 7)])

    for _ in range(TRIES):
        try:
            if disk.life(export):
                break
        except (PxrsError, OSError) as error:
            if not passes(error):
                raise Broken(f"refused for good: {error!r}") from error
    else:
        raise Broken("does not end")
    disk.heal()
    if queue_of(disk).next_offset(0) != 8:
        raise Broken(f"ended, and {queue_of(disk).next_offset(0)} is next")
    disk.files.cut_power(disk.root, Random(1))
    queue = queue_of(disk)
    found = {message.offset: message.payload() for message in queue.messages(0)}
    if found != wanted or queue.next_offset(0) != 8 or queue.committed("g") != {0: 7}:
        raise Broken(f"exported {found}, next {queue.next_offset(0)}")


SCENES: Mapping[str, Callable[[Disk], None]] = {
    scene.__name__: scene for scene in (high_water, seals, process_files, exports)
}


def play(scene: str, fault: Fault) -> tuple[int, str]:
    """How many operations failed, and what promise was broken ('' for none)."""
    disk = Disk(fault)
    disk.files.put(fault)
    try:
        SCENES[scene](disk)
    except Exception as error:
        where = disk.files.where
        told = f"notes: {scene}: {fault.kind} at {fault.at} x{fault.burst} ({where}): {error!r}"
        return disk.files.fired, told
    finally:
        disk.close()
    return disk.files.fired, ""


def run(scenes: tuple[str, ...] = tuple(SCENES)) -> FaultReport:
    """Put each kind of fault at each operation of each scene."""
    report, before = FaultReport(0), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for scene in scenes:
            for kind in KINDS:
                for burst in BURSTS.get(kind, (1,)):
                    assert burst == 1 or kind not in ENDS
                    at, fired = 0, 1
                    while fired:
                        fired, broken = play(scene, Fault(kind, at, burst))
                        at += 1
                        report += FaultReport(min(1, fired), [broken] if broken else [])
    finally:
        logging.disable(before)
    return report


if __name__ == "__main__":
    found = run()
    print(f"{found.steps} operations failed one by one, {len(found.failures)} broken promises")
    for line in found.failures:
        print(f"  {line}")
    sys.exit(1 if found.failures else 0)
