"""`ReadFence`: refuses readers whose ownership of a partition is over, at the log itself.

Rules of this file. Per (queue, group, partition) the highest epoch ever seen counts; an epoch
below it is refused for ever. What was seen is appended to a small file, so that a restarted
buffer refuses the same readers; the file is written anew when it has grown. It is not synced: a
reader that survived a power cut must show an epoch to the coordinator before it can commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pxrs_ray.errors import Fenced
from pxrs_ray.model import Epoch, PartitionId

_LINES_MAX = 10_000
Place = tuple[str, str, PartitionId]


class ReadFence:
    """See the rules at the head of this file. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Read what `path` holds; a line that was cut by a crash is left out."""
        self._path = path
        self._epochs: dict[Place, Epoch] = {}
        self._lines = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                queue, group, partition, epoch = json.loads(line)
                self._epochs[queue, group, int(partition)] = int(epoch)
            except (ValueError, TypeError):
                continue
        self._file: IO[str] = self._rewrite()

    def check(self, queue: str, group: str, partition: PartitionId, epoch: Epoch) -> None:
        """Let a reader of `epoch` pass, and from now on nobody below. Raises Fenced."""
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
        places = {(queue, group, partition): epoch for partition, epoch in epochs.items()}
        self._raise({p: e for p, e in places.items() if e > self._epochs.get(p, -1)})

    def drop_group(self, queue: str, group: str) -> None:
        """Forget what is known of a group that is gone."""
        self._keep({p: e for p, e in self._epochs.items() if p[:2] != (queue, group)})

    def drop_queue(self, queue: str) -> None:
        """Forget what is known of a queue that is gone."""
        self._keep({p: e for p, e in self._epochs.items() if p[0] != queue})

    def _keep(self, epochs: dict[Place, Epoch]) -> None:
        self._epochs = epochs
        self._file.close()
        self._file = self._rewrite()

    def _raise(self, epochs: Mapping[Place, Epoch]) -> None:
        if not epochs:
            return
        self._epochs.update(epochs)
        self._file.writelines(_line(place, epoch) for place, epoch in epochs.items())
        self._file.flush()
        self._lines += len(epochs)
        if self._lines > max(_LINES_MAX, 2 * len(self._epochs)):
            self._keep(self._epochs)

    def _rewrite(self) -> IO[str]:
        temporary = self._path.with_suffix(".new")
        temporary.write_text("".join(_line(p, e) for p, e in self._epochs.items()))
        temporary.replace(self._path)
        self._lines = len(self._epochs)
        return self._path.open("a")

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _line(place: Place, epoch: Epoch) -> str:
    record: list[Any] = [*place, epoch]
    return json.dumps(record) + "\n"
