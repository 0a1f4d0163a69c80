"""Handlers that write down what they did, and the reading of it. Used by tests of the shell."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pxrs_ray.consumer.delivery import Context, DeliveredBatch, Delivery
from tests.grown_files import GrownFiles

PAUSES_MAX = 4


@dataclass(frozen=True)
class Note:
    """One thing that a handler noted: a message ('done', 'failed'), or a hook."""

    at_s: float
    what: str
    pid: int
    member: str
    incarnation: int
    partition: int
    offset: int
    epoch: int
    attempt: int
    key: str
    payload: str


_GROWN = GrownFiles(lambda line: Note(*json.loads(line)))


class Notebook:
    """A folder in which every process that takes part has a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = -1

    def __reduce__(self) -> tuple[type[Notebook], tuple[Path]]:
        return (Notebook, (self.folder,))

    def write(self, what: str, context: Context | None, key: str = "", payload: str = "") -> None:
        if self._file < 0:
            flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
            self._file = os.open(self.folder / f"{os.getpid()}.notes", flags)
        where: list[Any] = ["", 0, -1, -1, 0, 0]
        if context is not None:
            c = context
            where = [c.member, c.incarnation, c.partition, c.offset, c.epoch, c.attempt]
        line = json.dumps([time.time(), what, os.getpid(), *where, key, payload])
        # One system call: a kill leaves no half of a line behind.
        os.write(self._file, line.encode() + b"\n")

    def notes(self, what: str | None = "done") -> list[Note]:
        found = _GROWN.lines_of(self.folder.glob("*.notes"))
        return sorted(
            (note for note in found if what is None or note.what == what), key=lambda n: n.at_s
        )

    def offsets(self) -> dict[int, list[int]]:
        """The offsets processed of each partition, in the order of time."""
        found: dict[int, list[int]] = {}
        for note in self.notes():
            found.setdefault(note.partition, []).append(note.offset)
        return found

    def payloads(self) -> list[str]:
        return [note.payload for note in self.notes()]


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


class Recorder:
    """Notes each message; works for a while at each where that is asked for."""

    def __init__(self, folder: Path, work_s: float = 0.0) -> None:
        self.notebook = Notebook(folder)
        self.work_s = work_s

    def handle(self, message: Delivery) -> None:
        if self.work_s:
            time.sleep(self.work_s)
        self.notebook.write("done", message.context, _text(message.key), _text(message.payload))


class BatchRecorder(Recorder):
    """The same, a batch at a time."""

    handle = None  # type: ignore[assignment]

    def handle_batch(self, batch: DeliveredBatch) -> None:
        self.notebook.write("batch", batch.context, payload=str(len(batch)))
        for message in batch:
            Recorder.handle(self, message)


class HookRecorder(Recorder):
    """Notes what it is told of its partitions, too."""

    def on_assigned(self, partition: int, checkpoint: int) -> None:
        self.notebook.write("assigned", None, str(partition), str(checkpoint))

    def on_revoked(self, partition: int) -> None:
        self.notebook.write("revoked", None, str(partition))

    def close(self) -> None:
        self.notebook.write("closed", None)


class Failing(Recorder):
    """Fails on some payloads, each so many times; -1 for ever."""

    def __init__(self, folder: Path, times: dict[str, int], work_s: float = 0.0) -> None:
        super().__init__(folder, work_s)
        self.times = times

    def handle(self, message: Delivery) -> None:
        times = self.times.get(_text(message.payload), 0)
        if times < 0 or message.context.attempt <= times:
            self.notebook.write("failed", message.context, payload=_text(message.payload))
            raise RuntimeError(f"cannot do {_text(message.payload)}")
        super().handle(message)


def eventually(
    check: Callable[[], Any], timeout_s: float = 30.0, what: str = "", pause_s: float = 0.01
) -> Any:
    """Wait until `check` answers something true, and answer that.

    A check mostly asks other processes, and whoever asks often takes the core that these need: the
    longer it takes, the longer each pause, up to `PAUSES_MAX` times the first.
    """
    end_s = time.monotonic() + timeout_s
    longest_s = PAUSES_MAX * pause_s
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {timeout_s} s: {what or check}; last: {found!r}")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, longest_s)
