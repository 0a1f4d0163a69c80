"""`LogView`: the reading half of a partition log: its offsets, and what any thread may read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pxrs_ray.data.frame import decode_body, frames_in
from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.data.protocol import Gap, LogEnds
from pxrs_ray.errors import LogAway, LogError, LogLost, OffsetOutOfRange
from pxrs_ray.files import Files
from pxrs_ray.log.disk_reserve import Reserve
from pxrs_ray.log.index import NO_TIMESTAMP
from pxrs_ray.log.log_opening import Opened
from pxrs_ray.log.manifest import Manifest
from pxrs_ray.log.memory_tail import MemoryTail
from pxrs_ray.log.producer_state import ProducerStates
from pxrs_ray.log.segmented_log import DiskLog
from pxrs_ray.model import Offset

ALL_RECORDS = 1 << 62


def _nobody() -> None: ...


class FrameRun(NamedTuple):
    """The result of a read: runs of whole frames, and the offset to read on at."""

    chunks: list[Any]
    next_offset: Offset


class LogView:
    """The part of a partition log that does not change it. The writing half is `PartitionLog`.

    `changes` counts what may end a reader's wait: messages, readable or dropped, groups, losses.
    `tell_changed` is called after each of them, from whichever thread makes it.
    """

    def __init__(self, folder: Path, limits: LogLimits, files: Files, opened: Opened) -> None:
        self.folder = folder
        self.limits = limits
        self.recovery = opened.disk.cut if opened.disk is not None else None
        self._files = files
        self._manifest: Manifest = opened.manifest
        self._disk: DiskLog | None = opened.disk
        self._producers: ProducerStates = opened.producers
        self._lock_fd = opened.lock_fd
        self._lock = threading.Lock()
        self._tail = MemoryTail()
        self.changes = 0
        self.tell_changed: Callable[[], None] = _nobody
        self._waiting = opened.waiting
        self._failed: LogError | None = None
        self._closed = False
        self._start = opened.manifest.start_offset
        self._end = opened.end_offset
        self._durable = opened.end_offset
        self._covered = opened.covered
        self._reserve = Reserve(files, folder)
        if self._disk is not None:
            self._reserve.keep()

    def _changed(self) -> None:
        """What was changed may be what somebody waits for, or has to care for."""
        self.changes += 1
        self.tell_changed()

    @property
    def queue(self) -> str:
        """Which queue this is a part of."""
        return self._manifest.queue

    @property
    def log_id(self) -> str:
        """The id of the queue that this is a part of; '' when it has none."""
        return self._manifest.log_id

    @property
    def partition(self) -> int:
        """Which partition this is."""
        return self._manifest.partition

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self._start

    @property
    def end_offset(self) -> Offset:
        """The offset that the next message gets."""
        return self._end

    @property
    def visible_end(self) -> Offset:
        """Where readers must stop: the end, or with durability ALWAYS what is synced."""
        return self._durable if self.limits.durability is Durability.ALWAYS else self._end

    @property
    def copied_end(self) -> Offset:
        """What is before it is wherever else it has to be before anybody hears of it: a log that
        has no other copy is all of them."""
        return self._end

    @property
    def durable_offset(self) -> Offset:
        """Everything below survives a power cut; in memory logs that is nothing."""
        return self._start if self._disk is None else self._durable

    @property
    def dirty(self) -> bool:
        """Whether `sync` has something to do; never once the log is closed, or dropped."""
        return self._disk is not None and self._durable < self._end and not self._closed

    @property
    def size_bytes(self) -> int:
        """Bytes kept: on disk, or in a memory log in memory."""
        return self._tail.bytes if self._disk is None else self._disk.size_bytes

    @property
    def bytes_hot(self) -> int:
        """Bytes of frames in memory."""
        return self._tail.bytes

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Every loss that was recorded, oldest first."""
        return tuple(self._manifest.gaps)

    @property
    def groups(self) -> dict[str, Offset]:
        """Each known group's checkpoint."""
        return dict(self._manifest.groups)

    @property
    def state(self) -> str:
        """'open', 'waiting', 'lost' or 'failed': see `LogEnds`."""
        if self._failed is not None:
            return "failed"
        if self._waiting:
            return "waiting"
        return "lost" if self._manifest.stopped else "open"

    def ends(self) -> LogEnds:
        """All of this at one moment."""
        first = last = None
        if self._disk is not None:
            indexes = [s.index for s in self._disk.segments if not s.empty]
            if indexes:
                first = indexes[0].timestamp_first_ms
                last = max(index.timestamp_max_ms for index in indexes)
        elif self._tail.base_offset is not None:
            first, last = self._tail.timestamps()
        return LogEnds(
            self.partition,
            self._start,
            self.visible_end,
            self.durable_offset,
            first,
            last if last != NO_TIMESTAMP else None,
            self.size_bytes,
            self.limits.bytes_max,
            self.groups,
            self.gaps,
            self.state,
            str(self._failed or self._waiting or self._manifest.stopped),
        )

    def read(
        self, offset: Offset, records_max: int = ALL_RECORDS, bytes_max: int = 1 << 20
    ) -> FrameRun:
        """Whole frames, the first one holding `offset` (or, in a gap, what follows it).

        At least one frame, then up to the bounds; none at the end. May read files. Raises
        OffsetOutOfRange, LogCorrupted, LogLost, LogAway.
        """
        newest = self.read_tail(offset, records_max, bytes_max)
        if newest is not None:
            return newest
        assert self._disk is not None
        try:
            found = self._disk.read(offset, records_max, bytes_max)
        except OSError as error:
            self._check_range(offset)  # or did retention drop it meanwhile?
            raise LogAway(f"{self.folder}: cannot be read at {offset} ({error})") from error
        if found is None:
            return self._nothing(offset)
        run, after = found
        return FrameRun([run], after) if after <= self.visible_end else self._visible(run, offset)

    def _visible(self, run: memoryview, offset: Offset) -> FrameRun:
        """As much of `run` as readers may see."""
        size = 0
        for header, _ in frames_in(run):
            if header.end_offset > self.visible_end:
                break
            size += header.frame_bytes
            offset = header.end_offset
        return FrameRun([run[:size]], offset) if size else self._nothing(offset)

    def read_tail(
        self, offset: Offset, records_max: int = ALL_RECORDS, bytes_max: int = 1 << 20
    ) -> FrameRun | None:
        """As `read`, without touching a file: None when it would have to."""
        self._check_usable()
        if offset == self._end:  # most often, and most quickly
            return FrameRun([], offset)
        self._check_range(offset)
        with self._lock:
            base = self._tail.base_offset
            if self._disk is not None and (base is None or offset < base):
                return None
            chunks, after = self._tail.read(offset, self.visible_end, records_max, bytes_max)
        return FrameRun(chunks, after) if chunks else self._nothing(offset)

    def _nothing(self, offset: Offset) -> FrameRun:
        """No frame from `offset` on: behind the recorded gap that it lies in, if it does."""
        for gap in self._manifest.gaps:
            if gap.first <= offset < gap.end:
                return FrameRun([], min(gap.end, self.visible_end))
        return FrameRun([], offset)

    def offset_at(self, timestamp_ms: int) -> Offset:
        """The first offset with a timestamp of at least `timestamp_ms`; the end when none has."""
        with self._lock:
            frame = self._tail.frame_reaching(timestamp_ms) if self._disk is None else None
        if self._disk is not None:
            try:
                found = self._disk.frame_reaching(timestamp_ms)
            except OSError as error:
                raise LogAway(f"{self.folder}: cannot be read ({error})") from error
        else:
            found = next(frames_in(frame), None) if frame is not None else None
        if found is None:
            return self.visible_end
        header, body = found
        offset = header.base_offset
        if header.timestamp_min_ms < timestamp_ms:
            stamps = decode_body(header, body).column("timestamp_ms").to_numpy()
            offset += int((stamps >= timestamp_ms).argmax())
        return max(self._start, min(offset, self.visible_end))

    def _check_range(self, offset: Offset) -> None:
        if not self._start <= offset <= self._end:
            raise OffsetOutOfRange(
                f"partition {self.partition} holds offsets {self._start} to {self._end}, "
                f"{offset} is not among them"
            )

    def _check_usable(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise LogAway(f"{self.folder}: the log is closed; it is opened anew")
        if self._waiting:
            raise LogLost(f"partition {self.partition} is not confirmed: {self._waiting}")
        if self._manifest.stopped:
            raise LogLost(
                f"the log of partition {self.partition} is halted: {self._manifest.stopped}; "
                "bring the files back, or accept the loss to go on"
            )
