"""Opens a partition log: brings its folder and its manifest into agreement.

Rules of this file. What is missing becomes a recorded gap, and the offsets go on above it, by a
margin: readers may have been further than any file says. A log of another id is not touched. A log
whose folder says too little (no manifest; or an unclean end with unsynced messages, and another
start of the machine since) waits until `PartitionLog.confirm` says how far it should reach. A cut,
or a new beginning, that was noted is finished first.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from pxrs_ray.data.log_limits import Durability, LogLimits, LossPolicy
from pxrs_ray.data.protocol import Gap
from pxrs_ray.errors import LogCorrupted, LogReplaced, UsageError
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.disk_reserve import Reserve
from pxrs_ray.log.log_begin import BEGUN, finish_beginning
from pxrs_ray.log.log_cut import FLOOR, SNAPSHOT, finish_cut, snapshot_end
from pxrs_ray.log.manifest import Manifest
from pxrs_ray.log.producer_state import ProducerStates
from pxrs_ray.log.segmented_log import DiskLog
from pxrs_ray.log.synced_mark import Synced, read_note, write_note
from pxrs_ray.model import Offset, PartitionId

LOCK = "lock"
RESERVE_OFFSETS = 1_000_000
# How much further a log may have come than anybody else had noted of it, at most: a day of fifty
# thousand messages a second while the registry is away.
LOSS_MARGIN = 1 << 32

NEW = "no manifest is here: how far should the log reach?"
POWER = "the machine restarted without closing the log: how far were its readers?"


@dataclass(slots=True)
class Opened:
    """The parts of a log, in agreement with one another. `waiting` is '', NEW or POWER.

    Below `covered` the producers' snapshot on disk knows what the frames know.
    """

    manifest: Manifest
    disk: DiskLog | None
    producers: ProducerStates
    end_offset: Offset
    waiting: str
    lock_fd: int
    covered: Offset


def log_folder(data_folder: Path, queue: str, partition: PartitionId) -> Path:
    """Where the log of one partition of a queue is. Raises UsageError for a name with a path."""
    if "/" in queue or queue.startswith("."):
        raise UsageError(
            f"{queue!r} cannot be the name of a queue: it is the name of a folder of ours"
        )
    return data_folder / queue / f"p{partition:05d}"


def note_gap(
    manifest: Manifest, first: Offset, end: Offset, now_ms: int, reason: str, stop: bool
) -> None:
    """Record that offsets are lost, unless that is known; `stop` halts the log."""
    if any(gap.first <= first and end <= gap.end for gap in manifest.gaps):
        return
    manifest.gaps.append(Gap(first, end, now_ms, reason))
    if stop:
        manifest.stopped = f"offsets {first} to {end - 1} are lost ({reason})"


def open_parts(
    folder: Path,
    queue: str,
    partition: PartitionId,
    limits: LogLimits,
    files: Files,
    boot: str,
    now_ms: int,
    lock_wait_ms: int,
    log_id: str,
) -> Opened:
    """Lock the folder, and recover what it holds.

    Raises LogReplaced, and has changed nothing, when another log than `log_id` is there;
    LogCorrupted, LockHeld, OSError.
    """
    files.make_folder(folder)
    lock_fd = files.lock(folder / LOCK, lock_wait_ms)
    disk: DiskLog | None = None
    # On a disk that is full a log must be open before retention can make room.
    reserve = Reserve(files, folder)
    try:
        found = _found(files, folder, log_id)
        begun = reserve.with_room(lambda: finish_beginning(files, folder, lock_fd))
        if begun or reserve.with_room(lambda: finish_cut(files, folder, lock_fd)) is not None:
            found = Manifest.read(files, folder)
        manifest = found or Manifest(queue, partition)
        manifest.log_id = log_id or manifest.log_id
        producers = ProducerStates(limits.producers_max, limits.producer_idle_ms)
        waiting, covered = "" if found is not None else NEW, 0
        if limits.durability is Durability.MEMORY:
            end = manifest.known_end
            if manifest.start_offset < end:
                reason = "the memory of the buffer is gone"
                note_gap(manifest, manifest.start_offset, end, now_ms, reason, stop=False)
        else:
            restarted = found is not None and manifest.boot_id != boot and not manifest.clean
            if restarted and limits.durability is Durability.INTERVAL:
                waiting = POWER
            noted = max(manifest.known_end, read_note(files, lock_fd))
            disk = DiskLog(folder, limits, files, Synced(noted, restarted))
            end = _agree(disk, manifest, noted, limits, now_ms)
            covered = restore_producers(disk, producers, files, folder, end, now_ms)
            # After a power cut the system's memory is new: what is read is on disk.
            sure = restarted or (found is not None and manifest.clean)
            _begin(disk, reserve, end, None if sure else noted, now_ms)
            write_note(files, lock_fd, end)
            _drop_again(disk, manifest.start_offset, files, folder)
        manifest.known_end = end
        manifest.durability, manifest.boot_id, manifest.clean = limits.durability, boot, False
        if not waiting:
            reserve.with_room(lambda: manifest.write(files, folder))
        return Opened(manifest, disk, producers, end, waiting, lock_fd, covered)
    except BaseException:
        if disk is not None:
            disk.close()
        files.close(lock_fd)
        raise


def _found(files: Files, folder: Path, log_id: str) -> Manifest | None:
    """The manifest that is here. Raises LogReplaced when it is of another log than `log_id`."""
    found = Manifest.read(files, folder)
    if found is None:  # its folders may be as new, and names are not synced with files
        files.sync_folder(folder.parent)
        files.sync_folder(folder.parent.parent)
    elif log_id and found.log_id not in ("", log_id):
        raise LogReplaced(f"{folder}: another log is here (its id is {found.log_id}, not {log_id})")
    return found


def _begin(
    disk: DiskLog, reserve: Reserve, end: Offset, synced: Offset | None, now_ms: int
) -> None:
    def begin() -> None:
        disk.close()  # what a first try has open
        disk.begin(end, synced, now_ms)

    reserve.with_room(begin)


def _agree(
    disk: DiskLog, manifest: Manifest, synced: Offset, limits: LogLimits, now_ms: int
) -> Offset:
    """Compare segments with the manifest, record what is missing, answer where to go on."""
    stop = limits.lost_log_policy is LossPolicy.STOP
    reached = manifest.start_offset
    for segment in disk.segments:
        if segment.base_offset > reached:
            reason = f"no segment holds them before {segment.path.name}"
            note_gap(manifest, reached, segment.base_offset, now_ms, reason, stop)
        reached = max(reached, segment.end_offset)
    if reached >= synced:
        return reached
    for gap in manifest.gaps:
        # It was judged and written down before; only the step above it was not made any more.
        if gap.first <= reached < gap.end and synced <= gap.end:
            return gap.end
    end = synced + RESERVE_OFFSETS
    note_gap(manifest, reached, end, now_ms, "the segments end too early", stop)
    return end


def _drop_again(disk: DiskLog, start: Offset, files: Files, folder: Path) -> None:
    """Delete what was dropped before the crash, after the manifest had been told.

    Where the log may still be cut, what is known of producers at its floor needs frames above that,
    and one segment tells of which leader epoch the last is that cannot be cut. A power cut may have
    undone some of these deletions: what lies before a hole that they left is of no use to anybody.
    """
    pairs = zip(disk.segments, disk.segments[1:], strict=False)
    holes = [at for at, (s, n) in enumerate(pairs, 1) if s.end_offset < n.base_offset <= start]
    with contextlib.suppress(OSError):
        disk.drop(holes[-1] if holes else 0)
    if disk.segments and disk.segments[0].end_offset <= start:
        floor = snapshot_end(files, folder / FLOOR, start)
        start = start if floor is None else floor
    dropped = sum(1 for s in disk.segments[:-1] if s.end_offset <= start)
    dropped -= 1 if dropped and disk.epoch else 0
    with contextlib.suppress(OSError):
        disk.drop(dropped)


def restore_producers(
    disk: DiskLog,
    producers: ProducerStates,
    files: Files,
    folder: Path,
    end: Offset,
    now_ms: int,
) -> Offset:
    """Rebuild what is known of producers: the snapshot, and every frame after it.

    Answers up to where the snapshot holds what dropped frames knew; that may be more than is here,
    where the log began anew with it.
    """
    since = 0
    for name, most in ((SNAPSHOT, end), (FLOOR, end), (BEGUN, sys.maxsize)):
        try:
            since = producers.restore(files.read_file(folder / name), most)
            break
        except (FileNotFoundError, LogCorrupted):
            pass  # the frames tell it all
    for header in disk.frames_from(since):
        producers.record(header, now_ms)
    return since
