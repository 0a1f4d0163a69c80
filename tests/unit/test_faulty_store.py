"""The store that fails by seed keeps the contract all the same; and the clock that tests move."""

from __future__ import annotations

import random

import pytest

from pxrs_ray.clock import Clock
from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.model import Member, MemberWrite, Outcome, Record, Write, WriteKind
from pxrs_ray.store.memory import MemoryRegistry, MemoryStore
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.testing.faults import Faults, FaultyStore
from pxrs_ray.testing.manual_clock import ManualClock
from pxrs_ray.testing.store_contract import StoreContract

CLAIM = Write(WriteKind.CLAIM, 0, "A", 1, 0, version=2)


class TestWithoutFaults(StoreContract):
    def setup_method(self) -> None:
        self.registry = MemoryRegistry()
        super().setup_method()

    def open_store(self) -> RegistryStore:
        return FaultyStore(MemoryStore(self.registry), 1)


def stores(faults: Faults) -> tuple[MemoryStore, FaultyStore]:
    inner = MemoryStore()
    inner.lead("g", 2, "test")
    return inner, FaultyStore(inner, 7, faults)


def epoch(store: RegistryStore) -> int:
    snapshot = store.load("g")
    assert snapshot is not None
    return snapshot.partitions[0].epoch


@pytest.mark.parametrize(
    ("faults", "done"),
    [
        (Faults(refused=1.0), 0),
        (Faults(lost_answer=1.0), 1),
        (Faults(late=1.0), 0),
    ],
    ids=repr,
)
def test_what_is_unknown_to_the_caller_was_done_or_not(faults: Faults, done: int) -> None:
    inner, faulty = stores(faults)
    with pytest.raises(StoreUnavailable):
        faulty.write("g", 1, [CLAIM])
    assert epoch(inner) == done


def test_what_is_late_arrives() -> None:
    inner, faulty = stores(Faults(late=1.0))
    with pytest.raises(StoreUnavailable):
        faulty.write("g", 1, [CLAIM])
    assert faulty.deliver_late() == 1 and epoch(inner) == 1
    assert faulty.deliver_late() == 0


def test_a_batch_may_be_done_in_part() -> None:
    seen = set()
    for seed in range(20):
        inner = MemoryStore()
        inner.lead("g", 2, "test")
        faulty = FaultyStore(inner, seed, Faults(partial=1.0))
        with pytest.raises(StoreUnavailable):
            faulty.write("g", 1, [CLAIM, Write(WriteKind.CLAIM, 1, "A", 1, 0, version=3)])
        snapshot = inner.load("g")
        assert snapshot is not None
        seen.add(tuple(row.epoch for row in snapshot.partitions))
    assert seen == {(0, 0), (1, 0), (1, 1)}


def test_a_store_that_is_down_answers_nothing() -> None:
    _, faulty = stores(Faults())
    faulty.down = True
    for call in (
        lambda: faulty.load("g"),
        lambda: faulty.groups(),
        lambda: faulty.lead("g", 2, "x"),
        lambda: faulty.write("g", 1, []),
        lambda: faulty.renew("g", 1, [], 5),
        lambda: faulty.documents("g"),
    ):
        with pytest.raises(StoreUnavailable):
            call()
    faulty.down = False
    assert faulty.groups() == ("g",)


def test_delays_are_drawn_and_slept() -> None:
    slept: list[int] = []
    faulty = FaultyStore(MemoryStore(), 3, Faults(delay_ms_max=40), sleep_ms=slept.append)
    for _ in range(50):
        faulty.groups()
    assert len(slept) == 50 and min(slept) >= 0 and 20 < max(slept) <= 40


def test_the_same_seed_fails_alike() -> None:
    def told(seed: int) -> list[bool]:
        faulty = FaultyStore(MemoryStore(), seed, Faults(refused=0.5))
        answers = []
        for _ in range(40):
            try:
                answers.append(faulty.groups() == ())
            except StoreUnavailable:
                answers.append(False)
        return answers

    assert told(5) == told(5) != told(6)


@pytest.mark.parametrize("seed", range(20))
def test_repeating_until_it_is_known_ends_where_no_faults_would(seed: int) -> None:
    records: list[Record] = [
        MemberWrite("joined", Member("A", 1), 100, 2),
        Write(WriteKind.CLAIM, 0, "A", 1, 0, version=3),
        Write(WriteKind.COMMIT, 0, "A", 1, 1, 5),
        Write(WriteKind.RELEASE, 0, "A", 1, 1, version=4),
        Write(WriteKind.RESET, 0, None, 0, 2, 3, version=5),
        Write(WriteKind.CLAIM, 0, "A", 1, 3, version=6),
        Write(WriteKind.COMMIT, 0, "A", 1, 4, 9),
    ]
    inner, calm = MemoryStore(now_ms=lambda: 5), MemoryStore(now_ms=lambda: 5)
    for store in (inner, calm):
        store.lead("g", 2, "test")
    faulty = FaultyStore(inner, seed, Faults(0.2, 0.2, 0.2, 0.2))
    split = random.Random(seed).randint(1, len(records) - 1)
    for batch in (records[:split], records[split:]):
        _write_until_known(faulty, batch)
        assert set(calm.write("g", 1, batch)) == {Outcome.APPLIED}
    faulty.deliver_late()
    assert inner.load("g") == calm.load("g")
    assert inner.changes("g", 0) == calm.changes("g", 0)


def _write_until_known(store: RegistryStore, batch: list[Record]) -> None:
    for _ in range(1_000):
        try:
            store.write("g", 1, batch)
            return
        except StoreUnavailable:
            continue
    pytest.fail("never known")


def test_the_manual_clock_moves_only_by_hand() -> None:
    clock: Clock = ManualClock(5, 1_000)
    assert clock.now() == clock.now()
    assert isinstance(clock, ManualClock)
    moment = clock.advance(20)
    assert (moment.monotonic_ms, moment.wall_ms) == (25, 1_020)
    clock.jump_wall(-500)
    assert (clock.now().monotonic_ms, clock.now().wall_ms) == (25, 520)
    with pytest.raises(AssertionError, match="backwards"):
        clock.advance(-1)
