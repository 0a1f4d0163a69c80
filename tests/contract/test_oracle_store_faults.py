"""The Oracle store when its database (the stand-in) loses connections, is slow or is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pxrs_ray.errors import StoreError, StoreSchemaError, StoreUnavailable
from pxrs_ray.model import Outcome, PartitionRow, Write, WriteKind
from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_checks.base import commit
from tests.contract.oracle_stand_in import Fault, OracleStandIn
from tests.contract.oracle_stand_in.faults import When
from tests.contract.store_faults import APPLIED, GROUP, unavailable_in_time

pytestmark = pytest.mark.service

DEADLINE_MS = 1_500
PATIENT_MS = 20_000


@contextmanager
def _led(stand_in: OracleStandIn, deadline_ms: int = PATIENT_MS) -> Iterator[RegistryStore]:
    """A store on a new database, whose one group is led and partitions 0 and 1 owned."""
    with open_store(stand_in.new_database(), deadline_ms=deadline_ms) as store:
        store.create()
        assert store.lead(GROUP, 4, "faults").generation == 1
        claims = [Write(WriteKind.CLAIM, p, "A", 1, 0, version=2 + p) for p in (0, 1)]
        assert store.write(GROUP, 1, claims) == APPLIED * 2
        stand_in.clear_log()
        yield store
        stand_in.disarm()


def _patient(store: RegistryStore, stand_in: OracleStandIn) -> RegistryStore:
    """Another store on the same registry, with time for what the slow calls left locked."""
    return open_store(store.describe().url.replace("***", stand_in.password))


def _row(store: RegistryStore, partition: int) -> PartitionRow:
    found = store.load(GROUP)
    assert found is not None
    return found.partitions[partition]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_commit_whose_answer_is_lost_is_found_out(
    stand_in: OracleStandIn, when: When, batch: int
) -> None:
    with _led(stand_in) as store:
        stand_in.arm(Fault("cut", "commit", when))
        records = [commit(p, 7) for p in range(batch)]
        assert store.write(GROUP, 1, records) == APPLIED * batch
        assert stand_in.fired() >= 1
        assert [_row(store, p).checkpoint for p in range(batch)] == [7] * batch


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_claim_whose_answer_is_lost_is_found_out(stand_in: OracleStandIn, when: When) -> None:
    with _led(stand_in) as store:
        stand_in.arm(Fault("cut", "commit", when))
        claim = Write(WriteKind.CLAIM, 2, "A", 1, 0, version=4)
        assert store.write(GROUP, 1, [claim]) == APPLIED
        assert _row(store, 2) == PartitionRow(2, "A", 1, 1)
        assert [change.version for change in store.changes(GROUP, 0)] == [1, 2, 3, 4]


@pytest.mark.parametrize("code", [60, 54, 8177, 1, 1653, 3113, 12514, 1033])
def test_errors_that_pass_are_sat_out(stand_in: OracleStandIn, code: int) -> None:
    with _led(stand_in) as store:
        stand_in.arm(Fault("error", "execute", code=code, matching="pxrs_partition", times=2))
        assert store.write(GROUP, 1, [commit(0, 7)]) == APPLIED
        assert _row(store, 0).checkpoint == 7


def test_errors_that_stay_are_told_at_once(stand_in: OracleStandIn) -> None:
    with _led(stand_in) as store:
        stand_in.arm(Fault("error", "execute", code=1031, matching="pxrs_partition"))
        with pytest.raises(StoreError, match="ORA-01031") as raised:
            store.write(GROUP, 1, [commit(0, 7)])
        assert not isinstance(raised.value, StoreUnavailable)
        assert store.write(GROUP, 1, [commit(0, 7)]) == APPLIED


@pytest.mark.parametrize("deaf", [False, True])
def test_a_slow_database_is_given_up_at_the_deadline(stand_in: OracleStandIn, deaf: bool) -> None:
    with _led(stand_in, DEADLINE_MS) as store:
        stand_in.arm(Fault("late", "execute", seconds=3, deaf=deaf, matching="UPDATE", times=5))
        unavailable_in_time(DEADLINE_MS, lambda: store.write(GROUP, 1, [commit(0, 7)]))
        stand_in.disarm()
        with _patient(store, stand_in) as patient:
            assert patient.write(GROUP, 1, [commit(0, 8)]) == APPLIED
        assert _row(store, 0).checkpoint == 8


def test_a_frozen_database_is_given_up_and_works_again(stand_in: OracleStandIn) -> None:
    with _led(stand_in, DEADLINE_MS) as store:
        stand_in.freeze()
        try:
            unavailable_in_time(DEADLINE_MS, lambda: store.write(GROUP, 1, [commit(0, 7)]))
        finally:
            stand_in.thaw()
        with _patient(store, stand_in) as patient:
            assert patient.write(GROUP, 1, [commit(0, 8)]) == APPLIED
            assert patient.load(GROUP) is not None


def test_while_it_is_down_calls_end_at_the_deadline_and_work_again_after(
    stand_in: OracleStandIn,
) -> None:
    with _led(stand_in, DEADLINE_MS) as store:
        stand_in.go_down()
        unavailable_in_time(DEADLINE_MS, lambda: store.write(GROUP, 1, [commit(0, 7)]))
        stand_in.come_up()
        assert store.write(GROUP, 1, [commit(0, 7)]) == APPLIED


def test_dropped_sessions_are_replaced(stand_in: OracleStandIn) -> None:
    with _led(stand_in) as store:
        assert stand_in.drop_sessions() >= 1
        assert store.write(GROUP, 1, [commit(0, 7), commit(1, 7)]) == APPLIED * 2


def test_a_batch_is_one_array_with_its_commit_and_a_count_a_row(stand_in: OracleStandIn) -> None:
    with _led(stand_in) as store:
        assert store.write(GROUP, 1, [commit(0, 7), commit(1, 7), commit(2, 7)]) == [
            Outcome.APPLIED,
            Outcome.APPLIED,
            Outcome.FENCED,
        ]
        updates = [line for line in stand_in.log() if "UPDATE pxrs_partition" in line]
        assert len(updates) == 1


def test_a_schema_that_is_not_there_is_told(stand_in: OracleStandIn) -> None:
    with (
        open_store(stand_in.new_database(), deadline_ms=PATIENT_MS) as store,
        pytest.raises(StoreSchemaError, match="ORA-00942"),
    ):
        store.load(GROUP)


def test_a_wrong_password_is_told_without_it(stand_in: OracleStandIn) -> None:
    url = stand_in.new_database().replace(f":{stand_in.password}@", ":wrong-secret@")
    with open_store(url) as store, pytest.raises(StoreError, match="ORA-01017") as raised:
        store.create()
    assert "wrong-secret" not in str(raised.value)
