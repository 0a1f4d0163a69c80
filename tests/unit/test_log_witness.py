"""The logs as witnesses of what their group's registry has given out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pxrs_ray.model import Epoch, PartitionId, PartitionRow
from pxrs_ray.steps import Do, carry_now
from pxrs_ray.topology.log_witness import AskFences, LogWitness, RaiseEpochs

ROWS = [PartitionRow(partition, epoch=4) for partition in range(3)]


def granted(
    seen: Mapping[PartitionId, Epoch], *refused: PartitionId
) -> tuple[Mapping[PartitionId, Epoch], LogWitness]:
    """Above which epochs these are granted anew, when the logs tell what is `seen`."""
    witness = LogWitness("q", "g", lambda: ROWS, lambda: False)
    witness.are_refused(refused)
    raised: dict[PartitionId, Epoch] = {}

    def make(step: Do[Any]) -> Any:
        if isinstance(step, AskFences):
            return seen
        assert isinstance(step, RaiseEpochs)
        raised.update(step.above)
        return None

    carry_now(witness.granting_anew(), make)
    return raised, witness


def test_who_is_refused_is_granted_its_partition_above_all_that_the_log_has_seen() -> None:
    raised, witness = granted({0: 9, 1: 2, 2: 0}, 0, 1, 2)
    assert raised == {0: 9, 1: 4, 2: 4}
    assert not witness.refusals


def test_who_is_refused_by_a_log_that_cannot_be_asked_now_waits() -> None:
    """The epoch that the log has seen may be the very next one."""
    raised, witness = granted({0: 9}, 0, 1)
    assert raised == {0: 9}
    assert set(witness.refusals) == {1}
    nobody, waits = granted({}, 1)
    assert not nobody
    assert set(waits.refusals) == {1}


def test_of_a_slot_that_has_begun_anew_its_own_logs_are_asked_and_no_others() -> None:
    asked: list[Do[Any]] = []

    def make(step: Do[Any]) -> Any:
        asked.append(step)
        return {}

    carry_now(LogWitness("q", "g", lambda: ROWS, lambda: False).checking(2), make)
    assert asked == [AskFences(slot=2)]
