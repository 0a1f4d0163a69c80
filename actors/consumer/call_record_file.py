"""The file of a consumer's `CallRecord`: where it lies, its layout, and how it is read after a
death.

Rules of this file. The record is a file in memory of the consumer's own node, named after its
actor. The coordinator reads it: directly on its own node, through a task on any other. When the
node is gone no message was the cause, and there is nothing to read. All words are signed and eight
bytes long. A record that makes no sense counts as none.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

from pxrs_ray.clock import monotonic_ms
from pxrs_ray.codec import Codec, register
from pxrs_ray.processing.suspects import EXITED, EXITED_ITSELF, Death, HandlerCall

MAGIC = 0x70787273_00000001
HEAD_WORDS = 8
# Words of the head: the magic number is the first.
PID, USED, CLEAN, EXIT, SWEPT = 1, 2, 3, 4, 5
SWEPT_AFTER_MS = 600_000
ENTRY_WORDS = 8
# Words of an entry. END is 0 for a single message; SEEN and AT: what was seen there, since when.
FIRST, END, PARTITION, EPOCH, REDRIVEN, SEEN, AT = 0, 1, 2, 3, 4, 5, 6
EMPTY = -1
ENTRIES_MAX = 4_096
FAULT_BYTES_MAX = 4_096

_SIGNALS = {
    "Segmentation fault": 11,
    "Floating": 8,
    "Aborted": 6,
    "Bus error": 7,
    "Illegal instruction": 4,
}


def _encode(words: tuple[int, ...]) -> bytes:
    return struct.pack(f"{len(words)}q", *words)


def _decode(data: bytes) -> tuple[int, ...]:
    whole = len(data) // 8
    return struct.unpack(f"{whole}q", data[: whole * 8])


WORDS = register(Codec("consumer: death record", tuple[int, ...], _encode, _decode))


def record_path(node: str, actor: str) -> Path:
    """Where the consumer `actor` on `node` keeps its record; every process there gets the same
    path."""
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() else Path(tempfile.gettempdir())
    name = hashlib.blake2b(actor.encode(), digest_size=12).hexdigest()
    user = getattr(os, "getuid", int)()
    return base / f"pxrs-{user}" / node[:16] / name


def sweep(folder: Path) -> None:
    """Remove records below `folder` that nobody has come for in ten minutes since we saw them.

    A coordinator reads a record within a second of the death; one that died with its consumers
    never does, and neither does one whose whole cluster is gone.
    """
    now_ms = monotonic_ms()
    for path in folder.glob("*/*"):
        with suppress(OSError, ValueError):
            if path.suffix:
                continue
            with path.open("r+b") as file:
                words = WORDS.decode(file.read(HEAD_WORDS * 8))
                if len(words) < HEAD_WORDS:
                    continue
                if words[0] == MAGIC and _is_alive(words[PID]):
                    continue
                if not 0 < words[SWEPT] <= now_ms:
                    file.seek(SWEPT * 8)
                    file.write(WORDS.encode((now_ms,)))
                    continue
            if now_ms - words[SWEPT] > SWEPT_AFTER_MS:
                fault_path(path).unlink(missing_ok=True)
                path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def fault_path(path: Path) -> Path:
    """Where a fault of that process is written."""
    return path.with_suffix(".fault")


def read_record(path: Path, status: int = 0) -> Death:
    """What is known of a dead process whose record is at `path`; the record is removed.

    `status` is how it ended, as the kernel told it; 0 where it did not.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return Death()
    fault = _fault_of(fault_path(path))
    for each in (path, fault_path(path)):
        with suppress(OSError):
            each.unlink()
    words = WORDS.decode(data)
    if len(words) < HEAD_WORDS or words[0] != MAGIC or words[CLEAN]:
        return Death()
    now_ms = monotonic_ms()
    calls = []
    used = min(words[USED], (len(words) - HEAD_WORDS) // ENTRY_WORDS)
    for index in range(used):
        base = HEAD_WORDS + index * ENTRY_WORDS
        entry = words[base : base + ENTRY_WORDS]
        if entry[FIRST] < 0:
            continue
        age_ms = max(0, now_ms - entry[AT]) if entry[SEEN] == entry[FIRST] else 0
        end = entry[END] or entry[FIRST] + 1
        calls.append(
            HandlerCall(
                entry[PARTITION], entry[EPOCH], entry[FIRST], end, age_ms, bool(entry[REDRIVEN])
            )
        )
    noted = words[EXIT]
    if noted >= EXITED:
        return Death(tuple(calls), EXITED_ITSELF + noted % EXITED)
    return Death(tuple(calls), status or fault)


def _fault_of(path: Path) -> int:
    """The signal that a process noted before it died of it; 0 is none."""
    try:
        with path.open("rb") as file:
            told = file.read(FAULT_BYTES_MAX).decode(errors="replace")
    except OSError:
        return 0
    return next((number for text, number in _SIGNALS.items() if text in told), 0)
