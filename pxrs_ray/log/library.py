"""`LogLibrary`: the logs that one buffer holds, and what it must remember to open them again.

Rules of this file. One writer at a time: everything but `log` and `ends` is for the buffer's
writer thread. A log that cannot be opened is kept as the error that it is answered with, so that
one damaged partition does not take the others down.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from pxrs_ray.errors import LogError, NotFound, PxrsError, UsageError
from pxrs_ray.log.files import Files
from pxrs_ray.log.limits import Durability, LogLimits
from pxrs_ray.log.opening import log_folder
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.wire import LogEnds, QueueSpec
from pxrs_ray.model import Offset, PartitionId

HOT_BYTES_MAX = 256 << 20
_QUEUES = "queues.json"
Place = tuple[str, PartitionId]


class LogLibrary:
    """See the rules at the head of this file."""

    def __init__(self, data_folder: Path, index: int, buffers: int, now_ms: int) -> None:
        """Open every log of the queues that this buffer knew when it ended."""
        self.folder = data_folder / ".buffers" / str(index)
        self._data_folder = data_folder
        self._index = index
        self._buffers = buffers
        self._files = Files()
        self._specs: dict[str, QueueSpec] = {}
        self._logs: dict[Place, PartitionLog] = {}
        self._broken: dict[Place, PxrsError] = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for spec in self._remembered():
            self._specs[spec.queue] = spec
            for partition in self._partitions(spec):
                self._open(spec, partition, now_ms)
        self._share_memory()

    def _remembered(self) -> Iterator[QueueSpec]:
        path = self.folder / _QUEUES
        for found in json.loads(path.read_text()) if path.exists() else ():
            found["limits"] = LogLimits(**found["limits"])
            yield QueueSpec(**found)

    def _remember(self) -> None:
        specs = [asdict(spec) for spec in self._specs.values()]
        self._files.replace(self.folder / _QUEUES, json.dumps(specs, indent=1).encode(), sync=True)

    def _partitions(self, spec: QueueSpec) -> range:
        return range(self._index, spec.partitions, self._buffers)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that have logs here."""
        return tuple(sorted(self._specs))

    def all_logs(self) -> list[PartitionLog]:
        """Every log that could be opened."""
        return list(self._logs.values())

    def log(self, queue: str, partition: PartitionId) -> PartitionLog:
        """The log of one partition. Raises NotFound, or why it could not be opened."""
        log = self._logs.get((queue, partition))
        if log is not None:
            return log
        broken = self._broken.get((queue, partition))
        if broken is not None:
            raise broken
        raise NotFound(
            f"partition {partition} of queue {queue!r} is not on buffer {self._index} of "
            f"{self._buffers} (it has {', '.join(self.queues) or 'no queue yet'})"
        )

    def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """Where each log of `queue` stands, the broken ones included. Raises NotFound."""
        spec = self._specs.get(queue)
        if spec is None:
            raise NotFound(f"buffer {self._index} has no queue {queue!r}")
        found = {}
        for partition in self._partitions(spec):
            log = self._logs.get((queue, partition))
            if log is not None:
                found[partition] = log.ends()
                continue
            broken = self._broken.get((queue, partition), "it is being opened")
            found[partition] = LogEnds(
                partition, 0, 0, 0, None, None, 0, 0, state="failed", problem=str(broken)
            )
        return found

    def open(
        self, spec: QueueSpec, expected_ends: Mapping[PartitionId, Offset], now_ms: int
    ) -> None:
        """Make or open a queue's logs, confirm where they should end, and set their limits."""
        known = self._specs.get(spec.queue)
        if known is not None:
            self._check_change(known, spec)
        if known != spec:
            self._specs[spec.queue] = spec
            self._remember()
        for partition in self._partitions(spec):
            place = (spec.queue, partition)
            if place not in self._logs:
                self._open(spec, partition, now_ms)
            log = self._logs.get(place)
            expected = expected_ends.get(partition, 0)
            if log is not None and (log.state == "waiting" or expected > log.end_offset):
                log.confirm(expected, now_ms)
        self._share_memory()

    def _check_change(self, known: QueueSpec, spec: QueueSpec) -> None:
        if known.partitions != spec.partitions:
            raise UsageError(
                f"queue {spec.queue!r} has {known.partitions} partitions, not {spec.partitions}: "
                "their number never changes"
            )
        if (known.limits.durability is Durability.MEMORY) != (
            spec.limits.durability is Durability.MEMORY
        ):
            raise UsageError(
                f"queue {spec.queue!r} has durability {known.limits.durability}: make a new queue "
                f"for {spec.limits.durability}"
            )

    def _open(self, spec: QueueSpec, partition: PartitionId, now_ms: int) -> None:
        place = (spec.queue, partition)
        folder = log_folder(self._data_folder, spec.queue, partition)
        self._broken.pop(place, None)
        try:
            self._logs[place] = PartitionLog.open(
                folder, spec.queue, partition, spec.limits, now_ms=now_ms, files=self._files
            )
        except PxrsError as error:
            self._broken[place] = error
        except OSError as error:
            self._broken[place] = LogError(f"{folder}: cannot be opened: {error}")

    def _share_memory(self) -> None:
        """Divide the buffer's memory for hot tails among its logs, and set every log's limits."""
        share = max(1, HOT_BYTES_MAX // max(1, len(self._logs)))
        for (queue, _), log in self._logs.items():
            limits = self._specs[queue].limits
            log.set_limits(replace(limits, hot_bytes_max=min(share, limits.hot_bytes_max)))

    def drop_queue(self, queue: str) -> None:
        """Delete every log of `queue` here; an absent queue is success."""
        spec = self._specs.pop(queue, None)
        if spec is None:
            return
        self._remember()
        for partition in self._partitions(spec):
            self._broken.pop((queue, partition), None)
            log = self._logs.pop((queue, partition), None)
            if log is not None:
                log.close()
            shutil.rmtree(log_folder(self._data_folder, queue, partition), ignore_errors=True)

    def close(self) -> None:
        """Sync and close every log."""
        for log in self._logs.values():
            log.close()
