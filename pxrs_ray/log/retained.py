"""`RetainedLog`: the retention half of a partition log: its manifest, its segments' ends, and what
may be dropped.

Rules of this file. What frees space comes before what takes some. What must outlive the dropped
frames (where the log begins now, what producers had sent) is on disk, synced, before they go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from pxrs_ray.errors import LogAway, LogError, PartitionFull, RetentionBlocked
from pxrs_ray.log.log_cut import SNAPSHOT
from pxrs_ray.log.log_view import LogView
from pxrs_ray.log.producer_state import STEP_MS_MAX
from pxrs_ray.log.retention import Part, droppable
from pxrs_ray.log.synced_mark import write_note
from pxrs_ray.model import Offset

_PARTS_MAX = 256
# What is known of producers ages by steps of an hour at most: see `ProducerStates.tick`.
TICK_MS = STEP_MS_MAX // 2


class RetainedLog(LogView):
    """A log that can be shortened; for one writer, as `PartitionLog`.

    `retentions` counts how often `retain` came to its end.
    """

    retentions = 0

    def _fail(self, what: str, error: BaseException) -> NoReturn:
        """Take nothing more: what the files hold is no longer known. Raises LogAway."""
        self._failed = self._failure(what, error)
        self._changed()
        raise self._failed from error

    def _failure(self, what: str, error: BaseException) -> LogAway:
        return LogAway(f"{self.folder}: {what} ({error}); the log is opened anew")

    def _roll(self, base_offset: Offset, now_ms: int, epoch: int | None = None) -> None:
        """Go on in a new segment, if need be in the place of the reserve. Raises DiskFull."""
        assert self._disk is not None
        disk = self._disk
        try:
            self._reserve.with_room(lambda: disk.roll(base_offset, now_ms, epoch))
        except OSError as error:
            self._fail("cannot be written", error)

    def _sealed(self) -> None:
        """A segment was sealed, and so synced: let recovery start from here."""
        with self._lock:
            self._durable = max(self._durable, self._end)
            write_note(self._files, self._lock_fd, self._durable)
        try:
            self._cover()
            self._change(known_end=max(self._manifest.known_end, self._end))
        except (LogError, OSError):
            pass  # recovery reads more frames then; the frames themselves are safe

    def _cover(self) -> None:
        """Have on disk what the frames so far tell of producers, for when they are dropped."""
        end = self._end
        data = self._producers.snapshot(end)
        self._files.replace(self.folder / SNAPSHOT, data, sync=True)
        self._covered = end

    def _change(self, **fields: Any) -> None:
        """Have a changed manifest on disk; when that fails, nothing has changed.

        Raises DiskFull, LogAway.
        """
        changed = replace(self._manifest, start_offset=self._start, **fields)
        try:
            changed.write(self._files, self.folder)
        except OSError as error:
            raise LogAway(f"{self.folder}: the manifest cannot be written ({error})") from error
        self._manifest = changed

    def passed(self, group: str, checkpoint: Offset) -> None:
        """Note that `group` needs nothing below `checkpoint`; registers it the first time."""
        if group in self._manifest.groups:
            self._manifest.groups[group] = checkpoint
        else:
            self._change(groups={**self._manifest.groups, group: checkpoint})
        self._changed()

    def drop_group(self, group: str) -> None:
        """No longer wait for `group`."""
        if group in self._manifest.groups:
            self._change(groups={g: o for g, o in self._manifest.groups.items() if g != group})
            self._changed()

    def all_passed(self) -> Offset | None:
        """The lowest checkpoint of all known groups; None when there is no group."""
        return min(self._manifest.groups.values(), default=None)

    def retain(self, now_ms: int, room_bytes: int = 0) -> int:
        """Drop what retention lets go, to make room for `room_bytes`; answer how many parts.

        What may be dropped as it is goes first: only then is there room to write, for sure.
        """
        self._producers.tick(now_ms)
        dropped = self._drop_what_may_go(room_bytes, now_ms)
        if self._disk is not None:
            self._roll_if_done(self.all_passed(), room_bytes, now_ms)
            dropped += self._drop_what_may_go(room_bytes, now_ms)
            self._reserve.keep()
        self.retentions += 1
        return dropped

    def retain_at_ms(self, now_ms: int) -> int | None:
        """When `retain` has something to do again though nothing changes before; None: never.

        Whatever was of age before now was judged: what holds it back can only change.
        """
        if self._disk is not None and not self._reserve.is_there:
            return now_ms
        due_ms = [now_ms + TICK_MS] if len(self._producers) else []
        keep_ms = self.limits.retention_ms
        if keep_ms is not None:
            due_ms += [at + keep_ms + 1 for at in self._oldest_ms() if at + keep_ms >= now_ms]
        return min(due_ms, default=None)

    def _oldest_ms(self) -> list[int]:
        """The times of what comes of age next: the oldest part, and what is written now."""
        if self._disk is None:
            return [part.timestamp_max_ms for part in self._parts()[:1]]
        segments = self._disk.segments
        ends = (segments[0], segments[-1])
        return [segment.index.timestamp_max_ms for segment in ends if not segment.empty]

    def _drop_what_may_go(self, room_bytes: int, now_ms: int) -> int:
        passed, dropped = self.all_passed(), 0
        while True:
            parts = self._parts()
            count = droppable(parts, self.size_bytes, room_bytes, self.limits, passed, now_ms)
            if count:
                self._drop_below(parts[count - 1].end_offset)
            dropped += count
            if count < len(parts) or not parts:
                return dropped

    def _may_go_to(self) -> Offset:
        """Up to where frames are not needed any more to know what a cut would roll back."""
        return self._end

    def _parts(self) -> list[Part]:
        """The oldest parts that retention may judge: sealed segments, or some frames."""
        if self._disk is None:
            with self._lock:
                return [Part(*part) for part in self._tail.parts(_PARTS_MAX)]
        sealed, end = self._disk.segments[:-1][:_PARTS_MAX], self._may_go_to()
        return [
            Part(s.end_offset, s.size, s.index.timestamp_max_ms)
            for s in sealed
            if s.end_offset <= end
        ]

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
            self._roll(self._end, now_ms)
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
            self._roll(self._end, now_ms)
            self._sealed()
        self._drop_below(offset)

    def _drop_below(self, offset: Offset) -> None:
        with self._lock:
            self._start = max(self._start, offset)
            self._tail.drop_below(offset)
            self._changed()
        if self._disk is None:
            return
        sealed = self._disk.segments[:-1]
        count = sum(1 for segment in sealed if segment.end_offset <= min(offset, self._may_go_to()))
        try:
            if count and sealed[count - 1].end_offset > self._covered:
                self._reserve.with_room(self._cover)
            self._reserve.with_room(self._change)
            self._disk.drop(count)
        except OSError as error:
            raise LogAway(f"{self.folder}: nothing can be dropped ({error})") from error
