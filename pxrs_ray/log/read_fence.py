"""`ReadFence`: refuses readers whose ownership of a partition is over, at the log itself.

Rules of this file. Per (queue, group, partition) the highest epoch ever seen counts; an epoch
below it is refused for ever. What was seen is appended to a small file, so that a restarted
buffer refuses the same readers; the file is written anew when it has grown. It is not synced: a
reader that survived a power cut must show an epoch to the coordinator before it can commit. A
disk that takes nothing holds up no reader: the file is `behind` then, until `catch_up`. Once it is
closed the file stays as it is: somebody may be copying it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from pxrs_ray.closing import Closing
from pxrs_ray.codec import json_codec
from pxrs_ray.errors import DiskFull, Fenced
from pxrs_ray.files import Files
from pxrs_ray.model import Epoch, PartitionId

logger = logging.getLogger(__name__)

_LINES_MAX = 10_000
LINE = json_codec("buffer: fence.jsonl, a line", tuple[str, str, int, int])
GroupPartition = tuple[str, str, PartitionId]


class ReadFence(Closing):
    """See the rules at the head of this file. Not thread-safe."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        """Read what `path` holds; a line that was cut by a crash is left out. Raises OSError."""
        self.behind = True
        # Told of each log of which another epoch is known now than before.
        self.tell_changed: Callable[[tuple[str, PartitionId]], None] = _nobody
        self._of: dict[tuple[str, PartitionId], dict[str, Epoch]] = {}
        self._closed = False
        self._path = path
        self._files = files or Files()
        self._epochs: dict[GroupPartition, Epoch] = {}
        self._lines = self._size = 0
        self._fd = -1
        self._files.make_folder(path.parent)
        self._unread = True
        self._read()

    def another_wrote(self) -> None:
        """Another process had the logs until now, and may have written the file: it is read again
        before the next look. From any thread."""
        self._unread = True

    def _look_again(self) -> None:
        try:
            self._read()
        except OSError as error:  # it is tried again at the next look
            logger.warning("%s cannot be read again: %s", self._path, error)

    def _read(self) -> None:
        """Take in what the file holds, and have it for ourselves. Raises OSError."""
        try:
            data = self._files.read_file(self._path)
        except FileNotFoundError:
            data = b""
        for line in data.splitlines():
            try:
                queue, group, partition, epoch = LINE.decode(line)
            except ValueError:
                continue
            if epoch > self._epochs.get((queue, group, partition), -1):
                self._epochs[queue, group, partition] = epoch
                self._of.setdefault((queue, partition), {})[group] = epoch
                self.tell_changed((queue, partition))
        self._unread, self.behind = False, True
        self.catch_up()

    def check(self, queue: str, group: str, partition: PartitionId, epoch: Epoch) -> None:
        """Let a reader of `epoch` pass, and from now on nobody below. Raises Fenced."""
        if self._unread:
            self._look_again()
        current = self._epochs.get((queue, group, partition), -1)
        if epoch < current:
            raise Fenced(
                f"group {group!r} reads partition {partition} of {queue!r} with epoch {epoch}, but "
                f"epoch {current} has it now: drop the partition"
            )
        if epoch > current:
            self._raise({(queue, group, partition): epoch})

    def fence(self, queue: str, group: str, epochs: Mapping[PartitionId, Epoch]) -> None:
        """Refuse everyone below these epochs from now on; never lowers one."""
        if self._unread:
            self._look_again()
        places = {(queue, group, partition): epoch for partition, epoch in epochs.items()}
        self._raise({p: e for p, e in places.items() if e > self._epochs.get(p, -1)})

    def epochs(self, queue: str, group: str) -> dict[PartitionId, Epoch]:
        """The highest epoch seen of each partition of a group; those never read are left out."""
        if self._unread:
            self._look_again()
        return {p[2]: epoch for p, epoch in self._epochs.items() if p[:2] == (queue, group)}

    def of_log(self, queue: str, partition: PartitionId) -> dict[str, Epoch]:
        """The highest epoch of each group that a log has seen."""
        return dict(self._of.get((queue, partition), ()))

    def drop_group(self, queue: str, group: str) -> None:
        """Forget what is known of a group that is gone."""
        self._keep({p: e for p, e in self._epochs.items() if p[:2] != (queue, group)})

    def drop_queue(self, queue: str) -> None:
        """Forget what is known of a queue that is gone."""
        self._keep({p: e for p, e in self._epochs.items() if p[0] != queue})

    def _keep(self, epochs: dict[GroupPartition, Epoch]) -> None:
        gone = self._epochs.keys() - epochs.keys()
        self._epochs = epochs
        for queue, group, partition in gone:
            self._of[queue, partition].pop(group)
            self.tell_changed((queue, partition))
        self.behind = True
        self.catch_up()

    def _raise(self, epochs: Mapping[GroupPartition, Epoch]) -> None:
        if not epochs:
            return
        # Memory first: an older reader is refused even where the disk takes no line.
        self._epochs.update(epochs)
        for (queue, group, partition), epoch in epochs.items():
            self._of.setdefault((queue, partition), {})[group] = epoch
            self.tell_changed((queue, partition))
        if self._lines > max(_LINES_MAX, 2 * len(self._epochs)):
            self.behind = True
        if self.behind:
            self.catch_up()
            return
        data = _lines(epochs)
        try:
            self._size += self._files.write(self._fd, [data], self._size)
            self._lines += len(epochs)
        except (OSError, DiskFull) as error:
            self._fell_behind(error)

    def catch_up(self) -> None:
        """Write the file anew when it is behind; where the disk refuses, it stays behind."""
        if not self.behind or self._closed:
            return
        data = _lines(self._epochs)
        try:
            self._files.replace(self._path, data, sync=False)
            before, self._fd = self._fd, self._files.open(self._path)
            if before >= 0:
                self._files.close(before)
        except (OSError, DiskFull) as error:
            self._fell_behind(error)
            return
        self.behind = False
        self._size, self._lines = len(data), len(self._epochs)

    def _fell_behind(self, error: Exception) -> None:
        if not self.behind:
            logger.warning("%s is behind what it should hold: %s", self._path, error)
        self.behind = True

    def close(self) -> None:
        """Give the file back, and write no more."""
        self._closed = True
        fd, self._fd, self.behind = self._fd, -1, True
        if fd >= 0:
            self._files.close(fd)


def _nobody(_: object) -> None: ...


def _lines(epochs: Mapping[GroupPartition, Epoch]) -> bytes:
    return b"".join(LINE.encode((*place, epoch)) + b"\n" for place, epoch in epochs.items())
