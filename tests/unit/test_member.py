"""A member's machine: what it asks its coordinator, and what it makes of the answers."""

from __future__ import annotations

import pytest

from pxrs_ray.consumer.member_effects import (
    BeginWork,
    DrainWork,
    DropWork,
    JoinAgain,
    Joined,
    LostMembership,
    MemberChannel,
    MemberEnded,
    MemberOptions,
    Prepare,
    Rest,
    TakeIn,
    WakeChannel,
    WentOn,
)
from pxrs_ray.errors import (
    Fenced,
    NotFound,
    PxrsError,
    UsageError,
)
from pxrs_ray.group.events import (
    Assignment,
    Commit,
    Heartbeat,
    Leave,
    Prepared,
    Release,
    Response,
)
from pxrs_ray.group.member_lease import MARGIN_PART, WAIT_PART
from pxrs_ray.model import Grant, Outcome
from tests.unit.member_driver import (
    BYTES_MAX,
    INTERVAL_S,
    LATE,
    LEASE_S,
    UNKNOWN,
    Driver,
    read,
)

# --- leases and heartbeats ------------------------------------------------------------------------


def test_a_lease_counts_from_when_the_request_left_and_only_after_it_is_obeyed() -> None:
    driver = Driver()
    ask = driver.asks(MemberChannel.HEARTBEAT)
    assert ask.request == Heartbeat("A", 1, (0, 0))
    assert (ask.hold_ms, ask.wait_s) == (0, LEASE_S / 2), "who has no lease is answered at once"
    sent_s, driver.now_s = driver.now_s, driver.now_s + 2.0
    reply = Response(1, assignment=driver.told(Grant(0, 1, 0)), lease_ms=6_000)
    driver.machine.answered(ask, reply, driver.now_s)
    assert driver.machine.lease.until_s == sent_s + LEASE_S * (1 - MARGIN_PART)
    assert driver.asks(MemberChannel.HEARTBEAT).request == Heartbeat("A", 1, (1, 1))


def test_a_heartbeat_waits_for_news_while_half_of_the_lease_is_left() -> None:
    driver = Driver()
    driver.heard()
    assert driver.asks(MemberChannel.HEARTBEAT).hold_ms == int(LEASE_S * WAIT_PART * 1_000)
    driver.now_s += LEASE_S / 2
    assert driver.asks(MemberChannel.HEARTBEAT).hold_ms == 0


def test_whatever_does_not_hear_a_heartbeat_is_not_asked_without_a_pause() -> None:
    driver = Driver()
    assert driver.refused(driver.asks(MemberChannel.HEARTBEAT), LATE)
    assert driver.next(MemberChannel.HEARTBEAT) == Rest(driver.now_s + LEASE_S * WAIT_PART)
    driver.now_s += LEASE_S * WAIT_PART
    assert driver.asks(MemberChannel.HEARTBEAT)


def test_nothing_is_read_committed_or_released_without_a_lease_and_all_goes_on_with_one() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0), Grant(1, 1, 0))
    driver.heard(driver.told(Grant(0, 1, 0), Grant(1, 1, 0), revoking=[1]))
    driver.machine.stopped(1, 1, driver.now_s)
    driver.works.come(0, 1, 0)
    late = driver.fetches()
    driver.now_s += LEASE_S
    driver.machine.session.fetched(0, 1, 0, 5)
    driver.works.come(0, 1, 5)
    assert not driver.machine.holds(driver.machine.session, 0, 1, driver.now_s)
    channels = [driver.next(MemberChannel.COMMIT), driver.next(MemberChannel.RELEASE)]
    assert [*channels, driver.machine.next_fetch(0, driver.now_s)] == [Rest(), Rest(), Rest()]
    driver.machine.fetched(late, [read(0, 3)], driver.now_s)
    assert not [one for one in driver.effects() if isinstance(one, TakeIn)]
    driver.heard()
    assert driver.woken() == {MemberChannel.COMMIT, MemberChannel.RELEASE, MemberChannel.FETCH}
    assert isinstance(driver.asks(MemberChannel.COMMIT).request, Commit)
    assert isinstance(driver.asks(MemberChannel.RELEASE).request, Release)
    assert driver.fetches().positions == {0: (1, 5)}


def test_a_commit_or_release_is_asked_again_no_longer_than_the_lease_lasts() -> None:
    """Who carries it asks the next coordinator: by then others may own what was ours."""
    driver = Driver()
    driver.owns(Grant(0, 1, 0), Grant(1, 1, 0))
    driver.heard(driver.told(Grant(0, 1, 0), Grant(1, 1, 0), revoking=[1]))
    driver.machine.stopped(1, 1, driver.now_s)
    driver.machine.session.fetched(0, 1, 0, 5)
    driver.works.come(0, 1, 5)
    driver.now_s += LEASE_S / 2
    for channel in (MemberChannel.COMMIT, MemberChannel.RELEASE):
        ask = driver.asks(channel)
        assert ask.wait_s is not None
        assert ask.sent_s + ask.wait_s == pytest.approx(driver.machine.lease.until_s)


# --- membership -----------------------------------------------------------------------------------


def test_who_lost_its_membership_drops_everything_and_joins_once_for_all_that_notice() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    heartbeat, again = driver.asks(MemberChannel.HEARTBEAT), driver.asks(MemberChannel.HEARTBEAT)
    assert driver.refused(heartbeat, UNKNOWN) and driver.refused(again, UNKNOWN)
    assert driver.effects() == [DropWork(0), LostMembership(), WakeChannel(MemberChannel.JOIN)]
    others = (
        MemberChannel.HEARTBEAT,
        MemberChannel.COMMIT,
        MemberChannel.RELEASE,
        MemberChannel.REPORT,
        MemberChannel.LEAVE,
    )
    assert {driver.next(channel) for channel in others} == {Rest()}
    assert driver.machine.next_fetch(0, driver.now_s) == Rest()
    ask = driver.asks(MemberChannel.JOIN)
    assert ask.request == JoinAgain("A", 1)
    # What was under way is answered now, to somebody who is no member.
    driver.machine.answered(
        again, Response(1, assignment=driver.told(Grant(0, 1, 0)), lease_ms=6_000), driver.now_s
    )
    assert driver.effects() == [] and not driver.machine.session.holdings
    granted = Assignment(1, 9, "A", 2, (Grant(3, 7, 4),), frozenset(), 1_000)
    driver.machine.answered(ask, Joined(2, granted), driver.now_s)
    found = driver.effects()
    assert found[:2] == [WentOn(2), BeginWork(Grant(3, 7, 4))]
    assert {one.channel for one in found if isinstance(one, WakeChannel)} >= set(MemberChannel)
    assert driver.next(MemberChannel.JOIN) == Rest()
    assert driver.refused(again, UNKNOWN) and driver.effects() == [], "that was the former one"


def test_who_cannot_join_again_tries_later_and_who_is_refused_ends() -> None:
    driver = Driver()
    driver.refused(driver.asks(MemberChannel.HEARTBEAT), UNKNOWN)
    driver.refused(driver.asks(MemberChannel.JOIN), LATE)
    assert driver.next(MemberChannel.JOIN) == Rest(driver.now_s + LEASE_S * WAIT_PART)
    driver.now_s += LEASE_S
    error = Fenced("replaced")
    driver.refused(driver.asks(MemberChannel.JOIN), error)
    assert driver.machine.failed is error and MemberEnded() in driver.effects()
    assert driver.next(MemberChannel.JOIN) == Rest()


@pytest.mark.parametrize("error", [UsageError("nonsense"), PxrsError("a fault")])
def test_a_fault_is_left_to_who_carries_the_requests(error: PxrsError) -> None:
    driver = Driver()
    ask = driver.asks(MemberChannel.HEARTBEAT)
    assert not driver.refused(ask, error)
    assert driver.asks(MemberChannel.HEARTBEAT).request == ask.request


def test_a_group_that_is_gone_ends_its_members() -> None:
    driver = Driver()
    error = NotFound("no such group")
    assert driver.refused(driver.asks(MemberChannel.HEARTBEAT), error)
    assert driver.machine.failed is error and driver.machine.ended


def test_a_leave_is_said_until_it_is_known_and_again_to_a_coordinator_that_knows_nothing() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    assert driver.next(MemberChannel.LEAVE) == Rest()
    driver.machine.leave("told to")
    assert driver.woken() == {MemberChannel.LEAVE}
    driver.refused(driver.asks(MemberChannel.LEAVE), LATE)
    driver.now_s += 0.1
    ask = driver.asks(MemberChannel.LEAVE)
    assert ask.request == Leave("A", 1, "told to")
    driver.machine.answered(ask, None, driver.now_s)
    assert driver.next(MemberChannel.LEAVE) == Rest(driver.now_s + LEASE_S)
    driver.owns(Grant(0, 1, 0), revoking=[0], leaving=True)
    assert driver.next(MemberChannel.LEAVE) == Rest() and not driver.machine.has_left
    driver.owns(Grant(0, 1, 0), revoking=[0], leaving=False)
    assert isinstance(driver.asks(MemberChannel.LEAVE).request, Leave)
    driver.owns(leaving=True)
    assert driver.machine.has_left and not driver.machine.ended


def test_who_leaves_and_is_no_member_any_more_ends_and_does_not_join() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    driver.machine.leave("told to")
    driver.refused(driver.asks(MemberChannel.LEAVE), UNKNOWN)
    assert driver.machine.ended and driver.machine.has_left and driver.machine.failed is None
    assert DropWork(0) in driver.effects()


def test_who_never_had_anything_has_left_when_that_was_heard() -> None:
    driver = Driver()
    driver.heard()
    driver.machine.leave("told to")
    assert not driver.machine.has_left
    driver.machine.answered(driver.asks(MemberChannel.LEAVE), None, driver.now_s)
    assert driver.machine.has_left


def test_prepared_is_told_only_of_what_still_comes() -> None:
    driver = Driver()
    driver.heard(driver.told(preparing=(Grant(4, 1, 0),)))
    assert Prepare(Grant(4, 1, 0)) in driver.effects()
    ask = driver.machine.prepared(4, driver.now_s)
    assert ask is not None and ask.request == Prepared("A", 1, (4,))
    assert driver.machine.prepared(5, driver.now_s) is None
    driver.owns()
    assert driver.machine.prepared(4, driver.now_s) is None


# --- commits and releases -------------------------------------------------------------------------


def done(driver: Driver, to: int) -> None:
    held = driver.machine.session.holdings[0]
    driver.machine.session.fetched(0, held.epoch, held.fetched, to - held.fetched)
    driver.works.come(0, held.epoch, to)


def test_commits_go_by_interval_and_a_round_that_is_not_heard_goes_on_with_what_is_done() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    driver.works.come(0, 1, 0)
    driver.machine.session.fetched(0, 1, 0, 1)
    assert driver.next(MemberChannel.COMMIT) == Rest(driver.now_s + INTERVAL_S)
    done(driver, 3)
    driver.now_s += INTERVAL_S
    ask = driver.asks(MemberChannel.COMMIT)
    assert isinstance(ask.request, Commit) and ask.request.rows[0].progress.checkpoint == 3
    driver.refused(ask, LATE)
    assert isinstance(driver.next(MemberChannel.COMMIT), Rest)
    done(driver, 5)
    driver.now_s += 0.1
    again = driver.asks(MemberChannel.COMMIT)
    assert isinstance(again.request, Commit) and again.request.rows[0].progress.checkpoint == 5
    driver.machine.answered(again, (Outcome.APPLIED,), driver.now_s)
    assert driver.machine.session.holdings[0].committed.checkpoint == 5
    assert driver.next(MemberChannel.COMMIT) == Rest(driver.now_s + INTERVAL_S)


def test_who_wants_all_committed_waits_for_a_round_that_begins_after_it_asked() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    done(driver, 1)
    under_way = driver.asks(MemberChannel.COMMIT)
    done(driver, 2)
    wanted = driver.machine.progress.commit_all()
    driver.machine.answered(under_way, (Outcome.APPLIED,), driver.now_s)
    assert driver.machine.progress.rounds < wanted
    later = driver.asks(MemberChannel.COMMIT)  # at once, not by interval
    driver.machine.answered(under_way, (Outcome.APPLIED,), driver.now_s)  # doubled on the way
    assert driver.machine.progress.rounds < wanted
    driver.machine.answered(later, (Outcome.APPLIED,), driver.now_s)
    assert driver.machine.progress.rounds == wanted
    assert driver.machine.session.holdings[0].committed.checkpoint == 2


def test_who_wants_all_committed_where_nothing_is_to_be_done_waits_for_nothing() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    driver.works.come(0, 1, 0)
    driver.next(MemberChannel.COMMIT)
    wanted = driver.machine.progress.commit_all()
    assert isinstance(driver.next(MemberChannel.COMMIT), Rest)
    assert driver.machine.progress.rounds == wanted


def test_an_interval_of_nothing_ends_each_look() -> None:
    driver = Driver()
    driver.machine.reconfigure(MemberOptions(0.0, BYTES_MAX))
    driver.owns(Grant(0, 1, 0))
    driver.machine.session.fetched(0, 1, 0, 1)
    assert driver.next(MemberChannel.COMMIT) == Rest(driver.now_s)


def test_a_row_that_is_fenced_is_dropped() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    done(driver, 1)
    driver.machine.answered(driver.asks(MemberChannel.COMMIT), (Outcome.FENCED,), driver.now_s)
    assert DropWork(0) in driver.effects() and not driver.machine.session.holdings


def test_a_release_gathers_what_stops_together_and_is_repeated_until_it_is_answered() -> None:
    driver = Driver()
    grants = (Grant(0, 1, 0), Grant(1, 1, 0))
    driver.owns(*grants)
    driver.now_s += 0.1
    assert driver.next(MemberChannel.RELEASE) == Rest()
    driver.heard(driver.told(*grants, revoking=[0, 1]))
    effects = driver.effects()
    assert [one for one in effects if isinstance(one, DrainWork)] == [DrainWork(0), DrainWork(1)]
    assert WakeChannel(MemberChannel.RELEASE) in effects
    for partition in (0, 1):
        driver.machine.stopped(partition, 1, driver.now_s)
        assert isinstance(driver.next(MemberChannel.RELEASE), Rest)
    driver.now_s += 0.1
    ask = driver.asks(MemberChannel.RELEASE)
    assert isinstance(ask.request, Release) and len(ask.request.rows) == 2
    driver.refused(ask, LATE)
    driver.now_s += 0.1
    again = driver.asks(MemberChannel.RELEASE)
    assert again.request == ask.request
    driver.machine.answered(again, (Outcome.APPLIED,) * 2, driver.now_s)
    assert not driver.machine.session.holdings and driver.next(MemberChannel.RELEASE) == Rest()
    # Once more, and much too late: what stops afterwards is released all the same.
    driver.machine.answered(ask, (Outcome.APPLIED,) * 2, driver.now_s)
    driver.owns(Grant(2, 1, 0))
    driver.now_s += 0.1
    assert driver.next(MemberChannel.RELEASE) == Rest()
    driver.heard(driver.told(Grant(2, 1, 0), revoking=[2]))
    driver.machine.stopped(2, 1, driver.now_s)
    assert WakeChannel(MemberChannel.RELEASE) in driver.effects()


def test_a_member_that_has_nothing_to_commit_sleeps_until_something_is_read() -> None:
    driver = Driver()
    driver.owns(*(Grant(partition, 1, 0) for partition in range(100)))
    driver.next(MemberChannel.COMMIT)
    driver.now_s += 2 * INTERVAL_S
    asked = driver.works.asked
    assert driver.next(MemberChannel.COMMIT) == Rest()
    assert driver.works.asked == asked, "no worker is asked that has nothing to do"
    driver.effects()
    driver.machine.fetched(driver.fetches(), [read(0, 3, partition=7)], driver.now_s)
    assert MemberChannel.COMMIT in driver.woken()
    assert driver.next(MemberChannel.COMMIT) == Rest(driver.now_s + INTERVAL_S)
    driver.works.come(7, 1, 3)
    driver.now_s += INTERVAL_S
    ask = driver.asks(MemberChannel.COMMIT)
    assert isinstance(ask.request, Commit) and [row.partition for row in ask.request.rows] == [7]
    assert driver.works.asked == asked + 1
    driver.machine.answered(ask, (Outcome.APPLIED,), driver.now_s)
    driver.now_s += INTERVAL_S
    assert driver.next(MemberChannel.COMMIT) == Rest()


def test_a_member_whose_worker_notes_more_than_its_checkpoint_goes_on_looking() -> None:
    """A key that is put aside, or a message out of order: that may change with nothing read."""
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    driver.machine.fetched(driver.fetches(), [read(0, 3)], driver.now_s)
    driver.works.come(0, 1, 3, detail="something")
    driver.machine.answered(driver.asks(MemberChannel.COMMIT), (Outcome.APPLIED,), driver.now_s)
    driver.now_s += INTERVAL_S
    assert driver.next(MemberChannel.COMMIT) == Rest(driver.now_s + INTERVAL_S)
