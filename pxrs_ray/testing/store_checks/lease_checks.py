# ruff: noqa: D102 (a test's name says what it shows)
"""Members: incarnations, leases by the store's own clock, and who counts as expired."""

from __future__ import annotations

import time

from pxrs_ray.model import Member
from pxrs_ray.testing.store_checks.base import (
    APPLIED,
    FENCED,
    ContractBase,
    commit,
    expect,
    numbers,
)
from pxrs_ray.testing.wrong_clock import HOUR_S, wrong_wall_clock


class LeaseChecks(ContractBase):
    """The rules of `MemberWrite`, `renew` and `expired`."""

    def test_a_member_is_kept_whole(self) -> None:
        self.lead()
        member = Member("A", 3, 2.5, 30_000, ("gpu", "zone=ä", "a,b", ""))
        expect("a join", self.apply(self.join(member)), [APPLIED])
        expect("the member", self.snapshot().members, (member,))

    def test_the_newest_incarnation_wins(self) -> None:
        self.lead()
        first, second, third = (Member("A", n) for n in (1, 2, 3))
        expect("a newer one", self.apply(self.join(first), self.join(second)), [APPLIED] * 2)
        expect("an older one", self.apply(self.join(first)), [FENCED])
        expect("leave of an older one", self.apply(self.leave(first)), [FENCED])
        expect("leave of one that never came", self.apply(self.leave(third)), [FENCED])
        expect("members", self.snapshot().members, (second,))
        expect("its leave", self.apply(self.leave(second)), [APPLIED])
        expect("a leave of nobody", self.apply(self.leave(second)), [APPLIED])
        expect("no members", self.snapshot().members, ())

    def test_a_join_again_takes_the_new_attributes(self) -> None:
        self.lead()
        self.apply(self.join(Member("A", 1, 1.0)))
        self.apply(self.join(Member("A", 1, 3.0, labels=("x",))))
        expect("members", self.snapshot().members, (Member("A", 1, 3.0, labels=("x",)),))

    def test_renewal_is_refused_for_strangers(self) -> None:
        self.lead()
        self.apply(self.join(Member("A", 2)), self.join(Member("B", 1)))
        asked = [("A", 1), ("A", 2), ("C", 1), ("B", 1), ("A", 3)]
        wanted = [FENCED, APPLIED, FENCED, APPLIED, FENCED]
        expect("renewals", self.store.renew(self.group, self.generation, asked, 60_000), wanted)

    def test_a_lease_that_is_over_cannot_be_renewed(self) -> None:
        self.lead()
        self.apply(self.join(Member("A", 1), self.lease_short_ms), self.claim(0))
        self.eventually("expiry", lambda: numbers(self.store.expired(self.group)), [0])
        answer = self.store.renew(self.group, self.generation, [("A", 1)], 60_000)
        expect("the renewal", answer, [FENCED])
        expect("still expired", numbers(self.store.expired(self.group)), [0])
        expect("the member is still told", self.snapshot().members, (Member("A", 1),))
        expect("a commit by it, which its epoch still allows", self.apply(commit(0, 1)), [APPLIED])

    def test_a_new_join_starts_a_lease_again(self) -> None:
        self.lead()
        self.apply(self.join(Member("A", 1), self.lease_short_ms), self.claim(0))
        self.eventually("expiry", lambda: numbers(self.store.expired(self.group)), [0])
        expect("a join", self.apply(self.join(Member("A", 1))), [APPLIED])
        expect("nothing is expired", self.store.expired(self.group), ())

    def test_renewals_keep_a_lease_alive(self) -> None:
        self.lead()
        lease_ms = 5 * self.lease_short_ms
        self.apply(self.join(Member("A", 1), lease_ms), self.claim(0))
        until = time.monotonic() + 2 * lease_ms / 1_000
        while time.monotonic() < until:
            answer = self.store.renew(self.group, self.generation, [("A", 1)], lease_ms)
            expect("a renewal in time", answer, [APPLIED])
            expect("expired meanwhile", self.store.expired(self.group), ())
            time.sleep(self.lease_short_ms / 1_000)

    def test_a_renewal_may_shorten_and_lengthen(self) -> None:
        self.lead()
        self.apply(self.join(Member("A", 1)), self.claim(0), self.join(Member("B", 1), 5_000))
        self.apply(self.claim(1, "B"))
        shorter = self.store.renew(self.group, self.generation, [("A", 1)], self.lease_short_ms)
        longer = self.store.renew(self.group, self.generation, [("B", 1)], 60_000)
        expect("renewals", shorter + longer, [APPLIED, APPLIED])
        self.eventually("expiry of A", lambda: numbers(self.store.expired(self.group)), [0])

    def test_another_store_sees_and_renews_the_leases(self) -> None:
        """A coordinator that took over goes on with the leases of the one before."""
        self.lead()
        self.apply(self.join(Member("A", 1)), self.claim(0))
        other = self.another_store()
        self.lead(store=other)
        expect("expired", other.expired(self.group), ())
        answer = other.renew(self.group, self.generation, [("A", 1)], self.lease_short_ms)
        expect("a renewal", answer, [APPLIED])
        self.eventually("expiry", lambda: numbers(other.expired(self.group)), [0])

    def test_an_older_incarnations_partitions_are_expired(self) -> None:
        self.lead()
        self.apply(self.join(Member("A", 1)), self.claim(0))
        self.apply(self.join(Member("A", 2)), self.claim(1, incarnation=2))
        expect("expired", numbers(self.store.expired(self.group)), [0])

    def test_an_owner_that_never_joined_is_expired(self) -> None:
        self.lead()
        self.apply(self.claim(2))
        row = self.row(2)
        expect("expired", self.store.expired(self.group), (row,))

    def test_a_client_clock_an_hour_wrong_changes_nothing(self) -> None:
        self.lead()
        for wrong_s in (HOUR_S, -HOUR_S):
            with wrong_wall_clock(wrong_s):
                store = self.another_store()
                self.apply(self.join(Member("A", 1)), self.claim(0), self.claim(1, "B"))
                self.apply(self.join(Member("B", 1), self.lease_short_ms))
                self.eventually(
                    "only the short lease ends",
                    lambda seen=store: numbers(seen.expired(self.group)),  # type: ignore[misc]
                    [1],
                )
                answer = store.renew(self.group, self.generation, [("A", 1), ("B", 1)], 60_000)
                expect("renewals", answer, [APPLIED, FENCED])
            expect("with the right clock", numbers(self.store.expired(self.group)), [1])
