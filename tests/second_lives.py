"""Every log that a test leaves lives on: again after a clean end, a kill, and in another boot.

Rules of this file. What the log held when it was let go of is what any later life of it holds:
messages, ends, groups, gaps; and it takes a message more. Each life is of a copy, so no test sees
it. A log that had failed, or whose files somebody changed since on purpose, has no promises.
(What a power cut takes back is for `tests.faults.files`: here nothing is taken.)
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.errors import PartitionFull, PxrsError
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import Offset
from tests.logs import NOW_MS, contents, wire

LIVES_MAX = 8
MESSAGES_MAX = 3_000
Files = dict[str, tuple[int, int]]


@dataclass
class Left:
    """A log as it was let go of."""

    folder: Path
    opened: tuple[str, int, str | None]
    limits: LogLimits
    found: dict[Offset, bytes]
    told: tuple[Any, ...]
    files: Files = field(default_factory=dict)


def files_of(folder: Path) -> Files:
    """What tells whether somebody changed them."""
    if not folder.is_dir():
        return {}
    found = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def told_of(log: PartitionLog) -> tuple[Any, ...]:
    """What a log says of itself besides its messages, and every life of it says too."""
    memory = log.limits.durability is Durability.MEMORY
    ends = () if memory else (log.start_offset, log.end_offset, log.gaps)
    return (*ends, log.state, dict(log.groups))


class SecondLives:
    """Watches logs being opened and let go of; `judge` lets them live again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
        self._scratch = scratch
        self._open = PartitionLog.__dict__["open"].__func__
        self._release = PartitionLog._release
        self._how: dict[int, tuple[str, int, str | None]] = {}
        self._logs: list[PartitionLog] = []
        self._left: dict[Path, Left] = {}
        watch = self

        def opened(cls: Any, folder: Path, queue: str, partition: int, *a: Any, **k: Any) -> Any:
            log = watch._open(cls, folder, queue, partition, *a, **k)
            watch._how[id(log)] = (queue, partition, k.get("boot"))
            watch._logs.append(log)
            watch._left.pop(folder, None)
            return log

        def release(log: PartitionLog) -> None:
            left = watch._seen(log) if not log._closed else None
            watch._release(log)
            if left is not None:
                left.files = files_of(log.folder)
                watch._left[log.folder] = left

        monkeypatch.setattr(PartitionLog, "open", classmethod(opened))
        monkeypatch.setattr(PartitionLog, "_release", release)

    def _seen(self, log: PartitionLog) -> Left | None:
        if log.state != "open" or log.end_offset - log.start_offset > MESSAGES_MAX:
            return None
        with suppress(PxrsError, OSError):
            always = log.limits.durability is Durability.ALWAYS
            if not always or log.visible_end == log.end_offset:
                how = self._how.get(id(log))  # none: one of our own
                if how is None:
                    return None
                return Left(log.folder, how, log.limits, contents(log), told_of(log))
        return None

    def judge(self) -> int:
        """Let each of them live again; answer how many did."""
        for log in self._logs:
            log._release()
        left = [one for one in self._left.values() if one.files == files_of(one.folder)]
        for number, one in enumerate(left[:LIVES_MAX]):
            for clean in (True, False):
                self._live_on(one, self._scratch / f"{number}-{clean}", clean)
        return len(left)

    def _again(self, one: Left, folder: Path, boot: str | None) -> PartitionLog:
        queue, partition, _ = one.opened
        log: PartitionLog = self._open(
            PartitionLog, folder, queue, partition, one.limits, now_ms=NOW_MS, boot=boot
        )
        if log.state == "waiting":
            assert boot != one.opened[2] and one.limits.durability is Durability.INTERVAL
            log.confirm(0, NOW_MS)
        return log

    def _live_on(self, one: Left, folder: Path, clean: bool) -> None:
        shutil.copytree(one.folder, folder)
        found = {} if one.limits.durability is Durability.MEMORY else one.found
        boots = (one.opened[2], "another boot") if clean else (one.opened[2], one.opened[2])
        for boot in boots:
            log = self._again(one, folder, boot)
            assert contents(log) == found, "another life has other messages"
            assert told_of(log) == one.told
            log.close() if clean else self._release(log)
        log = self._again(one, folder, boots[-1])
        with suppress(PartitionFull):
            answer = log.append(*wire([b"more"], 0, producer=b"another producer"), NOW_MS)
            assert answer.base_offset == log.end_offset - 1 and not answer.repeated
            assert answer.base_offset not in found
        self._release(log)


@pytest.fixture
def second_lives(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> Iterator[None]:
    """Every log of the test lives on."""
    lives = SecondLives(monkeypatch, tmp_path_factory.mktemp("second-lives"))
    yield
    lives.judge()
