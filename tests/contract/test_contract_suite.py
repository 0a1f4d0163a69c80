"""The contract suite itself: it catches stores that break a promise, each by the right test."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.model import Change, Member, MemberWrite, Outcome, Record, Snapshot, Write, WriteKind
from pxrs_ray.store.memory import MemoryRegistry, MemoryStore
from pxrs_ray.testing.store_contract import StoreContract, contract_tests, run_contract

DOCUMENTED = 16
EXAMPLES = Path(__file__).parents[2] / "examples"


class IgnoresGeneration(MemoryStore):
    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        found = self.load(group)
        newest = found.generation if found else generation
        return super().write(group, newest, records)


class Rewrites(MemoryStore):
    """Changes what it is asked to write, one record after the other."""

    def change(self, write: Write, found: Snapshot) -> Write:
        raise NotImplementedError

    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        outcomes = []
        for record in records:
            found = self.load(group)
            if isinstance(record, Write) and found and record.partition < len(found.partitions):
                record = self.change(record, found)
            outcomes += super().write(group, generation, [record])
        return outcomes


class IgnoresEpoch(Rewrites):
    def change(self, write: Write, found: Snapshot) -> Write:
        return replace(write, epoch=found.partitions[write.partition].epoch)


class IgnoresIncarnation(Rewrites):
    def change(self, write: Write, found: Snapshot) -> Write:
        row = found.partitions[write.partition]
        same = row.owner is not None and row.owner == write.owner
        return replace(write, incarnation=row.incarnation) if same else write


class IgnoresOwner(Rewrites):
    def change(self, write: Write, found: Snapshot) -> Write:
        row = found.partitions[write.partition]
        if row.owner is None or write.kind is WriteKind.CLAIM:
            return write
        return replace(write, owner=row.owner, incarnation=row.incarnation)


class GoesDown(Rewrites):
    def change(self, write: Write, found: Snapshot) -> Write:
        row = self._registry.groups[found.group].rows[write.partition]
        if write.kind is WriteKind.COMMIT:
            row.checkpoint = min(row.checkpoint, write.checkpoint)
        return write


class ForgetsDetail(Rewrites):
    def change(self, write: Write, found: Snapshot) -> Write:
        return replace(write, detail="", attempts=0)


class RefusesRepetitions(MemoryStore):
    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        before = self.load(group)
        outcomes = super().write(group, generation, records)
        commits = all(isinstance(r, Write) and r.kind is WriteKind.COMMIT for r in records)
        if before == self.load(group) and not commits:
            return [Outcome.FENCED for _ in outcomes]
        return outcomes


class RacyClaims(MemoryStore):
    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        (record, *others) = records
        if others or not isinstance(record, Write) or record.kind is not WriteKind.CLAIM:
            return super().write(group, generation, records)
        found = self.load(group)
        row = found.partitions[record.partition] if found else None
        free = row is not None and row.owner is None and row.epoch == record.epoch
        time.sleep(0.001)
        super().write(group, generation, records)
        return [Outcome.APPLIED if free else Outcome.FENCED]


class ReadsTheWallClock(MemoryStore):
    def __init__(self, registry: MemoryRegistry) -> None:
        registry.now_ms = lambda: int(time.time() * 1_000)
        super().__init__(registry)


class KeepsDeadMembersAlive(MemoryStore):
    def expired(self, group: str) -> tuple[Any, ...]:
        found = self.load(group)
        known = {member.member for member in found.members} if found else set()
        return tuple(row for row in super().expired(group) if row.owner not in known)


class LosesHistory(MemoryStore):
    def changes(self, group: str, after_version: int, limit: int = 1_000) -> tuple[Change, ...]:
        return super().changes(group, after_version, limit)[1:]


class ShortensNames(MemoryStore):
    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        cut = [
            replace(r, member=Member(r.member.member[:100], r.member.incarnation))
            if isinstance(r, MemberWrite)
            else r
            for r in records
        ]
        return super().write(group, generation, cut)


class LeavesAThread(MemoryStore):
    ended = threading.Event()

    def __init__(self, registry: MemoryRegistry) -> None:
        super().__init__(registry)
        threading.Thread(target=self.ended.wait, daemon=True).start()


BROKEN = {
    IgnoresGeneration: "test_an_old_generation_is_refused_for_every_mutator",
    IgnoresEpoch: "test_checkpoint_with_stale_epoch_is_rejected",
    IgnoresIncarnation: "test_an_old_incarnation_is_refused",
    IgnoresOwner: "test_checkpoint_by_non_owner_is_rejected",
    GoesDown: "test_checkpoints_never_go_down",
    ForgetsDetail: "test_attempts_and_detail_survive_a_hand_over",
    RefusesRepetitions: "test_each_write_repeated_is_applied_once",
    RacyClaims: "test_sixteen_threads_claim_and_exactly_one_wins",
    ReadsTheWallClock: "test_a_client_clock_an_hour_wrong_changes_nothing",
    KeepsDeadMembersAlive: "test_stale_heartbeat_is_a_zombie",
    LosesHistory: "test_history_has_every_change_once_and_in_order",
    ShortensNames: "test_names_of_any_characters_come_back_as_they_were",
    LeavesAThread: "test_describe_and_close",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(StoreContract, "wait_s_max", 2.0)
    LeavesAThread.ended.clear()
    yield
    LeavesAThread.ended.set()


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_promise_is_caught(
    broken: type[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    catching = BROKEN[broken]
    only = "pxrs_ray.testing.store_contract.contract_tests"
    monkeypatch.setattr(only, lambda: (catching,))
    registry = MemoryRegistry()
    (result,) = run_contract(lambda: broken(registry), claim_race_rounds=50)
    assert not result.passed, f"{catching} let {broken.__name__} pass"
    sound = MemoryRegistry()
    (result,) = run_contract(lambda: MemoryStore(sound), claim_race_rounds=50)
    assert result.passed, result.failure


def test_the_documents_sixteen_tests_are_in_it() -> None:
    from pxrs_ray.testing.store_checks.documented import DocumentedChecks

    documented = [name for name in vars(DocumentedChecks) if name.startswith("test_")]
    assert len(documented) == DOCUMENTED
    assert set(documented) <= set(contract_tests())


def test_a_store_that_cannot_be_opened_fails_every_test() -> None:
    def no_store() -> MemoryStore:
        raise OSError("no route to host")

    results = run_contract(no_store)
    assert len(results) == len(contract_tests())
    assert all("no route to host" in result.failure for result in results)


def test_the_example_of_a_store_of_ones_own_passes() -> None:
    command = [sys.executable, str(EXAMPLES / "own_store.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(contract_tests())
    assert done.stdout.endswith(f"{count} of {count} promises kept\n")
