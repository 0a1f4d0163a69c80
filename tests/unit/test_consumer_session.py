"""What a consumer may do under each assignment, and what it must forget."""

from __future__ import annotations

import pytest

from pxrs_ray.consumer.session import ConsumerSession, SessionChanges
from pxrs_ray.group.events import Assignment, PartitionProgress
from pxrs_ray.model import Grant, Outcome, Progress
from tests.works import Works

APPLIED, FENCED, BEHIND = Outcome.APPLIED, Outcome.FENCED, Outcome.BEHIND


def told(
    *grants: Grant,
    sequence: int = 1,
    generation: int = 1,
    revoking: tuple[int, ...] = (),
    paused: bool = False,
    leaving: bool = False,
    member: str = "A",
    incarnation: int = 1,
) -> Assignment:
    return Assignment(
        generation,
        sequence,
        member,
        incarnation,
        grants,
        frozenset(revoking),
        1_000,
        paused,
        leaving,
    )


def session_with(*grants: Grant, works: Works | None = None) -> ConsumerSession:
    session = ConsumerSession("A", 1, works or Works())
    session.assign(told(*grants))
    return session


def test_a_grant_starts_at_its_checkpoint() -> None:
    session = ConsumerSession("A", 1, Works())
    grant = Grant(3, 7, 42, attempts=2, detail="d")
    assert session.assign(told(grant)) == SessionChanges(started=(grant,))
    assert session.to_fetch(1) == {3: (7, 42)}
    assert session.holds(3, 7) and not session.holds(3, 6) and not session.holds(2, 7)
    assert session.to_commit() == ()


@pytest.mark.parametrize(
    "stale",
    [
        told(sequence=2),
        told(sequence=1),
        told(sequence=99, generation=0),
        told(sequence=9, member="B"),
        told(sequence=9, incarnation=2),
        told(sequence=9, incarnation=0),
    ],
    ids=repr,
)
def test_an_assignment_that_is_not_newer_or_not_ours_is_ignored(stale: Assignment) -> None:
    session = ConsumerSession("A", 1, Works())
    session.assign(told(Grant(0, 1, 0), sequence=2))
    assert session.assign(stale) == SessionChanges()
    assert session.holds(0, 1) and session.seen == (1, 2)


def test_a_new_generation_begins_its_sequences_anew() -> None:
    session = ConsumerSession("A", 1, Works())
    session.assign(told(Grant(0, 1, 0), sequence=50))
    assert session.assign(told(sequence=0, generation=2)).dropped == (0,)


def test_what_a_worker_has_stopped_is_not_dropped_though_the_answer_is_late() -> None:
    grants = Grant(0, 1, 0), Grant(1, 1, 0)
    session = session_with(*grants)
    assert session.assign(told(*grants, sequence=2, revoking=(0, 1))).draining == (0, 1)
    session.stopped(0, 1)
    rows = session.to_release()
    # Partition 0 was handed over in time; partition 1 was taken before its worker had stopped.
    assert session.assign(told(sequence=3)).dropped == (1,)
    session.released(rows)
    assert not session.holds(0, 1) and not session.holds(1, 1)


def test_what_is_not_granted_at_the_same_epoch_is_dropped() -> None:
    session = session_with(Grant(0, 1, 0), Grant(1, 1, 0), Grant(2, 1, 0))
    session.fetched(1, 1, 0, 5)
    changes = session.assign(told(Grant(0, 1, 0), Grant(1, 3, 2), sequence=2))
    assert changes.dropped == (1, 2) and changes.started == (Grant(1, 3, 2),)
    assert session.to_fetch(1) == {0: (1, 0), 1: (3, 2)}


def test_reading_goes_on_while_there_is_room() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 10), works=works)
    assert session.fetched(0, 1, 10, 4)
    works.queued[0] = 100
    assert session.to_fetch(101) == {0: (1, 14)}
    assert session.to_fetch(100) == {}


@pytest.mark.parametrize(
    ("partition", "epoch", "base"), [(0, 1, 9), (0, 1, 15), (0, 2, 14), (1, 1, 0)]
)
def test_what_was_read_twice_late_or_elsewhere_is_thrown_away(
    partition: int, epoch: int, base: int
) -> None:
    session = session_with(Grant(0, 1, 10))
    session.fetched(0, 1, 10, 4)
    assert not session.fetched(partition, epoch, base, 1)
    assert session.to_fetch(1) == {0: (1, 14)}


def test_what_is_done_is_committed_once() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 10), works=works)
    session.fetched(0, 1, 10, 4)
    works.come(0, 1, 12)
    rows = session.to_commit()
    assert rows == (PartitionProgress(0, 1, Progress(12)),)
    works.come(0, 1, 13)
    session.committed(rows, [APPLIED])
    assert session.to_commit() == (PartitionProgress(0, 1, Progress(13)),), (
        "what came after it is still to be done"
    )
    session.committed(session.to_commit(), [APPLIED])
    assert session.to_commit() == ()


def test_a_late_answer_takes_nothing_back() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 0), works=works)
    session.fetched(0, 1, 0, 9)
    works.come(0, 1, 4)
    early = session.to_commit()
    works.come(0, 1, 8)
    late = session.to_commit()
    session.committed(late, [APPLIED])
    session.committed(early, [BEHIND])
    assert session.holdings[0].committed == Progress(8)


def test_a_failed_attempt_is_progress_to_commit() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 0), works=works)
    session.fetched(0, 1, 0, 1)
    works.come(0, 1, 0, 1, "boom")
    assert session.to_commit() == (PartitionProgress(0, 1, Progress(0, 1, "boom")),)


@pytest.mark.parametrize("offset", [9, 15])
def test_progress_outside_of_what_was_read_is_a_fault_of_ours(offset: int) -> None:
    works = Works()
    session = session_with(Grant(0, 1, 10), works=works)
    session.fetched(0, 1, 10, 4)
    works.come(0, 1, offset)
    with pytest.raises(AssertionError, match="outside 10 to 14"):
        session.to_commit()


def test_a_fenced_row_means_that_the_partition_is_lost() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 0), Grant(1, 1, 0), works=works)
    session.fetched(0, 1, 0, 2)
    works.come(0, 1, 1)
    assert session.committed(session.to_commit(), [FENCED]).dropped == (0,)
    works.come(0, 1, 2)
    assert session.to_commit() == (), "what is still done for it counts for nothing"
    assert session.to_fetch(1).keys() == {1}


@pytest.mark.parametrize("revoking", [(), (0,)])
def test_an_assignment_from_before_a_refusal_does_not_begin_it_again(
    revoking: tuple[int, ...],
) -> None:
    works = Works()
    session = session_with(Grant(0, 1, 0), works=works)
    session.fetched(0, 1, 0, 2)
    works.come(0, 1, 1)
    session.committed(session.to_commit(), [FENCED])
    late = told(Grant(0, 1, 0), sequence=2, revoking=revoking)
    assert session.assign(late) == SessionChanges() and session.seen == (1, 2)
    works.come(0, 1, 2)
    assert session.to_commit() == (), "a handler that is still at it ends without harm"
    assert session.assign(told(Grant(0, 3, 1), sequence=3)).started == (Grant(0, 3, 1),)


def test_what_was_handed_back_is_not_begun_again_by_an_older_word() -> None:
    session = session_with(Grant(0, 1, 0))
    session.assign(told(Grant(0, 1, 0), sequence=2, revoking=(0,)))
    session.stopped(0, 1)
    session.released(session.to_release())
    assert session.assign(told(Grant(0, 1, 0), sequence=3, revoking=(0,))) == SessionChanges()
    assert session.to_release() == ()


def test_an_answer_about_an_older_epoch_touches_nothing() -> None:
    session = session_with(Grant(0, 3, 0))
    assert session.committed([PartitionProgress(0, 1, Progress(5))], [FENCED]) == SessionChanges()
    assert session.holds(0, 3)


def test_a_partition_that_is_asked_for_drains_stops_and_is_released() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 0), Grant(1, 1, 0), works=works)
    session.fetched(0, 1, 0, 5)
    changes = session.assign(told(Grant(0, 1, 0), Grant(1, 1, 0), sequence=2, revoking=(0,)))
    assert changes.draining == (0,) and changes.dropped == ()
    assert session.to_fetch(1).keys() == {1}
    assert not session.fetched(0, 1, 5, 1), "it takes nothing new"
    assert session.to_release() == (), "the worker is still at it"
    works.come(0, 1, 3)
    session.stopped(0, 1)
    assert session.to_release() == (PartitionProgress(0, 1, Progress(3)),)
    session.released(session.to_release())
    assert not session.holds(0, 1) and session.to_release() == ()


def test_being_asked_twice_is_being_asked_once() -> None:
    session = session_with(Grant(0, 1, 0))
    session.assign(told(Grant(0, 1, 0), sequence=2, revoking=(0,)))
    assert session.assign(told(Grant(0, 1, 0), sequence=3, revoking=(0,))) == SessionChanges()


def test_what_is_asked_back_before_it_was_begun_is_released_as_it_is() -> None:
    session = ConsumerSession("A", 1, Works())
    changes = session.assign(told(Grant(0, 1, 6), revoking=(0,)))
    assert changes.started == () and changes.draining == (0,)
    assert session.to_release() == (PartitionProgress(0, 1, Progress(6)),)


def test_a_release_that_is_answered_late_leaves_the_next_grant_alone() -> None:
    session = session_with(Grant(0, 1, 0))
    session.assign(told(Grant(0, 3, 0), sequence=2))
    session.released([PartitionProgress(0, 1, Progress(0))])
    session.stopped(0, 1)
    assert session.holds(0, 3) and not session.holdings[0].stopped


def test_paused_and_leaving_are_what_the_newest_assignment_says() -> None:
    session = session_with(Grant(0, 1, 0))
    session.assign(told(Grant(0, 1, 0), sequence=2, paused=True, leaving=True))
    assert session.paused and session.leaving and session.to_fetch(1) == {}
    session.assign(told(Grant(0, 1, 0), sequence=3))
    assert not session.paused and not session.leaving and session.to_fetch(1) == {0: (1, 0)}


def test_no_member_any_more_means_nothing_is_ours() -> None:
    session = session_with(Grant(0, 1, 0), Grant(1, 1, 0))
    assert session.drop_all() == (0, 1)
    assert session.to_fetch(1) == {} and session.to_commit() == ()


def test_a_worker_is_asked_for_the_last_time_when_it_has_stopped() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 0), works=works)
    session.fetched(0, 1, 0, 5)
    session.assign(told(Grant(0, 1, 0), sequence=2, revoking=(0,)))
    works.come(0, 1, 4, 2, "d")
    session.stopped(0, 1)
    works.come(0, 1, 5)
    assert (
        session.to_release()
        == session.to_commit()
        == (PartitionProgress(0, 1, Progress(4, 2, "d")),)
    )


def test_a_worker_begins_again_where_the_one_before_came() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 0), Grant(1, 1, 7), works=works)
    session.fetched(0, 1, 0, 5)
    session.fetched(1, 1, 7, 2)
    works.come(0, 1, 3, 1)
    assert session.begin_again(0, 1) == Grant(0, 1, 3, 1)
    # One that never began has come nowhere.
    assert session.begin_again(1, 1) == Grant(1, 1, 7)
    assert session.to_fetch(1) == {0: (1, 3), 1: (1, 7)}


def test_work_whose_worker_cannot_say_begins_again_where_it_was_last_told_to_be() -> None:
    works = Works()
    session = session_with(Grant(0, 1, 10), works=works)
    session.fetched(0, 1, 10, 70)
    works.come(0, 1, 50, attempts=1, detail="d")
    assert session.to_commit() == (PartitionProgress(0, 1, Progress(50, 1, "d")),)

    works.forget(0, 1)

    # The commit is still under way: what it says is done must not be handled once more.
    assert session.begin_again(0, 1) == Grant(0, 1, 50, 1, "d")
    assert session.to_commit() == (PartitionProgress(0, 1, Progress(50, 1, "d")),)
