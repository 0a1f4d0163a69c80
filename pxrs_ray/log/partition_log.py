"""`PartitionLog`: the ordered log of one partition. No Ray, no thread, no clock of its own.

Rules of this file. One writer at a time calls `append` and everything else that changes the log;
any thread may read. Files are touched without holding the lock. Offsets only rise, across every
crash: what was given out once is never given to another message. A loss is a recorded gap. With
durability ALWAYS readers see only what is synced, so that nobody acts on what a power cut undoes;
the writer calls `sync` before it acknowledges.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from pxrs_ray.errors import (
    DiskFull,
    LogError,
    MessageTooLarge,
    PartitionFull,
    RetentionBlocked,
    UsageError,
)
from pxrs_ray.log.files import Files, boot_id
from pxrs_ray.log.frame import FrameHeader, check_body, decode_body, pack_header, unpack_header
from pxrs_ray.log.limits import LogLimits, LossPolicy
from pxrs_ray.log.opening import NEW, RESERVE_OFFSETS, SNAPSHOT, note_gap, open_parts
from pxrs_ray.log.retention import Part, droppable
from pxrs_ray.log.view import LogView
from pxrs_ray.log.wire import Appended
from pxrs_ray.model import Offset, PartitionId

_PARTS_MAX = 256


class PartitionLog(LogView):
    """One partition's log. `recovery` says what torn tail was cut when it was opened."""

    @classmethod
    def open(
        cls,
        folder: Path,
        queue: str,
        partition: PartitionId,
        limits: LogLimits,
        *,
        now_ms: int,
        files: Files | None = None,
        boot: str | None = None,
        lock_wait_ms: int = 5_000,
    ) -> Self:
        """Open, recover or make the log in `folder`.

        A new log is 'waiting', and refuses everything, until `confirm` says how far it should
        reach (0 for a new queue). Raises LogCorrupted naming file, position and offset, and
        AlreadyExists when another process has the log open.
        """
        files = files or Files()
        boot = boot_id() if boot is None else boot
        opened = open_parts(folder, queue, partition, limits, files, boot, now_ms, lock_wait_ms)
        return cls(folder, limits, files, opened)

    def append(self, packed_header: bytes, body: Any, now_ms: int) -> Appended:
        """Append one frame, as a producer packed it; a repeat is answered and adds nothing.

        When it raises, nothing was kept: SequenceGap, ProducerFenced, SequenceConflict,
        PartitionFull, MessageTooLarge, DiskFull, LogLost, LogCorrupted (the frame is damaged).
        """
        self._check_usable()
        header = unpack_header(packed_header)
        check_body(header, body)
        largest = min(self.limits.frame_bytes_max, self.limits.bytes_max)
        if header.frame_bytes > largest:
            raise MessageTooLarge(
                f"a frame of {header.frame_bytes} bytes is above the {largest} that "
                "frame_bytes_max and partition_bytes_max allow: send smaller batches or messages"
            )
        if decode_body(header, body).num_rows == 0:
            raise UsageError("a frame without messages cannot be appended")
        repeat = self._producers.repeat(header)
        if repeat is not None:
            base = repeat.base_offset if repeat.base_offset >= 0 else None
            return Appended(self.partition, base, header.messages, repeated=True)
        self._make_room(header.frame_bytes, now_ms)
        header = header._replace(base_offset=self._end)
        frame = b"".join((pack_header(header), body))
        self._store(header, frame, now_ms)
        with self._lock:
            self._hot.append(header, frame)
            if self._disk is not None:
                self._hot.evict(self.limits.hot_bytes_max)
            self._producers.record(header, now_ms)
            self._end = header.end_offset
            self.changes += 1
        return Appended(self.partition, header.base_offset, header.messages)

    def expected_sequence(self, packed_header: bytes) -> int:
        """What the log would take next of the producer of this header."""
        header = unpack_header(packed_header)
        return self._producers.expected(header.producer_id, header.producer_epoch)

    def _store(self, header: FrameHeader, frame: bytes, now_ms: int) -> None:
        try:
            if self._disk is None:
                self._reserve(header.end_offset)
                return
            segment = self._disk.active
            self._disk.append(header, frame, now_ms)
            if self._disk.active is not segment:
                self._sealed()
        except DiskFull:
            raise
        except OSError as error:
            self._failed = LogError(f"{self.folder}: cannot be written: {error}")
            raise self._failed from error

    def _reserve(self, end_offset: Offset) -> None:
        """Memory logs: have it on disk that offsets below `end_offset` are given out."""
        known = self._manifest.known_end
        if end_offset <= known:
            return
        try:
            self._manifest.known_end = end_offset + RESERVE_OFFSETS
            self.save()
        except BaseException:
            self._manifest.known_end = known
            raise

    def _sealed(self) -> None:
        """A segment was sealed, and so synced: let recovery start from here."""
        self._durable = max(self._durable, self._end)
        self._manifest.known_end = max(self._manifest.known_end, self._end)
        try:
            self._files.replace(
                self.folder / SNAPSHOT, self._producers.snapshot(self._end), sync=False
            )
            self.save()
        except (DiskFull, OSError):
            pass  # recovery reads more frames then; the frames themselves are safe

    def sync(self) -> None:
        """Return when everything appended so far would survive a power cut.

        May run in another thread than `append`. Raises LogError when the disk failed: then the
        log takes nothing more, for what the system kept is no longer known.
        """
        if self._disk is None:
            return
        with self._lock:
            if self._closed:
                return
            fd, end = self._disk.dup(), self._end
        try:
            self._files.sync(fd)
        except OSError as error:
            self._failed = LogError(
                f"{self.folder}: sync failed ({error}): restart the buffer to recover the log"
            )
            raise self._failed from error
        finally:
            os.close(fd)
        with self._lock:
            if end > self._durable:
                self._durable = end
                self.changes += 1

    def save(self) -> None:
        """Write the manifest."""
        self._manifest.start_offset = self._start
        self._manifest.write(self._files, self.folder)

    def set_limits(self, limits: LogLimits) -> None:
        """Go on with other limits; memory never becomes disk or the other way round."""
        self.limits = limits
        self.changes += 1
        if self._disk is not None:
            self._disk.limits = limits

    # ---- retention

    def passed(self, group: str, checkpoint: Offset) -> None:
        """Note that `group` needs nothing below `checkpoint`; registers it the first time."""
        new = group not in self._manifest.groups
        self._manifest.groups[group] = checkpoint
        self.changes += 1
        if new:
            self.save()

    def drop_group(self, group: str) -> None:
        """No longer wait for `group`."""
        if self._manifest.groups.pop(group, None) is not None:
            self.changes += 1
            self.save()

    def all_passed(self) -> Offset | None:
        """The lowest checkpoint of all known groups; None when there is no group."""
        return min(self._manifest.groups.values(), default=None)

    def retain(self, now_ms: int, room_bytes: int = 0) -> int:
        """Drop what retention lets go, to make room for `room_bytes`; answer how many parts."""
        passed = self.all_passed()
        if self._disk is not None:
            self._roll_if_done(passed, room_bytes, now_ms)
        dropped = 0
        while True:
            parts = self._parts()
            count = droppable(parts, self.size_bytes, room_bytes, self.limits, passed, now_ms)
            if count:
                self._drop_below(parts[count - 1].end_offset)
            dropped += count
            if count < len(parts) or not parts:
                return dropped

    def _parts(self) -> list[Part]:
        """The oldest parts that retention may judge: sealed segments, or some frames."""
        if self._disk is None:
            with self._lock:
                return [Part(*part) for part in self._hot.parts(_PARTS_MAX)]
        sealed = self._disk.segments[:-1][:_PARTS_MAX]
        return [Part(s.end_offset, s.size, s.index.timestamp_max_ms) for s in sealed]

    def _roll_if_done(self, passed: Offset | None, room_bytes: int, now_ms: int) -> None:
        """Seal the active segment where only that keeps retention from dropping it."""
        assert self._disk is not None
        active, limits = self._disk.active, self.limits
        if active.empty:
            return
        full = self.size_bytes + room_bytes > limits.passed_bytes_max
        done = passed is not None and active.end_offset <= passed
        aged = (
            limits.retention_ms is not None
            and active.index.timestamp_max_ms < now_ms - limits.retention_ms
        )
        if (done and (full or limits.retention_passed)) or aged:
            self._disk.roll(self._end, now_ms)
            self._sealed()

    def _make_room(self, room_bytes: int, now_ms: int) -> None:
        if self.size_bytes + room_bytes <= self.limits.passed_bytes_max:
            return
        self.retain(now_ms, room_bytes)
        if self.size_bytes + room_bytes > self.limits.bytes_max:
            slowest = min(self.groups.items(), key=lambda item: item[1], default=None)
            waits = "no group reads it"
            if slowest is not None:
                waits = f"group {slowest[0]!r} has passed only {slowest[1]} of {self._end}"
            raise PartitionFull(
                f"partition {self.partition} holds {self.size_bytes} of {self.limits.bytes_max} "
                f"bytes, and {waits}: wait for its readers, or produce less"
            )

    def truncate_before(self, offset: Offset, now_ms: int, *, force: bool = False) -> None:
        """Drop every message below `offset`; disk space is freed in whole segments.

        Raises OffsetOutOfRange behind the end, and RetentionBlocked while a known group has not
        passed it, unless `force`.
        """
        if offset > self._end:
            self._check_range(offset)
        needing = sorted(g for g, at in self._manifest.groups.items() if at < offset)
        if needing and not force:
            raise RetentionBlocked(
                f"partition {self.partition} is still read below {offset} by {', '.join(needing)}"
            )
        if self._disk is not None and offset == self._end and not self._disk.active.empty:
            self._disk.roll(self._end, now_ms)
            self._sealed()
        self._drop_below(offset)

    def _drop_below(self, offset: Offset) -> None:
        with self._lock:
            self._start = max(self._start, offset)
            self._hot.drop_below(offset)
            self.changes += 1
        if self._disk is not None:
            self.save()
            sealed = self._disk.segments[:-1]
            self._disk.drop(sum(1 for s in sealed if s.end_offset <= offset))

    # ---- losses and the end

    def confirm(self, expected_end: Offset, now_ms: int) -> None:
        """Say how far the log is known to have reached; what is missing is recorded as a gap.

        What an INTERVAL log lost of its unsynced tail was never promised, and memory logs
        promise nothing: they go on. Any other loss is for `limits.on_loss` to judge.
        """
        waiting, self._waiting = self._waiting, ""
        if expected_end > self._end or (waiting and waiting != NEW):
            stop = (
                self._disk is not None
                and waiting in ("", NEW)
                and self.limits.on_loss is LossPolicy.STOP
            )
            end = max(expected_end, self._end) + RESERVE_OFFSETS
            reason = waiting or f"a reader was at {expected_end}"
            note_gap(self._manifest, self._end, end, now_ms, reason, stop)
            self._skip_to(end, now_ms)
        self.changes += 1
        self.save()

    def _skip_to(self, offset: Offset, now_ms: int) -> None:
        if self._disk is not None:
            self._disk.roll(offset, now_ms)
        with self._lock:
            self._end = self._durable = self._manifest.known_end = offset

    def accept_loss(self) -> None:
        """Go on above the recorded gap."""
        self._manifest.stopped = ""
        self.changes += 1
        self.save()

    def close(self) -> None:
        """Sync and give back files and lock; calling it again is harmless."""
        if self._closed:
            return
        try:
            if self._failed is None and not self._waiting:
                self.sync()
                self._close_cleanly()
        finally:
            self._release()

    def abandon(self) -> None:
        """Let go of files and lock without a word, as a killed process does."""
        self._release()

    def _release(self) -> None:
        if not self._closed:
            with self._lock:
                self._closed = True
                if self._disk is not None:
                    self._disk.close()
            os.close(self._lock_fd)

    def _close_cleanly(self) -> None:
        self._manifest.clean = True
        self._manifest.known_end = self._end
        if self._disk is not None:
            snapshot = self._producers.snapshot(self._end)
            self._files.replace(self.folder / SNAPSHOT, snapshot, sync=True)
        else:
            self._start = max(self._start, min(self.all_passed() or 0, self._end))
        self.save()
