"""What the Spark tests share: a queue without a coordinator, what is in it, and whom to kill."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_making import make_buffer
from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.protocol import QueueSpec
from tests.actors.lease_keeper import LeaseKeeper

QUEUE = "payments"
# Every process that these tests start has it, with the id of the one that runs them.
RUN_BY = "PXRS_TEST_RUN_BY"
PATIENCE_S = 60.0
FIRST_FILE_S = 1_700_000_000


class BuffersOnly:
    """A queue on real buffers; answers what the feed asks a topology."""

    def __init__(self, name: str, folder: Path, buffers: int = 2, **options: Any) -> None:
        self.name = name
        self.folder = folder
        self.buffers = [make_buffer(name, i, buffers, str(folder)) for i in range(buffers)]
        self._begin(options)
        self.keeper = LeaseKeeper(self.buffers)

    def _begin(self, options: Mapping[str, Any]) -> None:
        self.config = PxrsConfig(name=self.name, queues={QUEUE: QueueConfig(**options)})
        queue = self.config.resolved_queue(QUEUE)
        self.spec = QueueSpec(QUEUE, queue.partitions, queue.log_limits())
        self.open(self.spec)

    def begin_again(self, **options: Any) -> None:
        """Another queue in the same buffers: nothing is left of this one, nor of what fed it."""
        for queue in (QUEUE, names.feeds_of(QUEUE), names.streams_of(QUEUE)):
            self._drop(queue)
        self._begin(options)

    def open(self, spec: QueueSpec) -> None:
        ray.get(
            [buffer.open.remote(spec, {}, make=True) for buffer in self.buffers], timeout=PATIENCE_S
        )

    def queue_spec(self, queue: str) -> tuple[QueueSpec, PxrsConfig, int]:
        self.config.resolved_queue(queue)
        return self.spec, self.config, len(self.buffers)

    def ends(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for buffer in self.buffers:
            answer = ray.get(buffer.ends.remote(QUEUE), timeout=PATIENCE_S)
            found.update({p: at.end_offset for p, at in answer.items()})
        return found

    def rows(self) -> int:
        return sum(self.ends().values())

    def batches(self) -> Iterator[Batch]:
        """Every batch, partition after partition, in the order of the log."""
        for partition in range(self.spec.partitions):
            buffer, at = self.buffers[partition % len(self.buffers)], 0
            while True:
                call = buffer.fetch.remote(QUEUE, "test", {partition: (0, at)}, 32 << 20, 0)
                found = ray.get(call, timeout=PATIENCE_S)
                if not found:
                    break
                yield from batches(found[0], at)
                at = found[0].next_offset

    def empty(self) -> None:
        """Delete every message."""
        self._drop(QUEUE)
        self.open(self.spec)

    def _drop(self, queue: str) -> None:
        ray.get([buffer.drop_queue.remote(queue) for buffer in self.buffers], timeout=PATIENCE_S)

    def hold(self) -> None:
        """Register a group that has passed nothing, so that nothing is dropped to make room."""
        for partition in range(self.spec.partitions):
            buffer = self.buffers[partition % len(self.buffers)]
            ray.get(buffer.passed.remote(QUEUE, "slow", {partition: 0}), timeout=PATIENCE_S)

    def kill_buffer(self, index: int) -> None:
        info = ray.get(self.buffers[index].ping.remote(), timeout=PATIENCE_S)
        os.kill(info.pid, signal.SIGKILL)

    def close(self) -> None:
        self.keeper.close()
        for buffer in self.buffers:
            ray.get(buffer.close.remote(), timeout=PATIENCE_S)
            ray.kill(buffer)


def numbered(spark: Any, rows: int, parts: int = 8, keys: int = 1_000) -> Any:
    """Rows that prove themselves: payload is a number that rises within each Spark partition."""
    return spark.range(0, rows, 1, parts).selectExpr(
        f"cast(id % {keys} as string) as account",
        "cast(id as string) as number",
        "timestamp_millis(1700000000000 + id) as at",
    )


class Source:
    """A folder in which files of numbered rows appear: `file_rows` each, from `first` on."""

    def __init__(self, folder: Path, file_rows: int, first: int = 0, keys: int = 1_000) -> None:
        self.folder = folder
        self.file_rows = file_rows
        self.first = first
        self.keys = keys
        self.files = 0
        folder.mkdir()

    @property
    def rows(self) -> int:
        """How many have appeared."""
        return self.files * self.file_rows

    def add(self, files: int) -> None:
        """Have so many more files appear."""
        for _ in range(files):
            begin = self.first + self.rows
            rows = [
                f'{{"account": "{number % self.keys}", "number": "{number}"}}'
                for number in range(begin, begin + self.file_rows)
            ]
            hidden = self.folder / f".{self.files}"
            hidden.write_text("\n".join(rows))
            # Spark takes files by age, and those of one millisecond in any order.
            os.utime(hidden, (FIRST_FILE_S + self.files, FIRST_FILE_S + self.files))
            hidden.rename(self.folder / f"{self.files:04}.json")
            self.files += 1


def numbered_stream(spark: Any, folder: Path) -> Any:
    """The rows of a `Source` as Spark streams them, a file a batch."""
    reader = spark.readStream.schema("account string, number string")
    return reader.option("maxFilesPerTrigger", 1).json(str(folder))


def check_numbered(
    queue: BuffersOnly,
    rows: int,
    parts: int = 8,
    keys: int = 1_000,
    streamed: int = 0,
    files: int = 1,
) -> None:
    """Every row once, each on one partition a key, and in order per key and Spark partition.

    The `streamed` rows after them are in order per key and file: Spark may put files into one
    batch, in any order, when it was stopped between listing them and beginning the batch.
    """
    seen: set[int] = set()
    homes: dict[bytes, int] = {}
    last: dict[tuple[bytes, int], int] = {}
    count = 0
    for batch in queue.batches():
        for key, payload in batch.rows():
            assert key is not None
            number = int(payload)
            assert int(key) == number % keys
            assert homes.setdefault(key, batch.partition) == batch.partition
            place = (key, _part_of(number, rows, parts, streamed, files))
            assert last.get(place, -1) < number, "a key's rows are out of order"
            last[place] = number
            seen.add(number)
            count += 1
    total = rows + streamed
    assert (count, len(seen)) == (total, total), "rows are missing, or there twice"
    assert seen == set(range(total))


def _part_of(number: int, rows: int, parts: int, streamed: int, files: int) -> int:
    """The Spark partition, or behind those the file, that a row comes from."""
    if number < rows:
        return number * parts // rows
    return parts + (number - rows) * files // streamed


def eventually(look: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    """What `look` gives, as soon as that is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {seconds:g} s")


def routing_workers() -> list[psutil.Process]:
    """The processes of this Ray that run a routing task now."""
    found = []
    for process in psutil.process_iter():
        try:
            told = process.cmdline()
            if told and told[0].startswith("ray::route_") and _is_ours(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_ours(process: psutil.Process) -> bool:
    """Workers are forks, and no children of their node's, yet of its session."""
    try:
        return os.getsid(process.pid) == os.getsid(0)
    except ProcessLookupError:
        return False


def executor_pid(spark: Any) -> int:
    """The Java process of an executor: the parent of the parent of Spark's Python workers."""

    def look(_: Any) -> Iterator[Any]:
        import os

        import psutil
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"pid": [psutil.Process(os.getppid()).ppid()]})

    return int(spark.range(0, 1, 1, 1).mapInArrow(look, "pid long").first().pid)


@contextmanager
def meanwhile(act: Callable[[], None], random: Random, seconds_max: float) -> Iterator[None]:
    """Do something at a random moment while the block runs; told when it could not be done."""
    failed: list[BaseException] = []
    pause_s = random.uniform(0, seconds_max)

    def run() -> None:
        time.sleep(pause_s)
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(PATIENCE_S)
    assert not failed, failed
