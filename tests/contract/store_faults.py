"""A store under test with its server, a proxy between them, and one led group: for fault tests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from pxrs_ray.errors import StoreError, StoreUnavailable
from pxrs_ray.model import Outcome, PartitionRow, Write, WriteKind
from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_checks.base import commit, open_resources
from tests.proxy import Proxy
from tests.servers import Server

GROUP = "faults"
APPLIED = [Outcome.APPLIED]
# A store that lets two claim is found in fifty rounds (test_contract_suite); `pxrs store check`
# makes a thousand, and so do the stores that have no server.
RACE_ROUNDS = 200
OVERSHOOT_S = 2.5
"""What a call may take beyond its deadline: a connect to PostgreSQL waits 2 s at the least."""


@dataclass
class Setting:
    """A store whose one group is led, and partition 0 claimed at epoch 1."""

    server: Server
    proxy: Proxy
    store: RegistryStore
    generation: int
    offset: int = 0

    def commit(self, offset: int) -> list[Outcome]:
        return self.store.write(GROUP, self.generation, [commit(0, offset)])

    def claim(self, partition: int, version: int) -> list[Outcome]:
        claim = Write(WriteKind.CLAIM, partition, "A", 1, 0, version=version)
        return self.store.write(GROUP, self.generation, [claim])

    def row(self, partition: int = 0) -> PartitionRow:
        found = self.store.load(GROUP)
        assert found is not None
        return found.partitions[partition]

    def commit_until_stopped(self, stop: threading.Event) -> int:
        """Commit rising offsets; the last one that was acknowledged."""
        while not stop.is_set():
            try:
                assert self.commit(self.offset + 1) == APPLIED
            except StoreUnavailable:
                continue  # unknown: the very same commit again
            self.offset += 1
        return self.offset


@contextmanager
def led(server: Server, *, deadline_ms: int) -> Iterator[Setting]:
    """A fresh group on `server`, seen through a proxy; nothing may be left open at the end."""
    before = open_resources()
    with Proxy(server.port) as proxy:
        url = server.url.replace(f":{server.port}", f":{proxy.port}")
        store = open_store(url, deadline_ms=deadline_ms)
        try:
            store.create()
            store.remove_group(GROUP)
            setting = Setting(server, proxy, store, store.lead(GROUP, 4, "faults").generation)
            assert setting.claim(0, 2) == APPLIED
            yield setting
        finally:
            proxy.flow()
            with contextlib.suppress(StoreError):  # a server that lost its data, or its rights
                store.remove_group(GROUP)
            store.close()
    eventually("nothing is left open", lambda: open_resources() - before, set())


def unavailable_in_time(deadline_ms: int, call: Callable[[], object]) -> str:
    """Let `call` end as `StoreUnavailable` not long after the deadline; its message."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as raised:
        call()
    took_s = time.monotonic() - began
    assert took_s < deadline_ms / 1_000 + OVERSHOOT_S, f"took {took_s:.1f} s"
    return str(raised.value)


def eventually(what: str, look: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + 90
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"{what}: {seen}"
        time.sleep(0.01)
