"""Reads logs from outside: no Ray, no lock, and nothing is changed.

`read_log` is the documented entry for other tools to read a log's folder, of a running topology or
of one that is gone: it yields batches, and `Batch.to_arrow` makes record batches of one schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pxrs_ray.data.batch import ARROW_SCHEMA, Batch
from pxrs_ray.errors import LogCorrupted, NotFound
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.index import NO_TIMESTAMP
from pxrs_ray.log.manifest import NAME, Manifest
from pxrs_ray.log.recovery import RecoveredSegments, recover
from pxrs_ray.log.scan import Damage, scan
from pxrs_ray.log.segment import FILE_HEADER_BYTES, check_file_header, segment_paths
from pxrs_ray.model import Offset

_INTERVAL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LogSummary:
    """One log as its folder shows it. `problem` is '' when nothing is wrong."""

    folder: str
    queue: str
    partition: int
    start_offset: Offset
    end_offset: Offset
    segments: int
    bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    durability: str
    clean: bool
    groups: dict[str, Offset]
    gaps: list[tuple[Offset, Offset, str]]
    problem: str


@dataclass(frozen=True, slots=True)
class FrameSummary:
    """One frame as it is on disk."""

    file: str
    position: int
    base_offset: Offset
    messages: int
    bytes: int
    producer_id: str
    producer_epoch: int
    sequence: int
    timestamp_min_ms: int
    timestamp_max_ms: int


def find_logs(folder: Path) -> list[Path]:
    """Every log folder at or below `folder`, sorted. Raises NotFound when there is none."""
    found = {path.parent for path in folder.rglob(NAME)}
    found |= {path.parent for path in folder.rglob("*.seg")}
    if not found:
        raise NotFound(f"no log in {folder}: name a data folder, a queue's or a partition's")
    return sorted(found)


def summarise(folder: Path) -> LogSummary:
    """What a log's folder shows, damaged or not."""
    manifest, recovered, problem = Manifest("", -1), RecoveredSegments([], None), ""
    try:
        manifest = Manifest.read(Files(), folder) or manifest
        recovered = recover(Files(), folder, _INTERVAL_BYTES, repair=False)
    except LogCorrupted as error:
        problem = str(error)
    if manifest.stopped and not problem:
        problem = manifest.stopped
    if recovered.cut is not None and manifest.clean:
        problem = f"a torn tail of {recovered.cut.bytes} bytes in {recovered.cut.path.name}"
    full = [segment for segment in recovered.segments if not segment.empty]
    last = max((segment.index.timestamp_max_ms for segment in full), default=NO_TIMESTAMP)
    start = manifest.start_offset
    end = recovered.segments[-1].end_offset if recovered.segments else manifest.known_end
    return LogSummary(
        str(folder),
        manifest.queue,
        manifest.partition,
        start,
        end,
        len(recovered.segments),
        sum(path.stat().st_size for path in segment_paths(folder)),
        full[0].index.timestamp_first_ms if full else None,
        last if last != NO_TIMESTAMP else None,
        str(manifest.durability or ""),
        manifest.clean,
        manifest.groups,
        [(gap.first, gap.end, gap.reason) for gap in manifest.gaps],
        problem,
    )


def frames(folder: Path) -> Iterator[tuple[FrameSummary, Batch] | Damage]:
    """Every frame of a log, checksums verified; Damage where a file goes on with something else."""
    files = Files()
    offset = 0
    for path in segment_paths(folder):
        fd = files.open_to_read(path)
        try:
            size = files.length(fd)
            head = check_file_header(files.read(fd, FILE_HEADER_BYTES, 0), path)
            offset = max(offset, head.base_offset)
            for found in scan(files, fd, path, FILE_HEADER_BYTES, size, offset):
                if isinstance(found, Damage):
                    yield found
                    break
                header, body, position = found
                offset = header.end_offset
                summary = FrameSummary(
                    path.name,
                    position,
                    header.base_offset,
                    header.messages,
                    header.frame_bytes,
                    header.producer_id.hex(),
                    header.producer_epoch,
                    header.sequence,
                    header.timestamp_min_ms,
                    header.timestamp_max_ms,
                )
                yield summary, Batch.from_frame(-1, header, body)
        except LogCorrupted as error:
            yield Damage(path, 0, offset, str(error))
        finally:
            files.close(fd)


def verify(folder: Path) -> tuple[int, int, list[Damage]]:
    """Read everything: frames, messages, and what is damaged."""
    count, messages, damages = 0, 0, []
    for found in frames(folder):
        if isinstance(found, Damage):
            damages.append(found)
        else:
            count += 1
            messages += found[0].messages
    return count, messages, damages


def read_log(folder: Path, first: Offset = 0, end: Offset | None = None) -> Iterator[Batch]:
    """The messages of a log's folder from `first` up to, not including, `end`.

    A torn tail is where a log that was killed ends; damage before it raises LogCorrupted.
    """
    manifest = Manifest.read(Files(), folder)
    partition = manifest.partition if manifest is not None else -1
    first = max(first, manifest.start_offset if manifest is not None else 0)
    files = Files()
    for segment in recover(files, folder, _INTERVAL_BYTES, repair=False).segments:
        if segment.end_offset <= first or (end is not None and segment.base_offset >= end):
            continue
        position = segment.index.position_for_offset(first)
        if position is None:
            continue
        for header, body in segment.frames(files, position):
            if header.end_offset <= first:
                continue
            if end is not None and header.base_offset >= end:
                return
            batch = Batch.from_frame(partition, header, body)
            upto = len(batch) if end is None else min(len(batch), end - header.base_offset)
            yield batch.slice(max(0, first - header.base_offset), upto)


def read_log_as_arrow(
    folder: Path, first: Offset = 0, end: Offset | None = None
) -> pa.RecordBatchReader:
    """As `read_log`, for everything that reads Arrow: a stream of record batches."""
    return pa.RecordBatchReader.from_batches(
        ARROW_SCHEMA, (batch.to_arrow() for batch in read_log(folder, first, end))
    )
