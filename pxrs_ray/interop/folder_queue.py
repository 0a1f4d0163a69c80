"""`FolderQueue`: a queue that is folders of files, as small systems keep them.

    queue/partition-0/00000000000001.msg      one file a message; offsets begin at 1
    queue/partition-0/offset.txt              the offset that the next message gets
    consumer_offsets/billing/partition-0.offset   the last offset that a group has processed

Rules of this file. The folder that is given holds `queue` and `consumer_offsets`, or is the queue
itself with the offsets inside or beside it. A file appears whole or not at all. What a message is
inside is its writer's affair: keys and headers are no part of this form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass

DIGITS = 14
_PARTITION = re.compile(r"partition-(\d+)$")
_MESSAGE = re.compile(rf"(\d{{{DIGITS}}})\.msg$")
_OFFSET = re.compile(r"partition-(\d+)\.offset$")


@dataclass(frozen=True, slots=True)
class FolderMessage:
    """One message file. `offset` is the folder's own: it counts from 1."""

    offset: int
    path: Path

    def payload(self) -> bytes:
        """What is in it."""
        return self.path.read_bytes()

    def timestamp_ms(self) -> int:
        """When it was written."""
        return self.path.stat().st_mtime_ns // 1_000_000


class FolderQueue:
    """See the rules at the head of this file."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self._files = files or Files()
        inside = folder / "queue"
        self.queue = inside if inside.is_dir() or not _has_partitions(folder) else folder
        places = (folder / "consumer_offsets", self.queue.parent / "consumer_offsets")
        self.offsets = next((place for place in places if place.is_dir()), places[0])

    def partitions(self) -> list[int]:
        """The numbers of the partitions, which are 0, 1, 2, ... Raises NotFound, UsageError."""
        if not self.queue.is_dir():
            raise NotFound(f"no folder {self.queue}")
        found = sorted(
            int(match[1])
            for path in self.queue.iterdir()
            if path.is_dir() and (match := _PARTITION.search(path.name))
        )
        if not found:
            raise NotFound(f"{self.queue} holds no folders partition-0, partition-1, ...")
        if found != list(range(len(found))):
            raise UsageError(f"{self.queue}: partitions {found} are not numbered 0, 1, 2, ...")
        return found

    def messages(self, partition: int) -> list[FolderMessage]:
        """The messages of a partition, in order. Raises UsageError when one is missing between."""
        folder = self.queue / f"partition-{partition}"
        found = sorted(
            (
                FolderMessage(int(match[1]), path)
                for path in folder.iterdir()
                if (match := _MESSAGE.match(path.name))
            ),
            key=lambda message: message.offset,
        )
        if found and found[-1].offset - found[0].offset + 1 != len(found):
            there = {message.offset for message in found}
            lost = next(o for o in range(found[0].offset, found[-1].offset) if o not in there)
            raise UsageError(f"{folder}: message {lost} is missing between others")
        return found

    def next_offset(self, partition: int) -> int:
        """What the next message gets, by `offset.txt`; 1 where there is none."""
        try:
            return int((self.queue / f"partition-{partition}" / "offset.txt").read_text())
        except FileNotFoundError:
            return 1

    def groups(self) -> list[str]:
        """The groups that have offsets here."""
        if not self.offsets.is_dir():
            return []
        return sorted(path.name for path in self.offsets.iterdir() if path.is_dir())

    def committed(self, group: str) -> dict[int, int]:
        """The last processed offset of each partition of a group; 0 is none."""
        return {
            int(match[1]): int(path.read_text())
            for path in sorted((self.offsets / group).iterdir())
            if (match := _OFFSET.match(path.name))
        }

    def write(self, partition: int, messages: Iterable[tuple[int, bytes, int]]) -> int:
        """Write (offset, payload, timestamp in ms) of a partition; answers how many.

        Files below `offset.txt` that are there stay; what lies above was cut off, and nobody knows
        what is in it. `offset.txt` is moved behind the last one when all of them are on disk.
        """
        folder = self.queue / f"partition-{partition}"
        self._files.make_folder(folder)
        known = self.next_offset(partition)
        last, written = known - 1, []
        for offset, payload, timestamp_ms in messages:
            path = folder / f"{offset:0{DIGITS}}.msg"
            if offset >= known or not path.exists():
                self._files.replace(path, payload, sync=False)
                os.utime(path, ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))
                written.append(path)
            last = max(last, offset)
        # After all of them: the system has written the most of it by then.
        for path in written:
            self._files.sync_file(path)
        self._files.sync_folder(folder)
        self._files.replace(folder / "offset.txt", b"%d" % (last + 1), sync=True)
        return len(written)

    def commit(self, group: str, committed: Iterable[tuple[int, int]]) -> None:
        """Write the last processed offset of partitions of a group."""
        folder = self.offsets / group
        self._files.make_folder(folder)
        for partition, offset in committed:
            path = folder / f"partition-{partition}.offset"
            self._files.replace(path, b"%d" % offset, sync=True)


def chunks(messages: list[FolderMessage], records_max: int) -> Iterator[list[FolderMessage]]:
    """Cut messages into pieces of up to `records_max`."""
    for start in range(0, len(messages), records_max):
        yield messages[start : start + records_max]


def _has_partitions(folder: Path) -> bool:
    return folder.is_dir() and any(_PARTITION.search(path.name) for path in folder.iterdir())
