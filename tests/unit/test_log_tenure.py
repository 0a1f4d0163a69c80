"""Leases of buffers: no process serves when its coordinator, or the next one, takes it for over."""

from __future__ import annotations

import random

import pytest

from pxrs_ray.data.protocol import BufferGrant
from pxrs_ray.log.lease_grants import LeaseGrants
from pxrs_ray.log.lease_term import LeaseTerm

LEASE_MS = 1_000


def given(
    tenure: LeaseTerm, echo_ms: int, now_ms: int, *, generation: int = 1, term: int = 1
) -> bool:
    return tenure.take(BufferGrant(generation, term, LEASE_MS, echo_ms, "me"), now_ms)


def test_it_begins_without_a_lease_and_has_one_from_the_echo_on() -> None:
    tenure = LeaseTerm("me")
    assert not tenure.holds(0)
    assert given(tenure, 100, now_ms=900)
    assert tenure.holds(1_099)
    assert not tenure.holds(1_100), "what travelled for 800 ms has made it no longer"


def test_a_reading_of_another_process_is_no_lease() -> None:
    tenure = LeaseTerm("me")
    assert tenure.take(BufferGrant(1, 1, LEASE_MS, 100, "who was here before"), 100)
    assert tenure.take(BufferGrant(1, 1, LEASE_MS), 100)
    assert not tenure.holds(100)


def test_a_reading_from_the_future_counts_from_now_on() -> None:
    tenure = LeaseTerm("me")
    given(tenure, 1 << 40, now_ms=100)
    assert tenure.holds(1_099) and not tenure.holds(1_100)


def test_an_older_echo_shortens_nothing() -> None:
    tenure = LeaseTerm("me")
    given(tenure, 500, now_ms=600)
    given(tenure, 100, now_ms=700)
    assert tenure.until_ms == 1_500


@pytest.mark.parametrize(("generation", "term"), [(1, 2), (2, 1), (1, 1)])
def test_who_is_older_gives_nothing(generation: int, term: int) -> None:
    tenure = LeaseTerm("me")
    given(tenure, 0, now_ms=0, generation=2, term=2)
    assert not given(tenure, 5_000, now_ms=5_000, generation=generation, term=term)
    assert not tenure.holds(5_000)
    assert (tenure.generation, tenure.term) == (2, 2)


def test_a_newer_coordinator_leaves_the_lease_that_it_has_not_given_yet() -> None:
    tenure = LeaseTerm("me")
    given(tenure, 0, now_ms=0)
    assert tenure.take(BufferGrant(2, 1, LEASE_MS), 10)
    assert tenure.holds(500), "it waits for that long itself"
    assert not given(tenure, 600, now_ms=600), "the former one prolongs nothing"


def test_another_term_ends_what_was_granted() -> None:
    tenure = LeaseTerm("me")
    given(tenure, 0, now_ms=0)
    tenure.take(BufferGrant(1, 2, LEASE_MS), 10)
    assert not tenure.holds(20)


def test_a_newer_grant_may_end_the_lease() -> None:
    tenure = LeaseTerm("me")
    given(tenure, 0, now_ms=0)
    tenure.take(BufferGrant(1, 2, 0, 500, "me"), 500)
    assert not tenure.holds(500)


def test_only_what_came_before_the_registry_was_asked_is_sent_back() -> None:
    grants = LeaseGrants(1, LEASE_MS, 0)
    before = grants.heard_so_far()
    grants.heard(0, "me", 70, 100)
    grants.allow(0)
    assert grants.grant(0, 1).incarnation == ""
    grants.leading(before)
    assert grants.grant(0, 1).incarnation == "", "asked before it was heard"
    grants.leading(grants.heard_so_far())
    assert grants.grant(0, 1) == BufferGrant(0, 1, LEASE_MS, 70, "me")
    assert grants.over_ms(0) == 100 + LEASE_MS
    grants.heard(0, "next", 5, 200)
    grants.leading(grants.heard_so_far())
    assert grants.grant(0, 1).incarnation == "", "nobody has looked whose logs that one has"
    grants.allow(0)
    assert grants.grant(0, 1).incarnation == "next"
    grants.forbid(0)
    assert grants.grant(0, 1).incarnation == ""


@pytest.mark.parametrize("seed", range(60))
def test_nobody_serves_when_somebody_may_take_it_for_over(seed: int) -> None:
    """Two coordinators, the older of which does not know it; pings and answers that are late, lost
    or overtake each other; a buffer whose clock begins anywhere."""
    rng = random.Random(seed)
    skew_ms, late_ms = rng.randrange(1 << 30), rng.choice([100, 400, 1_500])
    tenure, served = LeaseTerm("me"), 0
    deposed_ms = rng.randrange(2_000, 6_000)
    old, new = LeaseGrants(1, LEASE_MS, 0), LeaseGrants(1, LEASE_MS, deposed_ms)
    old.generation, new.generation = 1, 2
    silent_ms = deposed_ms + rng.choice([0, 10_000])  # from when on the new one grants too
    under_way: list[tuple[int, str, LeaseGrants, BufferGrant | int]] = []
    for now_ms in range(0, 12_000, 10):
        for one in (old, new):
            if one is new and now_ms < deposed_ms:
                continue
            if now_ms % 200 == 0 and now_ms < 9_000:
                if one is old and now_ms < deposed_ms:
                    one.leading(one.heard_so_far())
                if one is new and now_ms >= silent_ms:
                    one.leading(one.heard_so_far())
                one.allow(0)
                grant = one.grant(0, 1)
                under_way.append((now_ms + rng.randrange(1, late_ms), "ping", one, grant))
        rng.shuffle(under_way)
        for each in [each for each in under_way if each[0] <= now_ms]:
            under_way.remove(each)
            _, what, one, load = each
            if rng.random() < 0.1:
                continue
            if what == "ping":
                assert isinstance(load, BufferGrant)
                tenure.take(load, now_ms + skew_ms)
                answer_ms = now_ms + rng.randrange(1, late_ms)
                under_way.append((answer_ms, "answer", one, now_ms + skew_ms))
            else:
                assert isinstance(load, int)
                one.heard(0, "me", load, now_ms)
        serves = tenure.holds(now_ms + skew_ms)
        served += serves
        if now_ms >= deposed_ms and silent_ms > deposed_ms:
            assert not (serves and now_ms >= new.over_ms(0)), "the successor waited in vain"
        if now_ms < deposed_ms:
            assert not (serves and now_ms >= old.over_ms(0))
    assert served or late_ms == 1_500


def test_a_registry_that_answers_slower_than_buffers_are_looked_at_ends_no_lease() -> None:
    grants = LeaseGrants(1, LEASE_MS, 0)
    grants.heard(0, "me", 10, 100)
    grants.allow(0)
    for now_ms in range(200, 1_000, 100):
        asked = grants.heard_so_far()
        grants.heard(0, "me", now_ms - 90, now_ms)
        grants.leading(asked)
        assert grants.grant(0, 1).echo_ms == now_ms - 190
