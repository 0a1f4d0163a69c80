"""A member's lease: as its coordinator counts it, never shorter than the member may think."""

from __future__ import annotations

from pxrs_ray.clock import Instant
from pxrs_ray.group.events import Configure, Heartbeat, Join
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.member_lease import MemberLease
from pxrs_ray.model import Member
from pxrs_ray.store.memory import MemoryStore
from tests.settings import group_settings


def test_a_lease_that_was_given_is_not_shortened() -> None:
    """The member counts on the old one until it has heard of the new: that answer may be lost."""
    store = MemoryStore()
    store.create()
    core = GroupCoordinator(
        store.lead("g", 1, "test"), group_settings(lease_ms=10_000), Instant(0, 0)
    )
    core.handle(Join((Member("a", 1),)), Instant(1_000, 0))
    core.handle(Configure(lease_ms=1_000), Instant(2_000, 0))
    core.handle(Heartbeat("a", 1, (0, 0)), Instant(2_500, 0))
    assert core.state.members["a"].until_ms == 11_000
    core.handle(Heartbeat("a", 1, (0, 0)), Instant(10_500, 0))
    assert core.state.members["a"].until_ms == 11_500


def test_what_a_heartbeat_hears_late_is_given_from_when_it_came() -> None:
    store = MemoryStore()
    store.create()
    core = GroupCoordinator(
        store.lead("g", 1, "test"), group_settings(lease_ms=1_000), Instant(0, 0)
    )
    core.handle(Join((Member("a", 1),)), Instant(0, 0))
    beat = Heartbeat("a", 1, (1, core.state.members["a"].sequence))
    heard = core.handle(beat, Instant(500, 0)).reply
    assert heard is not None and heard.assignment is None and heard.lease_ms == 1_000
    core.handle(Configure(paused=True, lease_ms=9_000), Instant(600, 0))
    news = core.news(beat, heard.lease_ms).reply
    assert news is not None and news.assignment is not None and news.assignment.paused
    assert news.lease_ms == 1_000 and core.state.members["a"].until_ms == 1_500


def test_a_heartbeat_waits_only_where_its_lease_outlasts_the_wait() -> None:
    lease = MemberLease(6.0)
    assert lease.wait_s(0.0) == 0.0, "who has no lease needs an answer"
    lease.answered(0.0, 6.0)
    assert lease.wait_s(0.1) == 1.0
    # All is well: each is sent when the one before is answered, and half a lease is left then.
    sent_s = 0.1
    for _ in range(20):
        answered_s = sent_s + lease.wait_s(sent_s)
        assert lease.until_s - answered_s >= 3.0
        lease.answered(sent_s, 6.0)
        sent_s = answered_s
        assert lease.wait_s(sent_s) == 1.0
    # One is lost, and given up after half a lease: the next is to be answered at once.
    assert lease.wait_s(sent_s + 3.0) == 0.0 and not lease.is_over(sent_s + 3.0)
    # A lease that is longer now begins with the next answer, which is wanted at once.
    lease.answered(sent_s, 6.0)
    lease.length_s = 60.0
    assert lease.wait_s(sent_s) == 0.0
