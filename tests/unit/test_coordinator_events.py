"""What each event does, and that a refused one changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pxrs_ray.errors import CoordinatorDeposed, Fenced, NotFound, UnknownMember, UsageError
from pxrs_ray.group.events import (
    Commit,
    Configure,
    Died,
    Event,
    FenceReaders,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Release,
    Seek,
    Tick,
)
from pxrs_ray.model import Member, Outcome, Progress, WriteKind
from tests.unit.driven_group import SHORT, DrivenGroup, group_of

# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Heartbeat("C", 1), UnknownMember),
        (Heartbeat("A", 1), UnknownMember),
        (Heartbeat("A", 3), UnknownMember),
        (Heartbeat("away", 1), UnknownMember),
        (Commit("A", 1, (PartitionProgress(0, 1, Progress(5)),)), UnknownMember),
        (Commit("away", 1, ()), UnknownMember),
        (Release("gone", 1, ()), UnknownMember),
        (Leave("A", 1), UnknownMember),
        (Leave("away", 2), UnknownMember),
        (Join((Member("A", 1),)), Fenced),
        (Join((Member("gone", 1),)), Fenced),
        (Join((Member("away", 1),)), Fenced),
        (Join(()), UsageError),
        (Join((Member("X", 1), Member("X", 2))), UsageError),
        (Join((Member("new", 1), Member("A", 1))), Fenced),
        (Configure(assignor="stiky"), UsageError),
        (Configure(assignor="static"), UsageError),
        (Configure(assignor="static", static_map={99: "A"}), UsageError),
        (Configure(weights={"nobody": 1.0}), NotFound),
        (Configure(weights={"A": 0.0}), UsageError),
        (Heartbeat("B", 1, (9, 0)), CoordinatorDeposed),
        (
            Commit(
                "B",
                1,
                (PartitionProgress(2, 1, Progress(5)), PartitionProgress(0, 99, Progress(5))),
            ),
            CoordinatorDeposed,
        ),
        (Release("B", 1, (PartitionProgress(0, 99, Progress(5)),)), CoordinatorDeposed),
        (Seek({9: 0}), NotFound),
        (Seek({0: 1, 1: -1}), UsageError),
    ],
    ids=repr,
)
def test_a_refused_event_changes_nothing(event: Event, error: type[Exception]) -> None:
    group = group_of("A", "B", "gone")
    group.join("A", incarnation=2)
    group.join("away", grace_ms=900)
    group.hand_back()
    group.do(Died("away", 1, "x"))
    group.do(Leave("gone", 1))
    group.hand_back("gone")
    before = group.everything()
    with pytest.raises(error):
        group.core.handle(event, group.clock.now())
    assert group.everything() == before


def test_a_misspelt_assignor_is_told_the_right_name() -> None:
    with pytest.raises(UsageError, match="sticky"):
        group_of("A").do(Configure(assignor="stiky"))


def test_each_row_of_a_commit_has_its_own_outcome() -> None:
    group = group_of("A", "B")
    rows = (
        PartitionProgress(0, 1, Progress(5)),
        PartitionProgress(1, 0, Progress(5)),
        PartitionProgress(2, 1, Progress(5)),
        PartitionProgress(99, 1, Progress(5)),
        PartitionProgress(0, 1, Progress(4)),
    )
    reply = group.do(Commit("A", 1, rows)).reply
    assert reply is not None
    applied, fenced, behind = Outcome.APPLIED, Outcome.FENCED, Outcome.BEHIND
    assert reply.outcomes == (applied, fenced, fenced, fenced, behind)
    assert group.checkpoints(range(4)) == [5, 0, 0, 0]


def test_a_commit_that_changes_nothing_is_no_record() -> None:
    group = group_of("A")
    group.commit("A", {0: 5})
    again = group.do(Commit("A", 1, (PartitionProgress(0, 1, Progress(5)),)))
    assert again.records == () and again.after == group.core.records_emitted
    assert again.reply is not None and again.reply.outcomes == (Outcome.APPLIED,)


def test_attempts_and_detail_survive_a_hand_over() -> None:
    group = group_of("A")
    group.do(Commit("A", 1, (PartitionProgress(3, 1, Progress(7, attempts=2, detail="poison")),)))
    group.do(Died("A", 1, "killed"))
    group.join("B")
    grant = group.core.assignment("B").grants[3]
    assert (grant.checkpoint, grant.attempts, grant.detail) == (7, 2, "poison")


# --- heartbeats and joins -------------------------------------------------------------------------


def test_a_heartbeat_brings_the_assignment_only_to_who_has_not_seen_it() -> None:
    group = group_of("A")
    newest = group.core.assignment("A")
    fresh = group.do(Heartbeat("A", 1, (newest.generation, newest.sequence)))
    assert fresh.reply is not None and fresh.reply.assignment is None and fresh.after == 0
    stale = group.do(Heartbeat("A", 1, (newest.generation, newest.sequence - 1)))
    assert stale.reply is not None and stale.reply.assignment == newest
    assert stale.after == group.core.records_emitted


def test_a_repeated_join_is_a_sign_of_life_and_nothing_else() -> None:
    group = group_of("A")
    for _ in range(5):
        group.pass_time(500)
        assert group.do(Join((Member("A", 1),))).records == ()
    assert group.counts() == [4]


def test_several_members_join_as_one_change() -> None:
    group = DrivenGroup(6)
    decision = group.join("A", "B", "C")
    claims = [r for r in decision.records if getattr(r, "kind", "") is WriteKind.CLAIM]
    assert len(claims) == 6 and group.counts() == [2, 2, 2]


def test_the_newest_incarnation_wins_at_once() -> None:
    group = group_of("A")
    group.commit("A", {0: 9})
    group.join("A", incarnation=2)
    assert [d.incarnation for d in group.dismissed] == [1]
    assert group.held("A") == {0: 9, 1: 0, 2: 0, 3: 0}
    assert {row.incarnation for row in group.core.state.rows} == {2}
    with pytest.raises(UnknownMember, match="newest incarnation: 2"):
        group.do(Heartbeat("A", 1))


def test_every_ownership_change_fences_readers_first() -> None:
    group = group_of("A")
    decision = group.do(Died("A", 1, "killed"))
    first = decision.effects[0]
    assert isinstance(first, FenceReaders) and first.epochs == {0: 2, 1: 2, 2: 2, 3: 2}


# --- leaving and dying ----------------------------------------------------------------------------


def test_a_member_leaves_only_when_it_has_handed_everything_back() -> None:
    group = group_of("A", "B")
    group.do(Leave("A", 1))
    assert group.core.assignment("A").leaving
    assert group.sessions["A"].leaving
    group.commit("A", {0: 3})
    group.hand_back("A", checkpoints={0: 4})
    assert group.owners() == {"B": [0, 1, 2, 3]} and group.row(0).checkpoint == 4
    again = group.do(Leave("A", 1))
    assert again.records == () and again.after == group.core.records_emitted


def test_a_leaving_member_that_owns_nothing_goes_at_once() -> None:
    group = group_of("A", "B", partitions=1)
    group.do(Leave("B", 1))
    assert list(group.core.state.members) == ["A"]


def test_a_leaving_member_that_dies_is_gone_even_with_grace() -> None:
    group = group_of("A", "B", grace_ms=5_000)
    group.do(Leave("A", 1))
    group.do(Died("A", 1, "killed"))
    assert group.owners() == {"B": [0, 1, 2, 3]}


def test_a_death_of_another_incarnation_is_no_news() -> None:
    group = group_of("A")
    group.join("A", incarnation=2)
    assert group.do(Died("A", 1, "late news")).records == ()
    assert group.counts() == [4]


def test_slow_is_not_dead_but_the_revoke_deadline_holds() -> None:
    group = group_of("A")
    group.join("B")
    for _ in range(4):
        group.pass_time(100)
        group.commit("A", {0: group.row(0).checkpoint + 1})
        group.do(Heartbeat("B", 1))
    assert group.counts() == [4], "it heartbeats and works: nothing is taken before the deadline"
    group.pass_time(100)
    assert group.counts() == [2, 2]
    taken = group.owners()["B"][0]
    late = group.do(Commit("A", 1, (PartitionProgress(taken, 1, Progress(50)),))).reply
    assert late is not None and late.outcomes == (Outcome.FENCED,)


def test_a_commit_keeps_the_lease() -> None:
    group = group_of("A")
    for _ in range(5):
        group.pass_time(700)
        group.commit("A", {})
    assert group.counts() == [4]
    group.pass_time(1_000)
    assert group.owners() == {}


def test_a_coordinator_that_stood_still_expires_nobody() -> None:
    group = group_of("A")
    group.clock.advance(60_000)
    assert group.do(Tick()).records == ()
    group.pass_time(800)
    assert group.counts() == [4]
    group.pass_time(1_000)
    assert group.owners() == {}


def test_next_wake_is_the_first_end() -> None:
    group = DrivenGroup(4, SHORT)
    assert group.core.next_wake_ms() is None
    group.join("A")
    assert group.core.next_wake_ms() == group.clock.now().monotonic_ms + 1_000
    group.join("B")
    assert group.core.next_wake_ms() == group.clock.now().monotonic_ms + 500
    warm = DrivenGroup(4, replace(SHORT, prepare_ms=200))
    warm.join("A")
    warm.join("B")
    assert warm.core.next_wake_ms() == warm.clock.now().monotonic_ms + 200
