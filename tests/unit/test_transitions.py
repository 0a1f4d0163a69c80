"""Every pair of a state and an event, of both tables: what is legal, and that nothing else is."""

from __future__ import annotations

import copy
import itertools

import pytest

from pxrs_ray.errors import IllegalTransition
from pxrs_ray.group.group_state import GroupState
from pxrs_ray.group.transitions import (
    MEMBER_TABLE,
    PARTITION_TABLE,
    MemberEvent,
    MemberPhase,
    PartitionEvent,
    PartitionPhase,
    advance,
)
from pxrs_ray.model import Member, MemberWrite, PartitionRow, Snapshot, Write, WriteKind

# Written down a second time, on purpose: a change of a table has to be meant.
LEGAL_PARTITION = {
    ("unowned", "claim"): "owned",
    ("unowned", "reset"): "unowned",
    ("owned", "commit"): "owned",
    ("owned", "revoke"): "revoking",
    ("owned", "release"): "unowned",
    ("revoking", "commit"): "revoking",
    ("revoking", "release"): "unowned",
}
LEGAL_MEMBER = {
    ("gone", "join"): "active",
    ("active", "join"): "active",
    ("active", "act"): "active",
    ("active", "leave"): "leaving",
    ("active", "die"): "away",
    ("leaving", "join"): "active",
    ("leaving", "act"): "leaving",
    ("leaving", "leave"): "leaving",
    ("leaving", "die"): "gone",
    ("leaving", "finish"): "gone",
    ("away", "join"): "active",
    ("away", "leave"): "gone",
    ("away", "grace_over"): "gone",
}


@pytest.mark.parametrize(
    ("phase", "event"), list(itertools.product(PartitionPhase, PartitionEvent)), ids=str
)
def test_every_partition_pair(phase: PartitionPhase, event: PartitionEvent) -> None:
    expected = LEGAL_PARTITION.get((phase.value, event.value))
    if expected is None:
        with pytest.raises(IllegalTransition, match=f"is {phase.value}: it cannot {event.value}"):
            advance(PARTITION_TABLE, phase, event, "partition 3")
    else:
        assert advance(PARTITION_TABLE, phase, event, "partition 3").value == expected


@pytest.mark.parametrize(
    ("phase", "event"), list(itertools.product(MemberPhase, MemberEvent)), ids=str
)
def test_every_member_pair(phase: MemberPhase, event: MemberEvent) -> None:
    expected = LEGAL_MEMBER.get((phase.value, event.value))
    if expected is None:
        with pytest.raises(IllegalTransition, match=f"is {phase.value}: it cannot {event.value}"):
            advance(MEMBER_TABLE, phase, event, "member A")
    else:
        assert advance(MEMBER_TABLE, phase, event, "member A").value == expected


def state_in(phase: PartitionPhase) -> GroupState:
    row = PartitionRow(0, epoch=4, checkpoint=7)
    if phase is not PartitionPhase.UNOWNED:
        row = PartitionRow(0, "A", 1, 5, 7)
    state = GroupState(Snapshot("g", 1, (row,), (Member("A", 1),), 0), 0)
    if phase is PartitionPhase.REVOKING:
        state.revoke(0, 99)
    assert state.phase(0) is phase
    return state


def everything(state: GroupState) -> object:
    return copy.deepcopy(vars(state))


@pytest.mark.parametrize(
    ("phase", "kind"), list(itertools.product(PartitionPhase, WriteKind)), ids=str
)
def test_applying_each_kind_of_record_in_each_phase(phase: PartitionPhase, kind: WriteKind) -> None:
    state = state_in(phase)
    before = everything(state)
    owned = kind in (WriteKind.RELEASE, WriteKind.COMMIT, WriteKind.CLAIM)
    record = Write(
        kind,
        0,
        "A" if owned else None,
        1 if owned else 0,
        state.rows[0].epoch,
        9,
        version=0 if kind is WriteKind.COMMIT else 1,
    )
    expected = LEGAL_PARTITION.get((phase.value, kind.value))
    if expected is None:
        with pytest.raises(IllegalTransition):
            state.apply(record)
        assert everything(state) == before
    else:
        state.apply(record)
        assert state.phase(0).value == expected
        assert state.rows[0].checkpoint == (9 if kind in (WriteKind.COMMIT, WriteKind.RESET) else 7)
        assert state.rows[0].epoch == before["rows"][0].epoch + (kind is not WriteKind.COMMIT)  # type: ignore[index]


@pytest.mark.parametrize("phase", [PartitionPhase.UNOWNED, PartitionPhase.REVOKING], ids=str)
def test_asking_back_what_is_not_owned_or_asked_back_already(phase: PartitionPhase) -> None:
    state = state_in(phase)
    before = everything(state)
    with pytest.raises(IllegalTransition):
        state.revoke(0, 5)
    assert everything(state) == before


def test_a_record_of_another_epoch_is_illegal() -> None:
    state = state_in(PartitionPhase.OWNED)
    before = everything(state)
    with pytest.raises(IllegalTransition, match="at epoch 5, the record at 4"):
        state.apply(Write(WriteKind.COMMIT, 0, "A", 1, 4, 8))
    assert everything(state) == before


def test_checkpoints_never_fall_and_versions_have_no_gap() -> None:
    state = state_in(PartitionPhase.OWNED)
    with pytest.raises(AssertionError, match="never fall"):
        state.apply(Write(WriteKind.COMMIT, 0, "A", 1, 5, 6))
    with pytest.raises(AssertionError, match="no gap"):
        state.apply(Write(WriteKind.RELEASE, 0, "A", 1, 5, version=2))


def test_a_member_that_owns_something_cannot_be_struck_off() -> None:
    state = state_in(PartitionPhase.OWNED)
    with pytest.raises(AssertionError, match="owns nothing"):
        state.apply(MemberWrite("left", Member("A", 1), 10, 1))
