"""The Oracle store and outcomes that nobody was told: calls cut off, writes that land late, crowds.

The single faults are in test_oracle_store_faults.py. What is promised: a lost answer is never told
as a refusal, what was accepted stays, what lands late does no harm, and nothing is left open.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.model import Member, MemberWrite, Outcome, PartitionRow, Write, WriteKind
from pxrs_ray.store import RegistryStore, open_store
from tests.contract.oracle_database import Database, eventually
from tests.contract.oracle_fixture import healed
from tests.contract.oracle_stand_in import Fault, OracleStandIn

pytestmark = pytest.mark.service

APPLIED = Outcome.APPLIED
GROUP = "unknown"
PARTITIONS = 16
PATIENT_MS = 20_000
HASTY_MS = 900
CROWD_MS = 2_000
WAIT_SECONDS_MAX = 6.0


class Led:
    """One coordinator of the group: a store, its generation, and its next version."""

    def __init__(self, store: RegistryStore) -> None:
        self.store = store
        store.create()
        snapshot = store.lead(GROUP, PARTITIONS, "test")
        self.generation = snapshot.generation
        self.version = snapshot.last_version

    def claim(self, partition: int, owner: str = "A", epoch: int = 0) -> Outcome:
        self.version += 1
        claim = Write(WriteKind.CLAIM, partition, owner, 1, epoch, version=self.version)
        return self.write(claim)[0]

    def commit(self, partition: int, checkpoint: int, epoch: int = 1) -> Outcome:
        return self.write(Write(WriteKind.COMMIT, partition, "A", 1, epoch, checkpoint))[0]

    def write(self, *records: Write | MemberWrite) -> list[Outcome]:
        return self.store.write(GROUP, self.generation, records)

    def row(self, partition: int) -> PartitionRow:
        snapshot = self.store.load(GROUP)
        assert snapshot is not None
        return snapshot.partitions[partition]


@pytest.fixture
def opened(database: Database) -> Iterator[Callable[[int], RegistryStore]]:
    """Opens stores on one empty database; `database` checks that they give everything back."""
    stores: list[RegistryStore] = []

    def open_one(deadline_ms: int) -> RegistryStore:
        stores.append(open_store(database.url, deadline_ms=deadline_ms))
        return stores[-1]

    yield open_one
    healed(database.server)
    for store in stores:
        store.close()


@pytest.fixture
def led(opened: Callable[[int], RegistryStore]) -> Led:
    return Led(opened(PATIENT_MS))


@pytest.mark.parametrize("when", ["before", "after"])
def test_members_and_documents_bear_a_lost_commit(
    stand_in: OracleStandIn, led: Led, when: Any
) -> None:
    joined = MemberWrite("joined", Member("A", 1), 60_000, led.version + 1)
    lost: list[Callable[[], object]] = [
        lambda: led.write(joined),
        lambda: led.store.renew(GROUP, led.generation, [("A", 1)], 60_000),
        lambda: led.store.put_document(GROUP, led.generation, "plan", "x" * 5_000),
        lambda: led.store.trim_changes(GROUP, led.generation, 1),
    ]
    answers = []
    for call in lost:
        stand_in.arm(Fault("cut", at="commit", when=when))
        answers.append(call())
    assert answers == [[APPLIED], [APPLIED], APPLIED, None]
    assert dict(led.store.documents(GROUP)) == {"plan": "x" * 5_000}
    snapshot = led.store.load(GROUP)
    assert snapshot is not None
    assert snapshot.members == (Member("A", 1),)
    assert [change.version for change in led.store.changes(GROUP, 0)] == [snapshot.last_version]


@pytest.mark.parametrize("when", ["before", "after"])
def test_leading_bears_a_lost_commit(
    stand_in: OracleStandIn, led: Led, opened: Callable[[int], RegistryStore], when: Any
) -> None:
    assert led.claim(0) is APPLIED
    stand_in.arm(Fault("cut", at="commit", when=when))
    next_one = Led(opened(PATIENT_MS))
    assert next_one.generation > led.generation
    assert led.commit(0, 5) is Outcome.FENCED
    assert next_one.commit(0, 5) is APPLIED
    assert next_one.row(0).checkpoint == 5


def _updates(stand_in: OracleStandIn) -> int:
    return sum(line.startswith("UPDATE pxrs_partition") for line in stand_in.log())


def test_a_server_that_answers_late_is_broken_off_and_asked_again(
    stand_in: OracleStandIn, opened: Callable[[int], RegistryStore]
) -> None:
    hasty = Led(opened(HASTY_MS))
    assert hasty.claim(0) is APPLIED
    stand_in.arm(Fault("late", seconds=30, matching="pxrs_partition"))
    started = time.monotonic()
    assert hasty.commit(0, 4) is APPLIED
    assert time.monotonic() - started < WAIT_SECONDS_MAX
    assert hasty.row(0).checkpoint == 4


def test_a_row_that_someone_else_locks_is_not_waited_for_past_the_deadline(
    opened: Callable[[int], RegistryStore], database: Database
) -> None:
    hasty = Led(opened(HASTY_MS))
    assert hasty.claim(0) is APPLIED
    with database.connect() as other:
        other.cursor().execute("UPDATE pxrs_partition SET epoch = epoch")
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            hasty.commit(0, 4)
        assert time.monotonic() - started < WAIT_SECONDS_MAX
        other.rollback()
    assert hasty.commit(0, 5) is APPLIED


def test_a_crowd_of_calls_ends_at_the_deadline_too(
    opened: Callable[[int], RegistryStore], database: Database
) -> None:
    """More calls than connections: those that wait for one count their time as well."""
    hasty = Led(opened(CROWD_MS))
    assert [hasty.claim(partition) for partition in range(PARTITIONS)] == [APPLIED] * PARTITIONS

    def seconds_until_refused(partition: int) -> float:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            hasty.commit(partition, 4)
        return time.monotonic() - started

    with database.connect() as other:
        other.cursor().execute("UPDATE pxrs_partition SET epoch = epoch")
        with ThreadPoolExecutor(PARTITIONS) as pool:
            waited = list(pool.map(seconds_until_refused, range(PARTITIONS)))
        other.rollback()
    # Without a permit's limit, the last ones would take almost two deadlines.
    assert max(waited) < 1.6 * CROWD_MS / 1_000
    assert hasty.commit(0, 5) is APPLIED


def test_a_write_that_lands_late_does_no_harm(
    stand_in: OracleStandIn, opened: Callable[[int], RegistryStore]
) -> None:
    hasty = Led(opened(HASTY_MS))
    assert hasty.claim(0) is APPLIED
    fired = stand_in.fired()
    stand_in.arm(Fault("late", seconds=1.5, deaf=True, matching="pxrs_partition"))
    with pytest.raises(StoreUnavailable):
        hasty.commit(0, 4)
    assert stand_in.fired() == fired + 1
    assert hasty.commit(0, 9) is APPLIED
    # What lands now is the write of 4, on a row that has gone on to 9.
    eventually(lambda: stand_in.sessions() <= 1, "the deaf session has ended")
    assert hasty.row(0).checkpoint == 9


def test_a_frozen_server_is_not_waited_for(
    stand_in: OracleStandIn, opened: Callable[[int], RegistryStore]
) -> None:
    hasty = Led(opened(HASTY_MS))
    assert hasty.claim(0) is APPLIED
    stand_in.clear_log()
    stand_in.freeze()
    for _ in range(2):  # with a connection of before, and without one
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            hasty.commit(0, 4)
        assert time.monotonic() - started < WAIT_SECONDS_MAX
    stand_in.thaw()
    assert hasty.commit(0, 5) is APPLIED
    # The commit of 4 is executed now, by the session that was sent it before the freeze.
    eventually(lambda: _updates(stand_in) >= 2, "the commit of before is executed")
    assert hasty.row(0).checkpoint == 5


def test_waiting_writers_are_served_when_it_comes_back(stand_in: OracleStandIn, led: Led) -> None:
    assert led.claim(0) is APPLIED
    stand_in.go_down()
    outcomes: list[Outcome] = []
    waiting = threading.Thread(target=lambda: outcomes.append(led.commit(0, 6)))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    stand_in.come_up()
    waiting.join(PATIENT_MS / 1_000)
    assert outcomes == [APPLIED]
    assert led.row(0).checkpoint == 6


@pytest.mark.parametrize("seed", range(3))
def test_accepted_commits_survive_any_mix_of_faults(
    stand_in: OracleStandIn, led: Led, seed: int
) -> None:
    """Four writers, each with partitions of its own, while faults fall on whom they will."""
    for partition in range(PARTITIONS):
        assert led.claim(partition) is APPLIED
    dice = random.Random(seed)
    accepted: list[dict[int, int]] = [{} for _ in range(4)]
    refused: list[Outcome] = []

    def work(worker: int) -> None:
        mine = range(worker, PARTITIONS, 4)
        for checkpoint in range(1, 16):
            commits = [Write(WriteKind.COMMIT, part, "A", 1, 1, checkpoint) for part in mine]
            for commit, outcome in zip(commits, led.write(*commits), strict=True):
                if outcome is APPLIED:
                    accepted[worker][commit.partition] = checkpoint
                else:
                    refused.append(outcome)

    def fault() -> Fault:
        when = dice.choice(["before", "after"])
        at: Any = dice.choice(["execute", "commit", "ping"])
        skip = dice.randrange(6)
        if dice.random() < 0.3 and at == "execute":
            return Fault("error", code=dice.choice([60, 8177, 3113]), skip=skip)
        return Fault("cut", at=at, when=when, skip=skip)  # type: ignore[arg-type]

    fired = stand_in.fired()
    for _ in range(24):
        stand_in.arm(fault())
    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert stand_in.fired() > fired
    stand_in.disarm()
    assert refused == []
    snapshot = led.store.load(GROUP)
    assert snapshot is not None
    stored = {row.partition: row.checkpoint for row in snapshot.partitions}
    assert stored == dict.fromkeys(range(PARTITIONS), 15)
    assert {part: at for one in accepted for part, at in one.items()} == stored
