"""How many conditional checkpoint commits a second each registry store takes, and how long one is.

The figure to reach is `store.<backend>.batch64_checkpoints_per_s`: one client, one batch of 64
partitions at a time, each commit compared with owner, epoch and generation in the store. The
records are made beforehand; what is clocked is `write`. PostgreSQL has synchronous_commit on,
SQLite WAL and synchronous FULL, Redis an append-only file synced every second; Oracle's stand-in
says nothing of Oracle's speed and is not here.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from pxrs_ray.model import Outcome, Write, WriteKind
from pxrs_ray.store import RegistryStore, open_store
from tests.benchmarks.harness import figures
from tests.servers import EtcdServer, PostgresServer, RedisServer

PARTITIONS = 256
SIZES = (1, 8, 64, 256)
SECONDS_A_SIZE = 0.5
BATCHES_MAX = 2_000


@contextmanager
def _memory() -> Iterator[str]:
    yield "memory:"


@contextmanager
def _sqlite() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="pxrs-bench-", dir=Path.cwd())
    try:
        yield f"sqlite:///{folder}/registry.db"
    finally:
        shutil.rmtree(folder)


@contextmanager
def _server(kind: type[EtcdServer] | type[PostgresServer] | type[RedisServer]) -> Iterator[str]:
    with kind() as server:
        yield server.url


class Led:
    """A store whose one group is led, with every partition owned."""

    def __init__(self, store: RegistryStore) -> None:
        self.store = store
        store.create()
        led = store.lead("bench", PARTITIONS, "bench")
        self.generation = led.generation
        self.offset = 0
        claims = [
            Write(WriteKind.CLAIM, p, "consumer-1", 1, 0, version=led.last_version + 1 + p)
            for p in range(PARTITIONS)
        ]
        assert set(store.write("bench", self.generation, claims)) == {Outcome.APPLIED}

    def batch(self, size: int) -> list[Write]:
        """A commit of the next offset to each of the first `size` partitions."""
        self.offset += 1
        return [
            Write(WriteKind.COMMIT, p, "consumer-1", 1, 1, checkpoint=self.offset)
            for p in range(size)
        ]

    def milliseconds(self, size: int) -> list[float]:
        """How long each of many batches of `size` took."""
        found: list[float] = []
        end = time.perf_counter() + SECONDS_A_SIZE
        while len(found) < BATCHES_MAX and time.perf_counter() < end:
            batch = self.batch(size)
            began = time.perf_counter()
            outcomes = self.store.write("bench", self.generation, batch)
            found.append((time.perf_counter() - began) * 1_000)
            assert outcomes.count(Outcome.APPLIED) == size
        return sorted(found)


def _led(backend: Callable[[], AbstractContextManager[str]]) -> Any:
    @contextmanager
    def setup() -> Iterator[Led]:
        with backend() as url, open_store(url) as store:
            yield Led(store)

    return setup


def _declare(name: str, backend: Callable[[], AbstractContextManager[str]]) -> None:
    units = {f"store.{name}.batch{size}_checkpoints_per_s": "1/s" for size in SIZES}
    for size in SIZES:
        units |= {f"store.{name}.batch{size}_{part}_ms": "ms" for part in ("p50", "p99")}

    @figures(units, setup=_led(backend))
    def commits(led: Led) -> dict[str, float]:
        told = {}
        for size in SIZES:
            times = led.milliseconds(size)
            rate = size * len(times) / sum(times) * 1_000
            told[f"store.{name}.batch{size}_checkpoints_per_s"] = rate
            told[f"store.{name}.batch{size}_p50_ms"] = times[len(times) // 2]
            told[f"store.{name}.batch{size}_p99_ms"] = times[int(len(times) * 0.99)]
        return told


_declare("memory", _memory)
_declare("sqlite", _sqlite)
_declare("postgresql", lambda: _server(PostgresServer))
_declare("redis", lambda: _server(RedisServer))
_declare("etcd", lambda: _server(EtcdServer))
