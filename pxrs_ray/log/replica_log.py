"""`ReplicaLog`: one replica of a partition's log: it can follow another one, and be cut back to it.

Rules of this file. Frames are written under leader epochs, which only rise; each begins a segment,
so that the segments tell which frames are of which epoch. Readers see what is below the high
watermark, which is what every replica in sync has; nothing below it is ever cut, and it is not
known after a start until somebody tells it. What was above it may be cut, and its offsets given to
other messages: nobody was told of them. A cut rolls back what is known of producers, exactly: so a
snapshot of them from where nothing is cut any more is kept, and the frames from there on. Nothing
is dropped above the high watermark. A replica that lacks what others have dropped begins anew, with
their snapshot: its frames tell nothing new of producers until the log is as long as that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pxrs_ray.data.frame import HEADER_BYTES, FrameHeader, check_body, unpack_header
from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.errors import LogAway, LogCorrupted, LogError, OffsetOutOfRange, UsageError
from pxrs_ray.files import Files
from pxrs_ray.log.log_begin import BEGUN, Beginning, anew, finish_beginning, note_beginning
from pxrs_ray.log.log_cut import FLOOR, SNAPSHOT, below, finish_cut, note_cut, snapshot_end
from pxrs_ray.log.log_opening import NEW, POWER, Opened, note_gap, restore_producers
from pxrs_ray.log.log_view import ALL_RECORDS, FrameRun
from pxrs_ray.log.manifest import Manifest
from pxrs_ray.log.memory_tail import MemoryTail
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_state import ProducerStates
from pxrs_ray.log.segmented_log import DiskLog
from pxrs_ray.log.synced_mark import Synced
from pxrs_ray.model import Offset

Epochs = Iterable[tuple[int, Offset]]
ANY_END: Offset = 1 << 62


class ReplicaLog(PartitionLog):
    """See the rules at the head of this file. A memory log is none: its epochs are not kept."""

    def __init__(self, folder: Path, limits: LogLimits, files: Files, opened: Opened) -> None:
        if opened.disk is None:
            files.close(opened.lock_fd)
            raise UsageError(f"{folder}: a log in memory has no replicas")
        super().__init__(folder, limits, files, opened)
        self._high_watermark: Offset = 0
        self._floor = self._kept_floor()
        # Nothing before it is ever cut. What has no floor beside it needed none.
        self._settled = opened.covered if self._floor is None else self._floor
        self._begun = snapshot_end(files, folder / BEGUN, ANY_END) is not None
        # Odd while a cut is made.
        self._cuts = 0

    @property
    def _on_disk(self) -> DiskLog:
        assert self._disk is not None
        return self._disk

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of what would be appended now."""
        return self._on_disk.epoch

    def epochs(self) -> list[tuple[int, Offset]]:
        """The leader epochs of what is here, each with the offset from which on it holds."""
        return self._on_disk.epochs()

    @property
    def is_absent(self) -> bool:
        """Whether nothing of it was found here: it is to be made, or it is lost."""
        return self._waiting == NEW

    # ---- up to where it may be read

    @property
    def visible_end(self) -> Offset:
        """Where readers must stop: at the high watermark, and as in any log."""
        end = self._durable if self.limits.durability is Durability.ALWAYS else self._end
        return min(self._high_watermark, end)

    @property
    def copied_end(self) -> Offset:
        """On every replica in sync."""
        return self._high_watermark

    @property
    def high_watermark(self) -> Offset:
        """What is before it is on every replica in sync, for all that is known here."""
        return self._high_watermark

    def advance(self, high_watermark: Offset) -> None:
        """Let readers see what is before `high_watermark`; it never goes back."""
        if high_watermark > self._high_watermark:
            self._high_watermark = high_watermark
            self._settled = max(self._settled, high_watermark)
            self._changed()

    def read(
        self, offset: Offset, records_max: int = ALL_RECORDS, bytes_max: int = 1 << 20
    ) -> FrameRun:
        """As any log; raises LogAway where a cut was made meanwhile."""
        cuts = self._cuts
        try:
            return super().read(offset, records_max, bytes_max)
        except LogCorrupted as error:
            if cuts % 2 or cuts != self._cuts:
                raise LogAway(f"{self.folder}: it was being cut, read again") from error
            raise

    def read_unsettled(self, offset: Offset, bytes_max: int) -> FrameRun:
        """As `read`, up to the end: for those who follow this log. May read files."""
        self._check_usable()
        if not self.first_offset <= offset <= self._end:
            self._check_range(offset)
        with self._lock:
            base = self._tail.base_offset
            if base is not None and offset >= base:
                return FrameRun(*self._tail.read(offset, self._end, ALL_RECORDS, bytes_max))
        try:
            found = self._on_disk.read(offset, ALL_RECORDS, bytes_max)
        except OSError as error:
            raise LogAway(f"{self.folder}: cannot be read at {offset} ({error})") from error
        return FrameRun([], offset) if found is None else FrameRun([found[0]], found[1])

    # ---- what is written

    def confirm(self, expected_end: Offset, now_ms: int, *, make: bool = True) -> None:
        """As any log; but what a power cut took of it, others have: it goes on at its end."""
        if self._waiting == POWER and expected_end <= self._end:
            self._change()
            self._waiting = ""
            self._changed()
        else:
            super().confirm(expected_end, now_ms, make=make)

    def begin_epoch(self, epoch: int, now_ms: int) -> None:
        """From the end on, frames are of this leader epoch. Raises UsageError for an older one
        than there is, DiskFull, LogAway.
        """
        self._check_usable()
        if epoch < self.leader_epoch:
            raise UsageError(f"leader epoch {epoch} is older than {self.leader_epoch}, of the log")
        if epoch > self.leader_epoch:
            self._roll(self._end, now_ms, epoch)
            self._sealed()

    def append_replicated(self, first: Offset, run: bytes, epochs: Epochs, now_ms: int) -> None:
        """Append frames as they lie in the leader's log from `first` on, which is the end of this
        one; `epochs` says under which leader epochs they were written, from which offset on each.

        Where the leader's log has a gap, so has this one. When it raises, what is before the end
        was kept: LogCorrupted, OffsetOutOfRange, UsageError (an older epoch), DiskFull, LogAway.
        """
        self._check_usable()
        if first != self._end:
            raise OffsetOutOfRange(f"the log ends at {self._end}: nothing of {first} can follow")
        begins = sorted(epochs, key=lambda begun: begun[1])
        while len(begins) > 1 and begins[1][1] <= first:
            del begins[0]  # it held until here
        known_to = self._covered
        for header, frame in list(_whole_frames(run, first)):
            while begins and begins[0][1] <= header.base_offset:
                epoch, offset = begins.pop(0)
                self._skip_to(max(offset, self._end), now_ms)
                self.begin_epoch(epoch, now_ms)
            self._skip_to(header.base_offset, now_ms)
            self._take(header, frame, now_ms, is_known=header.end_offset <= known_to)

    def _skip_to(self, offset: Offset, now_ms: int) -> None:
        """Go on at `offset`, with what is missing before it written down."""
        if offset == self._end:
            return
        self.sync()
        told = replace(self._manifest, gaps=list(self._manifest.gaps))
        note_gap(told, self._end, offset, now_ms, "the leader's log lacks them as well", False)
        self._change(gaps=told.gaps, known_end=offset)
        self._roll(offset, now_ms)
        self._sealed()
        with self._lock:
            self._end = self._durable = offset

    # ---- what is taken back

    def cut(self, offset: Offset, now_ms: int) -> None:
        """Drop what is from `offset` on, durably, and the leader epoch that was to begin there;
        nothing, where the log ends before it.

        Raises UsageError below the high watermark and inside a frame, and LogAway when it cannot be
        done now: then it is done when the log is opened the next time.
        """
        self._check_usable()
        begun = self._on_disk.active.empty and self._on_disk.active.base_offset == self._end
        if offset >= self._end and not (begun and offset == self._end):
            return
        if offset < self._high_watermark:
            raise UsageError(f"{offset} is below the high watermark, {self._high_watermark}")
        if offset > self._start and self._first_at(offset) < offset:
            raise UsageError(f"no message that was appended together with others ends at {offset}")
        self.sync()
        self._change_whole(f"could not be cut at {offset}", lambda: self._cut(offset, now_ms))

    def _change_whole(self, failed: str, change: Callable[[], None]) -> None:
        self._cuts += 1
        try:
            change()
        except (LogError, OSError) as error:
            self._fail(failed, error)
        finally:
            self._cuts += 1
        self._changed()

    def _cut(self, offset: Offset, now_ms: int) -> None:
        files, folder = self._files, self.folder
        if self._begun and offset < min(self._end, self._covered):
            # Only a loss that was accepted takes what others once had dropped.
            files.unlink(folder / BEGUN)
            self._begun = False
        self._reserve.with_room(lambda: note_cut(files, folder, offset))
        self._reserve.with_room(lambda: finish_cut(files, folder, self._lock_fd))
        self._go_on_at(offset, below(self._manifest, offset), min(self._start, offset), now_ms)

    def _go_on_at(self, end: Offset, manifest: Manifest, start: Offset, now_ms: int) -> None:
        """Take up what the folder holds now."""
        files, folder = self._files, self.folder
        disk = DiskLog(folder, self.limits, files, Synced(end))
        producers = ProducerStates(self.limits.producers_max, self.limits.producer_idle_ms)
        covered = restore_producers(disk, producers, files, folder, end, now_ms)
        self._reserve.with_room(lambda: disk.begin(end, None, now_ms))
        before = self._on_disk
        with self._lock:
            self._disk, self._producers, self._manifest = disk, producers, manifest
            self._tail.cut(end)
            self._start, self._end, self._durable = start, end, end
        self._covered, self._floor = covered, self._kept_floor()
        before.close()

    # ---- a replica that lacks what the others have dropped

    @property
    def first_offset(self) -> Offset:
        """From where on this log can be followed: what was dropped may still be here."""
        return min(self._start, self._on_disk.segments[0].base_offset)

    def beginning(self) -> tuple[Offset, bytes]:
        """Where a replica begins that lacks what was dropped here, and the snapshot of what is
        known of producers there, or further on, where nothing is cut any more. May read files.
        """
        try:
            return self.first_offset, self._known_below_cuts()
        except OSError as error:
            raise LogAway(f"{self.folder}: cannot be read ({error})") from error

    def _known_below_cuts(self) -> bytes:
        if self._covered > self._settled and self._floor:
            return self._files.read_file(self.folder / FLOOR)
        if self._covered > self._settled or not self._covered:
            nobody = ProducerStates(self.limits.producers_max, self.limits.producer_idle_ms)
            return nobody.snapshot(0)
        return self._files.read_file(self.folder / (BEGUN if self._begun else SNAPSHOT))

    def begin_at(self, offset: Offset, producers: bytes, now_ms: int) -> None:
        """Drop all that is here and begin at `offset`, durably and in one step; `producers` is what
        `beginning` told. Raises LogCorrupted where that is no snapshot, and LogAway when it cannot
        be done now: then it is done when the log is opened the next time, or never was begun.
        """
        self._check_usable()
        beginning = Beginning(offset, producers)
        self._change_whole(
            f"could not begin anew at {offset}", lambda: self._begin_at(beginning, now_ms)
        )

    def _begin_at(self, beginning: Beginning, now_ms: int) -> None:
        files, folder, at = self._files, self.folder, beginning.at
        self._reserve.with_room(lambda: note_beginning(files, folder, beginning))
        self._reserve.with_room(lambda: finish_beginning(files, folder, self._lock_fd))
        with self._lock:
            self._tail = MemoryTail()
            self._high_watermark = min(self._high_watermark, at)
        self._go_on_at(at, anew(self._manifest, at), at, now_ms)
        self._begun = True
        self._settled = max(self._settled, self._covered)

    # ---- retention

    def truncate_before(self, offset: Offset, now_ms: int, *, force: bool = False) -> None:
        """As any log; raises OffsetOutOfRange above the high watermark as well."""
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"{offset} is above the high watermark, {self._high_watermark}: not every replica "
                "has what is before it"
            )
        super().truncate_before(offset, now_ms, force=force)

    def follow_start(self, start: Offset, now_ms: int) -> bool:
        """Drop what the leader has dropped, as far as it is safe here; whether that was any."""
        start = min(start, self._high_watermark, self._end)
        if start <= self._start:
            return False
        self.truncate_before(start, now_ms, force=True)
        return True

    def _first_at(self, offset: Offset) -> Offset:
        """Where the first frame begins that reaches above `offset`."""
        chunks = self.read_unsettled(offset, 1).chunks
        return unpack_header(chunks[0]).base_offset if chunks else self._end

    # ---- what is kept for that

    def _kept_floor(self) -> Offset | None:
        return snapshot_end(self._files, self.folder / FLOOR, self._end)

    def _may_go_to(self) -> Offset:
        """A segment stays that has something no cut takes: it tells of which epoch that is."""
        of = (s for s in reversed(self._on_disk.segments) if s.base_offset < self._settled)
        stays = next((segment.base_offset for segment in of if not segment.empty), 0)
        known = self._covered if self._covered <= self._settled else self._floor or 0
        return min(stays, self._end if self._end <= self._settled else known)

    def _cover(self) -> None:
        """As any log; what was known where nothing is cut any more stays on disk beside it."""
        if self._end < self._covered:
            return  # it began with what is known of more than it has
        if self._durable < self._end:
            self.sync()  # a snapshot of more than a power cut leaves would not be believed
        if self._begun:
            known = self._files.read_file(self.folder / BEGUN)
            self._files.replace(self.folder / SNAPSHOT, known, sync=True)
            self._files.unlink(self.folder / BEGUN)
            self._begun = False
        if self._end > self._settled:
            self._keep_floor()
        super()._cover()
        self._raise_floor()

    def _raise_floor(self) -> None:
        """Nothing is cut below the snapshot itself any more: that is the floor from now on."""
        if self._floor is not None and self._covered <= self._settled:
            self._files.unlink(self.folder / FLOOR)
            self._floor = None

    def _drop_below(self, offset: Offset) -> None:
        if offset > self._durable:
            self.sync()  # what it tells of producers must outlive it
        # Before the manifest is synced, and frames go that a lower floor would need.
        try:
            self._raise_floor()
        except OSError as error:
            raise LogAway(f"{self.folder}: nothing can be dropped ({error})") from error
        super()._drop_below(offset)

    def _keep_floor(self) -> None:
        was = self._covered
        if was == self._floor or was > self._settled:
            return
        if was == 0:
            nobody = ProducerStates(self.limits.producers_max, self.limits.producer_idle_ms)
            known = nobody.snapshot(0)
        else:
            known = self._files.read_file(self.folder / SNAPSHOT)
        # Written once more: of a file that is renamed a power cut may leave neither name.
        self._files.replace(self.folder / FLOOR, known, sync=True)
        self._floor = was


def _whole_frames(run: bytes, first: Offset) -> Iterator[tuple[FrameHeader, bytes]]:
    """The frames of a run, each checked, with its bytes. Raises LogCorrupted."""
    data, at = memoryview(run), 0
    while at < len(data):
        header = unpack_header(data, at)
        frame = data[at : at + header.frame_bytes]
        check_body(header, frame[HEADER_BYTES:])
        if header.base_offset < first:
            raise LogCorrupted(f"a frame of {header.base_offset} came, and {first} should")
        yield header, bytes(frame)
        at, first = at + header.frame_bytes, header.end_offset
