"""What every part of the store contract suite stands on: stores, a group, helpers, a leak check.

Rules of this file. The suite needs no pytest: it checks with `expect`, which also works under
`python -O`. Each test has a group of its own, so that tests on one server do not meet. What is
awaited is awaited by condition with a deadline, never by a fixed sleep.
"""

from __future__ import annotations

import gc
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pxrs_ray.model import (
    Member,
    MemberWrite,
    Outcome,
    PartitionRow,
    Record,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.store.registry import RegistryStore

APPLIED, FENCED, BEHIND = Outcome.APPLIED, Outcome.FENCED, Outcome.BEHIND
T = TypeVar("T")


def expect(what: str, actual: object, wanted: object) -> None:
    """Fail unless `actual` equals `wanted`; `what` says in words what is promised."""
    if actual != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, got {actual!r}")


def expect_raises(what: str, kind: type[BaseException], call: Callable[[], object]) -> None:
    """Fail unless `call` raises `kind`."""
    try:
        answer = call()
    except kind:
        return
    raise AssertionError(f"{what}: expected {kind.__name__}, got the answer {answer!r}")


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run every call in a thread of its own, all let go at one moment; their answers in order."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        gate.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


class ContractBase:
    """Opens the stores of a test, and closes them and looks for leaks after it.

    Override `open_store`; the class attributes may be changed by a subclass for its backend.
    """

    claim_race_rounds = 1_000
    race_threads = 16
    lease_short_ms = 300
    """A lease that is awaited to end; a backend that only has whole seconds rounds it up."""
    wait_s_max = 20.0

    store: RegistryStore
    group: str

    def open_store(self) -> RegistryStore:
        """Make one more store on the registry under test, which all stores of a test share."""
        raise NotImplementedError

    def setup_method(self) -> None:
        """Open the first store and name a fresh group."""
        self._resources_before = open_resources()
        self._opened: list[RegistryStore] = []
        self._groups: set[str] = set()
        self._version = 0
        self.generation = 0
        self.group = self.new_group()
        self.store = self.another_store()
        self.store.create()

    def teardown_method(self) -> None:
        """Remove the groups, close the stores, and fail when something was left behind."""
        try:
            for group in self._groups:
                self.store.remove_group(group)
        finally:
            for store in self._opened:
                store.close()
        self.eventually("everything is given back after close", self.leaks, [])

    def leaks(self) -> list[str]:
        """Name the threads, sockets and files that this test's stores left open."""
        return sorted(open_resources() - self._resources_before)

    def another_store(self) -> RegistryStore:
        """Open a further store on the same registry; it is closed after the test."""
        store = self.open_store()
        self._opened.append(store)
        return store

    def new_group(self) -> str:
        """Name a group that nobody else uses; it is removed after the test."""
        return self.own_group(f"contract-{secrets.token_hex(6)}")

    def own_group(self, group: str) -> str:
        """Have `group` removed after the test."""
        self._groups.add(group)
        return group

    def eventually(self, what: str, look: Callable[[], object], wanted: object) -> None:
        """Wait until `look()` equals `wanted`."""
        deadline = time.monotonic() + self.wait_s_max
        while (seen := look()) != wanted:
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: expected {wanted!r} in time, last was {seen!r}")
            time.sleep(0.01)

    def lead(self, partitions: int = 8, store: RegistryStore | None = None) -> Snapshot:
        """Lead this test's group, and write under that generation from now on."""
        snapshot = (store or self.store).lead(self.group, partitions, "contract")
        self.generation = snapshot.generation
        self._version = snapshot.last_version
        return snapshot

    def version(self) -> int:
        """The next version."""
        self._version += 1
        return self._version

    def apply(self, *records: Record) -> list[Outcome]:
        """Write `records` under this test's generation."""
        return self.store.write(self.group, self.generation, records)

    def claim(
        self, partition: int, owner: str = "A", epoch: int = 0, incarnation: int = 1
    ) -> Write:
        """Word a claim."""
        return Write(
            WriteKind.CLAIM,
            partition,
            owner,
            incarnation,
            epoch,
            version=self.version(),
            cause=f"{owner} joined",
            at_ms=1_700_000_000_000,
        )

    def release(
        self, partition: int, owner: str = "A", epoch: int = 1, incarnation: int = 1
    ) -> Write:
        """Word a release."""
        return Write(
            WriteKind.RELEASE, partition, owner, incarnation, epoch, version=self.version()
        )

    def reset(self, partition: int, epoch: int, checkpoint: int, epoch_to: int = 0) -> Write:
        """Word a reset of a partition that nobody owns."""
        return Write(
            WriteKind.RESET,
            partition,
            None,
            0,
            epoch,
            checkpoint,
            version=self.version(),
            epoch_to=epoch_to,
        )

    def join(self, member: Member, lease_ms: int = 60_000) -> MemberWrite:
        """Word a join."""
        return MemberWrite("joined", member, lease_ms, self.version(), "asked to")

    def leave(self, member: Member) -> MemberWrite:
        """Word a leave."""
        return MemberWrite("left", member, 0, self.version(), "asked to")

    def snapshot(self) -> Snapshot:
        """Read this test's group, which must exist."""
        found = self.store.load(self.group)
        if found is None:
            raise AssertionError(f"group {self.group!r} is gone")
        return found

    def row(self, partition: int) -> PartitionRow:
        """Read one partition."""
        return self.snapshot().partitions[partition]


def commit(
    partition: int,
    checkpoint: int,
    owner: str = "A",
    epoch: int = 1,
    incarnation: int = 1,
    attempts: int = 0,
    detail: str = "",
) -> Write:
    """Word a commit."""
    return Write(
        WriteKind.COMMIT, partition, owner, incarnation, epoch, checkpoint, attempts, detail
    )


def numbers(rows: Iterable[PartitionRow]) -> list[int]:
    """The partition numbers of `rows`."""
    return [row.partition for row in rows]


def open_resources() -> set[str]:
    """Name this process's threads, and on Linux its open sockets and files.

    What only waits for the garbage collector is not open: psycopg drops an attempt to connect
    that timed out in a cycle of references.
    """
    gc.collect()
    found = {f"thread {thread.name} {thread.ident}" for thread in threading.enumerate()}
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:") or (target.startswith("/") and "/dev/" not in target):
            found.add(f"descriptor of {target}")
    return found
