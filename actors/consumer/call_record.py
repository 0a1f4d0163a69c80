"""`CallRecord`: which messages the handlers of this process are called with now, kept where it
survives the process.

Rules of this file. Before a handler is called, its thread writes which messages it is called with
into an entry of a mapped file: one store into shared memory, no system call. Whoever sees the
process dead reads the file: see `pxrs_ray.processing.suspects` for what follows. An entry belongs
to one thread at a time. This process alone writes the file, never one that it forks.

The same entries are the gate through which a suspect goes alone; who may pass it, and when, an
`AloneGate` says. A thread writes its entry first and looks at `closed` afterwards; the thread that
closes the gate looks at the entries afterwards. So one of the two sees the other.
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pxrs_ray.actors.consumer.call_record_file import (
    AT,
    CLEAN,
    EMPTY,
    END,
    ENTRIES_MAX,
    ENTRY_WORDS,
    EPOCH,
    EXIT,
    FIRST,
    HEAD_WORDS,
    MAGIC,
    PARTITION,
    PID,
    REDRIVEN,
    SEEN,
    USED,
    fault_path,
    record_path,
    sweep,
)
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.processing.alone_gate import AloneGate
from pxrs_ray.processing.suspects import EXITED, Suspect
from pxrs_ray.status.answers import CallUnderWay
from pxrs_ray.supervision.forks import in_children

LOOK_EVERY_S = 0.005

logger = logging.getLogger(__name__)


class RecordEntry:
    """Where one thread notes what it works on. `words[at]` is the first offset; EMPTY means
    nothing."""

    __slots__ = ("_record", "at", "index", "words")

    def __init__(self, record: CallRecord, index: int, words: Any) -> None:
        self._record = record
        self.index = index
        self.words = words
        self.at = HEAD_WORDS + index * ENTRY_WORDS + FIRST

    def begin(
        self,
        first: Offset,
        end: Offset,
        stopping: threading.Event,
        suspect: Suspect | None = None,
    ) -> bool:
        """Write that the call with these messages begins; False: it must not, `stopping` is set.

        Waits while a suspect is alone; a suspect waits until it may be.
        """
        base = self.at - FIRST
        self.words[base + END] = 0 if end == first + 1 else end
        if suspect is not None and suspect.isolated:
            return self._record.enter_alone(self, first, suspect, stopping)
        self.words[self.at] = first
        return not self._record.closed or self._record.wait_open(self, first, stopping)

    def end(self) -> None:
        """The call is over."""
        self.words[self.at] = EMPTY
        if self._record.closed:
            self._record.leave(self)


class CallRecord:
    """See the head of this file. `path` None keeps the entries in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self.closed = False
        self.problem = ""
        self._path = path
        self._fault: BinaryIO | None = None
        self._real_exit: Callable[[int], Any] | None = None
        words = HEAD_WORDS + ENTRIES_MAX * ENTRY_WORDS
        self._map = mmap.mmap(-1, words * 8) if path is None else self._mapped(path, words * 8)
        self.words = memoryview(self._map).cast("q")
        self.words[PID], self.words[0] = os.getpid(), MAGIC
        self._free: list[int] = []
        self._entries: dict[int, RecordEntry] = {}
        self._used = 0
        self._gate = threading.Condition()
        self._alone = AloneGate()
        in_children(self._in_child)

    def _in_child(self) -> None:
        """What a handler forks writes nowhere: the record is its parent's."""
        self.words = memoryview(bytearray(self.words.nbytes)).cast("q")
        for entry in self._entries.values():
            entry.words = self.words

    def _mapped(self, path: Path, size_bytes: int) -> mmap.mmap:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            # All of it at once: a page that cannot be had later would be a SIGBUS.
            getattr(os, "posix_fallocate", _truncate)(descriptor, 0, size_bytes)
            return mmap.mmap(descriptor, size_bytes)
        finally:
            os.close(descriptor)

    # --- entries --------------------------------------------------------------------------------

    def entry(self, partition: PartitionId, epoch: Epoch, *, redriven: bool = False) -> RecordEntry:
        """An entry for calls about this partition; give it back with `give_back`.

        When there is none any more, one that nobody reads: the call is not counted.
        """
        with self._gate:
            if self._free:
                index = self._free.pop()
            else:
                index, self._used = self._used, self._used + 1
            if index >= ENTRIES_MAX:
                return RecordEntry(
                    self, 0, memoryview(bytearray(8 * (HEAD_WORDS + ENTRY_WORDS))).cast("q")
                )
            entry = self._entries[index] = RecordEntry(self, index, self.words)
            base = HEAD_WORDS + index * ENTRY_WORDS
            self.words[entry.at], self.words[base + SEEN] = EMPTY, EMPTY
            self.words[base + PARTITION], self.words[base + EPOCH] = partition, epoch
            self.words[base + END], self.words[base + REDRIVEN] = 0, int(redriven)
            self.words[USED] = max(self.words[USED], index + 1)
            return entry

    def give_back(self, entry: RecordEntry) -> None:
        """The entry's thread is done with it."""
        entry.end()
        if entry.words is self.words:
            with self._gate:
                self._free.append(entry.index)

    def _others(self, entry: RecordEntry) -> Iterator[int]:
        first = HEAD_WORDS + FIRST
        for at in range(first, first + self.words[USED] * ENTRY_WORDS, ENTRY_WORDS):
            if self.words[at] != EMPTY and at != entry.at:
                yield at

    # --- the gate ---------------------------------------------------------------------------------

    def wait_open(self, entry: RecordEntry, first: Offset, stopping: threading.Event) -> bool:
        """Wait while a suspect is alone, with nothing in hand; False when `stopping` comes."""
        while self.closed:
            entry.words[entry.at] = EMPTY
            with self._gate:
                while not self._is_open() and not stopping.is_set():
                    self._gate.wait(LOOK_EVERY_S)
            if stopping.is_set():
                return False
            entry.words[entry.at] = first
        return True

    def _is_open(self) -> bool:
        """With the gate's lock: who has been alone for its time goes on in company."""
        was_closed, is_open = self.closed, self._alone.is_open(time.monotonic())
        if was_closed and is_open:
            self._moved()
        return is_open

    def _moved(self) -> None:
        """With the gate's lock: it was opened or closed."""
        self.closed = self._alone.closed
        self._gate.notify_all()

    def enter_alone(
        self, entry: RecordEntry, first: Offset, suspect: Suspect, stopping: threading.Event
    ) -> bool:
        """Begin with nothing else in hand, as far as the others end in time; False: `stopping`."""
        alone_s, alone, now_s = suspect.alone_ms / 1_000, self._alone, time.monotonic
        with self._gate:
            turn = alone.line_up(suspect.age_ms)
            while not (self._is_open() and alone.go_in(turn, entry, alone_s, now_s())):
                self._gate.wait(LOOK_EVERY_S)
                if stopping.is_set():
                    alone.give_up(turn)
                    return False
            self.closed = True
            while not alone.may_begin(alone_s, others=any(self._others(entry)), now_s=now_s()):
                if stopping.is_set():
                    break
                self._gate.wait(LOOK_EVERY_S)
            if stopping.is_set():
                alone.leave(entry)
                self._moved()
                return False
            entry.words[entry.at] = first
        return True

    def leave(self, entry: RecordEntry) -> None:
        """The call of `entry` has ended: when it was the one that is alone, others may begin."""
        with self._gate:
            self._alone.leave(entry)
            self._moved()

    # --- looking ----------------------------------------------------------------------------------

    def look(self) -> list[CallUnderWay]:
        """What is under way, longest first. Each look notes since when: look once a second."""
        now_ms = monotonic_ms()
        found = []
        for index in range(self.words[USED]):
            base = HEAD_WORDS + index * ENTRY_WORDS
            first = self.words[base + FIRST]
            if first == EMPTY:
                self.words[base + SEEN] = EMPTY
                continue
            if self.words[base + SEEN] != first:
                self.words[base + AT] = now_ms
                self.words[base + SEEN] = first
            seconds = (now_ms - self.words[base + AT]) / 1_000
            found.append(CallUnderWay(self.words[base + PARTITION], first, seconds))
        return sorted(found, key=lambda call: -call.seconds)

    # --- ends -------------------------------------------------------------------------------------

    def note_ends(self) -> None:
        """From now on a fault, and an exit that this process asks for itself, are noted too."""
        assert self._path is not None and self._fault is None
        self._fault = fault_path(self._path).open("wb", buffering=0)
        faulthandler.enable(self._fault, all_threads=False)
        real_exit = self._real_exit = os._exit

        def noted_exit(status: int) -> Any:
            self.words[EXIT] = EXITED + (status & 0xFF)
            real_exit(status)

        os._exit = noted_exit

    def end_cleanly(self) -> None:
        """This process ends as it should: whatever is in hand, no message is the cause."""
        self.words[CLEAN] = 1
        if self._real_exit is not None:
            os._exit = self._real_exit  # type: ignore[assignment]
            self._real_exit = None
        if self._fault is not None:
            faulthandler.enable()
            self._fault.close()
            self._fault = None
        if self._path is not None:
            for path in (self._path, fault_path(self._path)):
                with suppress(OSError):
                    path.unlink()


def _truncate(descriptor: int, offset: int, size_bytes: int) -> None:
    os.ftruncate(descriptor, offset + size_bytes)


def open_record(node: str, actor: str) -> CallRecord:
    """The entries of the consumer `actor`, in a file of its node where that is possible."""
    if not node:
        return CallRecord()
    try:
        path = record_path(node, actor)
        sweep(path.parent.parent)
        found = CallRecord(path)
        found.note_ends()
    except OSError as error:
        logger.warning("what kills %s will not be known: no record of its calls: %s", actor, error)
        found = CallRecord()
        found.problem = f"messages that kill it are not counted: no record of its calls: {error}"
    return found
