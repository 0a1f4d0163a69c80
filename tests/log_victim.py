"""A process that appends to a log until it is killed; for tests of what a kill leaves behind.

One process imports everything and then forks a victim for each line on its stdin, so that hundreds
of kills take seconds. A victim tells in the file `acks` what was acknowledged, and in the file
`synced` what of which file a power cut would leave.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.files import Files
from pxrs_ray.log.partition_log import PartitionLog
from tests.settings import log_limits

PRODUCER = b"v" * 16
INTERVAL_S = 0.003


def payloads(sequence: int) -> list[bytes]:
    """What frame `sequence` holds: always the same."""
    rng = random.Random(sequence)
    return [b"%d/%d/" % (sequence, i) + rng.randbytes(rng.choice([5, 80, 900])) for i in range(3)]


def limits(durability: str) -> LogLimits:
    """Small segments, so that kills meet rolls as well."""
    return log_limits(
        durability=Durability(durability), segment_bytes_max=20_000, tail_bytes_max=10_000
    )


class WitnessFiles(Files):
    """Notes what was synced, after it was, where a kill does not reach it."""

    def __init__(self, witness: Path) -> None:
        self._witness = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def sync(self, fd: int) -> None:
        """Note the size from before the sync: what comes meanwhile is not promised."""
        size = os.fstat(fd).st_size
        super().sync(fd)
        path = Path(f"/proc/self/fd/{fd}").readlink()
        os.write(self._witness, f"{path}\t{size}\n".encode())


def batch_of(column: Any) -> Batch:
    """Messages whose keys are their payloads."""
    return Batch.of(column, column, timestamp_ms=1)


def live(folder: Path, durability: str) -> None:
    """Append for ever."""
    log = PartitionLog.open(
        folder / "log",
        "q",
        0,
        limits(durability),
        now_ms=1,
        files=WitnessFiles(folder / "synced"),
        boot="same",
    )
    if log.state == "waiting":
        log.confirm(0, 1)
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if durability == "interval":
        threading.Thread(target=sync_for_ever, args=(log,), daemon=True).start()
    probe = batch_of([b""]).to_wire(PRODUCER, 0, 0)[0]
    sequence = log.expected_sequence(probe)
    os.write(acks, b"born\n")
    while True:
        batch = batch_of(payloads(sequence))
        appended = log.append(*batch.to_wire(PRODUCER, 0, sequence), 1)
        if durability == "always":
            log.sync()
        os.write(acks, f"{sequence} {appended.base_offset}\n".encode())
        sequence += 1


def sync_for_ever(log: PartitionLog) -> None:
    """The group sync of durability interval."""
    pause = threading.Event()
    while not pause.wait(INTERVAL_S):
        log.sync()


def main() -> None:
    """Fork a victim a line: {"folder": ..., "durability": ...}; answer its process id."""
    batch_of([b""])  # Arrow loads Pandas for the first one: that was most of what a victim took
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                live(Path(order["folder"]), order["durability"])
            except BaseException as error:
                (Path(order["folder"]) / "died").write_text(repr(error))
            finally:
                os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main()
