"""Grace periods, seeks, configuration and restarts: what is changed on purpose."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import CoordinatorDeposed, NotFound
from pxrs_ray.group.events import (
    AssignmentChanged,
    Commit,
    Configure,
    Died,
    Heartbeat,
    Leave,
    PartitionProgress,
    Rebalance,
    Seek,
)
from pxrs_ray.group.transitions import MemberPhase
from pxrs_ray.model import Member, MemberWrite, Outcome, Progress, WriteKind
from tests.unit.driven_group import DrivenGroup, group_of

# --- static membership ----------------------------------------------------------------------------


def test_a_member_that_returns_within_its_grace_keeps_its_partitions() -> None:
    group = group_of("A", "B", grace_ms=5_000)
    mine = group.owners()["A"]
    group.commit("A", {mine[0]: 12})
    group.do(Died("A", 1, "killed"))
    assert group.owners() == {"B": group.owners()["B"]}, "nobody may act for it, nobody gets them"
    group.join("A", incarnation=2, grace_ms=5_000)
    assert group.owners()["A"] == mine and group.held("A")[mine[0]] == 12


def test_after_the_grace_period_its_partitions_are_handed_on() -> None:
    group = group_of("A", "B", grace_ms=700)
    group.do(Died("A", 1, "killed"))
    group.pass_time(400)
    group.do(Heartbeat("B", 1))
    assert group.counts() == [2]
    group.pass_time(400)
    assert group.owners() == {"B": [0, 1, 2, 3]}


def test_a_silent_member_gets_its_grace_as_well() -> None:
    group = group_of("A", grace_ms=700)
    group.pass_time(1_000)
    assert group.owners() == {} and group.core.state.members["A"].phase is MemberPhase.AWAY
    group.join("A", incarnation=2)
    assert group.counts() == [4]


def test_a_member_that_is_away_can_be_let_go() -> None:
    group = group_of("A", "B", grace_ms=60_000)
    group.do(Died("A", 1, "killed"))
    group.do(Leave("A", 1, "scaled down"))
    assert group.owners() == {"B": [0, 1, 2, 3]}


# --- seeks and configuration ----------------------------------------------------------------------


def test_a_seek_takes_back_resets_and_grants_again() -> None:
    group = group_of("A", "B")
    group.commit("A", {0: 40, 1: 41})
    group.do(Seek({0: 7}))
    assert group.row(0).checkpoint == 40, "the owner finishes what it is at"
    group.hand_back("A", checkpoints={0: 42})
    assert group.held("A") == {0: 7, 1: 0}
    row = group.row(0)
    assert (row.owner, row.epoch, row.checkpoint) == ("A", 4, 7)
    assert group.row(1).epoch == 1


def test_a_seek_of_what_nobody_owns_is_done_at_once() -> None:
    group = DrivenGroup(2)
    decision = group.do(Seek({1: 30}))
    assert [r.kind for r in decision.records] == [WriteKind.RESET]
    assert group.row(1).checkpoint == 30


def test_the_last_of_two_seeks_counts() -> None:
    group = group_of("A", partitions=1)
    group.do(Seek({0: 5}))
    group.do(Seek({0: 6}))
    group.hand_back("A")
    assert group.held("A") == {0: 6}


def test_a_seek_past_a_hung_owner_is_done_at_the_deadline() -> None:
    group = group_of("A", partitions=1)
    group.do(Seek({0: 5}))
    for _ in range(6):
        group.pass_time(100)
        group.do(Heartbeat("A", 1))
    assert group.row(0).checkpoint == 5 and group.row(0).owner == "A"


def test_weights_move_partitions_and_are_kept_over_a_restart() -> None:
    group = group_of("A", "B", partitions=8)
    group.do(Configure(weights={"A": 3.0}))
    group.hand_back()
    assert {name: len(owned) for name, owned in group.owners().items()} == {"A": 6, "B": 2}
    before = list(group.core.state.rows)
    group.lead()
    assert group.core.state.rows == before


def test_a_new_weight_is_no_sign_of_life() -> None:
    group = group_of("A", "B")
    group.pass_time(600)
    group.do(Heartbeat("B", 1))
    group.do(Configure(weights={"A": 2.0}))
    group.pass_time(400)
    assert list(group.core.state.members) == ["B"]


def test_a_static_map_is_followed_and_left_again() -> None:
    group = group_of("A", "B")
    group.do(Configure(assignor="static", static_map={0: "B", 1: "B", 2: "B"}))
    group.hand_back()
    assert group.owners() == {"B": [0, 1, 2]}, "a partition that the map does not name rests"
    group.do(Configure(assignor="sticky"))
    group.hand_back()
    assert group.counts() == [2, 2]


def test_pausing_reaches_every_member_and_moves_nothing() -> None:
    group = group_of("A", "B")
    before = list(group.core.state.rows)
    group.do(Configure(paused=True))
    assert all(session.paused for session in group.sessions.values())
    assert group.sessions["A"].to_fetch(1) == {}
    group.do(Configure(paused=False))
    assert group.sessions["A"].to_fetch(1).keys() == {0, 1}
    assert group.core.state.rows == before


def test_a_rebalance_that_is_asked_for_moves_nothing_when_all_is_fair() -> None:
    group = group_of("A", "B")
    assert group.do(Rebalance()).records == ()


def test_new_lease_times_hold_from_the_next_sign_of_life() -> None:
    group = group_of("A")
    group.do(Configure(lease_ms=5_000))
    group.do(Heartbeat("A", 1))
    group.pass_time(4_000)
    assert group.counts() == [4]


# --- restarts -------------------------------------------------------------------------------------


def test_a_restart_alone_changes_no_ownership() -> None:
    group = group_of("A", "B", "C", partitions=8)
    before = list(group.core.state.rows)
    decision = group.lead()
    assert decision.records == () and group.core.state.rows == before
    told = {effect.member for effect in decision.effects if isinstance(effect, AssignmentChanged)}
    assert told == {"A", "B", "C"}


def test_a_restart_in_the_middle_of_a_hand_over_goes_on_with_it() -> None:
    group = group_of("A")
    group.join("B")
    group.lead()
    group.hand_back("A", checkpoints={2: 6, 3: 7})
    assert group.counts() == [2, 2]


def test_a_replaced_coordinator_does_not_judge_what_its_successor_granted() -> None:
    """Its 'fenced' would make the new owner drop the partition for good."""
    group = group_of("A", "B", partitions=2)
    old = group.core
    group.lead()
    group.do(Died("A", 1, "killed"))
    assert group.owners() == {"B": [0, 1]}
    epoch = group.row(0).epoch
    with pytest.raises(CoordinatorDeposed, match="generation 1 of g was replaced"):
        old.handle(Commit("B", 1, (PartitionProgress(0, epoch, Progress(5)),)), group.clock.now())
    with pytest.raises(CoordinatorDeposed):
        old.handle(Heartbeat("A", 1, (2, 0)), group.clock.now())
    assert group.commit("B", {0: 5}) == (Outcome.APPLIED,)


def test_a_restart_releases_what_an_unregistered_owner_holds() -> None:
    group = group_of("A")
    group.join("A", incarnation=2)
    snapshot = group.store.load("g")
    assert snapshot is not None
    # The registry as a coordinator leaves it that dies between a 'left' and what follows it.
    left = MemberWrite("left", Member("A", 2), 1_000, snapshot.last_version + 1)
    group.store.write("g", snapshot.generation, [left])
    group.lead()
    assert group.owners() == {}


def test_a_plan_says_what_would_move_and_changes_nothing() -> None:
    group = group_of("A", "B", partitions=8)
    before = group.everything()
    plan = group.core.plan("one more", add=[Member("C", 1)])
    assert sorted(plan.counts.values()) == [2, 3, 3] and len(plan.moves) == 2
    assert {move.target for move in plan.moves} == {"C"}
    assert all("more than its share" in move.reason for move in plan.moves)
    leaving = group.core.plan("one less", remove=["A"])
    assert {move.reason for move in leaving.moves} == {"A goes"} and len(leaving.moves) == 4
    assert group.core.plan("a newer incarnation", add=[Member("A", 2)]).moves == ()
    with pytest.raises(NotFound, match="no member 'Z'"):
        group.core.plan("nonsense", remove=["Z"])
    assert group.everything() == before
