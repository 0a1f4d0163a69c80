"""`PartitionLog`: the ordered log of one partition. No Ray, no thread, no clock of its own.

Rules of this file. One writer at a time calls `append` and everything else that changes the log;
any thread may read. Files are touched without holding the lock, except for the note of what is
synced. Offsets only rise, across every crash: an offset that was given out is never given to
another message. A loss is a recorded gap. With durability ALWAYS readers see only what is synced,
so that nobody acts on what a power cut undoes; the writer calls `sync` before it acknowledges. What
must be known after a crash is on disk before it is done. A log whose file or sync failed takes
nothing more: it is closed (`abandon`) and opened anew, and `restore` gives it back what memory
still holds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pxrs_ray.data.frame import (
    FrameHeader,
    check_body,
    check_decodes,
    frames_in,
    unpack_header,
    whole_frame,
)
from pxrs_ray.data.log_limits import LogLimits, LossPolicy
from pxrs_ray.data.protocol import Appended, Gap, Heard
from pxrs_ray.errors import (
    MessageTooLarge,
    UsageError,
)
from pxrs_ray.files import Files
from pxrs_ray.log.log_opening import LOSS_MARGIN, NEW, POWER, RESERVE_OFFSETS, note_gap, open_parts
from pxrs_ray.log.retained import RetainedLog
from pxrs_ray.log.segment import Segment
from pxrs_ray.log.synced_mark import write_note
from pxrs_ray.model import Offset, PartitionId


class PartitionLog(RetainedLog):
    """One partition's log. `recovery` says which torn tail was cut when it was opened."""

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
        log_id: str = "",
    ) -> Self:
        """Open, recover or make the log in `folder`.

        A new log is 'waiting', and refuses everything, until `confirm` says how far it should
        reach (0 for a new queue). One without an id takes `log_id` for its own. Raises LogReplaced
        when it has another, LogCorrupted naming file, position and offset, LockHeld when another
        process has the log open, and OSError.
        """
        files = files or Files()
        boot = files.boot_id() if boot is None else boot
        opened = open_parts(
            folder, queue, partition, limits, files, boot, now_ms, lock_wait_ms, log_id
        )
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
        check_decodes(header, body)
        if header.messages == 0:
            raise UsageError("a frame without messages cannot be appended")
        repeat = self._producers.repeat(header)
        if repeat is not None:
            base = repeat.base_offset if repeat.base_offset >= 0 else None
            return Appended(self.partition, base, header.messages, repeated=True)
        self._make_room(header.frame_bytes, now_ms)
        header = header._replace(base_offset=self._end)
        self._take(header, whole_frame(header, body), now_ms)
        return Appended(self.partition, header.base_offset, header.messages)

    def _take(
        self, header: FrameHeader, frame: bytes, now_ms: int, *, is_known: bool = False
    ) -> None:
        """`is_known`: what it tells of its producer is known here already."""
        self._store(header, frame, now_ms)
        try:
            with self._lock:
                self._tail.append(header, frame)
                if self._disk is not None:
                    self._tail.evict(self.limits.tail_bytes_max)
                if not is_known:
                    self._producers.record(header, now_ms)
                self._end = header.end_offset
                self._changed()
        except BaseException as error:  # it is on disk already, and memory does not know it
            self._failed = self._failure("could not be appended to", error)
            self._changed()
            raise

    def expected_sequence(self, packed_header: bytes) -> int:
        """What the log would take next of the producer of this header."""
        header = unpack_header(packed_header)
        return self._producers.expected(header.producer_id, header.producer_epoch)

    def heard(self, packed_header: bytes) -> Heard | None:
        """The position of this header's producer in the log; None when the log does not know it."""
        header = unpack_header(packed_header)
        return self._producers.heard(header.producer_id, header.producer_epoch)

    def _store(self, header: FrameHeader, frame: bytes, now_ms: int) -> None:
        if self._disk is None:
            if header.end_offset > self._manifest.known_end:
                # On disk first: offsets below this are given out.
                self._change(known_end=header.end_offset + RESERVE_OFFSETS)
            return
        segment = self._disk.active
        try:
            self._disk.append(header, frame, now_ms)
        except OSError as error:
            self._fail("cannot be written", error)
        if self._disk.active is not segment:
            self._sealed()

    def sync(self) -> None:
        """Return when everything appended so far would survive a power cut.

        May run in another thread than `append`. Raises LogAway when the disk failed: then the
        log takes nothing more, for what the system kept is no longer known.
        """
        if self._disk is None:
            return
        with self._lock:
            if self._closed:
                return
            # Before the sync: what is appended while it runs may not be on disk when it returns.
            disk, end = self._disk, self._end
            held = disk.hold()
        try:
            disk.sync(held.fd)
        except OSError as error:
            self._fail("sync failed", error)
        finally:
            disk.release(held)
        with self._lock:
            # Another disk: the log was cut meanwhile, perhaps below `end`.
            if end > self._durable and disk is self._disk and not self._closed:
                self._durable = end
                self._changed()
                write_note(self._files, self._lock_fd, end)

    def set_limits(self, limits: LogLimits) -> None:
        """Go on with other limits; memory never becomes disk or the other way round."""
        self.limits = limits
        self._changed()
        if self._disk is not None:
            self._disk.limits = limits

    # ---- losses and the end

    def confirm(self, expected_end: Offset, now_ms: int, *, make: bool = True) -> None:
        """Say how far the log is known to have reached; what is missing is recorded as a gap.

        A log that is not here is lost, unless it is to be made now and was never anywhere. What an
        INTERVAL log lost of its unsynced tail was never promised, and memory logs promise nothing:
        they go on. What follows any other loss says `limits.lost_log_policy`. Raises DiskFull and
        LogAway: then the log waits as before, and it can be called again.
        """
        absent = self._waiting == NEW and not make
        if absent or expected_end > self._end or self._waiting == POWER:
            # Until the gap is written down nothing is taken: its offsets would be given out twice.
            self._waiting = self._waiting or f"it had come to {expected_end}"
            self._lose_to(expected_end, now_ms)
        else:
            self._change()
        self._waiting = ""
        self._changed()

    def adopt(self, log_id: str) -> None:
        """Have an id from now on, where it had none. Raises DiskFull, LogAway."""
        if not self._manifest.log_id:
            self._change(log_id=log_id)

    def _lose_to(self, expected_end: Offset, now_ms: int) -> None:
        """Write down the gap from the end of the log on, then go on above it."""
        end = self._written_down(expected_end)
        if end is None:
            tail = self._waiting == POWER
            halts = self.limits.lost_log_policy is LossPolicy.STOP
            stop = self._disk is not None and not tail and halts
            end = max(expected_end, self._end) + (RESERVE_OFFSETS if tail else LOSS_MARGIN)
            reason = self._waiting
            told = replace(self._manifest, gaps=list(self._manifest.gaps))
            note_gap(told, self._end, end, now_ms, reason, stop)
            self._change(gaps=told.gaps, stopped=told.stopped, known_end=end)
        if self._disk is not None:
            self._roll(end, now_ms)
        with self._lock:
            self._end = self._durable = end
            if self._disk is not None:
                write_note(self._files, self._lock_fd, end)

    def _written_down(self, expected_end: Offset) -> Offset | None:
        """The end of the gap that an earlier try wrote down, if it reaches far enough."""
        known: list[Gap] = [gap for gap in self._manifest.gaps if gap.first == self._end]
        return known[-1].end if known and known[-1].end > expected_end else None

    def sealed(self) -> list[Segment]:
        """The segments that change no more, but may go: the oldest first."""
        return self._disk.segments[:-1] if self._disk is not None and not self._closed else []

    def unsynced(self) -> list[Any]:
        """Runs of frames that are in memory and may not be on disk: see `restore`."""
        with self._lock:
            return self._tail.read(self._durable, self._end, 1 << 62, 1 << 62)[0]

    def restore(self, runs: list[Any], now_ms: int) -> None:
        """Append what of these frames is missing, at the offsets that they have already."""
        for run in runs:
            for header, body in frames_in(run):
                if header.end_offset <= self._end:
                    continue
                if header.base_offset != self._end:
                    return
                self._take(header, whole_frame(header, body), now_ms)

    def accept_loss(self) -> None:
        """Go on above the recorded gap."""
        self._change(stopped="")
        self._changed()

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
            self._files.close(self._lock_fd)

    def _close_cleanly(self) -> None:
        if self._disk is not None:
            self._cover()
        else:
            self._start = max(self._start, min(self.all_passed() or 0, self._end))
        self._change(clean=True, known_end=self._end)
