"""The contract suite on `MemoryStore`, and its clock under the test's hand."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import StoreCorrupted, UsageError
from pxrs_ray.model import Member, MemberWrite, Outcome, Write, WriteKind
from pxrs_ray.store.memory import MemoryRegistry, MemoryStore
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    def setup_method(self) -> None:
        self.registry = MemoryRegistry()
        super().setup_method()

    def open_store(self) -> RegistryStore:
        return MemoryStore(self.registry)


def test_leases_follow_the_given_clock() -> None:
    now_ms = 1_000
    store = MemoryStore(now_ms=lambda: now_ms)
    generation = store.lead("g", 1, "c").generation
    member, claim = Member("A", 1), Write(WriteKind.CLAIM, 0, "A", 1, 0, version=3)
    store.write("g", generation, [MemberWrite("joined", member, 500, 2), claim])
    now_ms = 1_499
    assert store.expired("g") == ()
    now_ms = 1_500
    assert [row.partition for row in store.expired("g")] == [0]
    assert store.renew("g", generation, [("A", 1)], 500) == [Outcome.FENCED]
    assert store.changes("g", 0)[0].at_ms == 1_000


def test_a_registry_has_one_clock() -> None:
    with pytest.raises(UsageError):
        MemoryStore(MemoryRegistry(), now_ms=lambda: 0)


def test_a_generation_that_went_back_is_a_loss() -> None:
    store = MemoryStore()
    store.lead("g", 1, "c")
    with pytest.raises(StoreCorrupted, match="went back from 7 to 1"):
        store.write("g", 7, [])
