"""How long a host has been away: over coordinators, and whatever the time of day does."""

from __future__ import annotations

from dataclasses import replace

from pxrs_ray.topology.away_time import AwayTime
from pxrs_ray.topology.homes import Home, Homes

AWAY = Homes().with_slot(0, Home("d1", "n1", "10.0.0.1", away_since_ms=1_000))
AFTER_MS = 60_000


class Counting:
    """Counts as a coordinator does, on a host whose steady clock begins anywhere."""

    def __init__(self, homes: Homes, clock_ms: int = 0, after_ms: int | None = AFTER_MS) -> None:
        self.homes, self.clock_ms = homes, clock_ms
        self.away = AwayTime(lambda: self.clock_ms, lambda: after_ms)
        self.round(0)

    def round(self, ms: int) -> None:
        self.clock_ms += ms
        self.away.see(self.homes)
        noted = self.away.noted(self.homes)
        self.away.kept(self.homes, noted)
        self.homes = noted

    def gives_up(self) -> bool:
        return self.away.overdue(self.homes) == {0}


def test_a_host_is_given_up_by_the_time_that_was_counted() -> None:
    one = Counting(AWAY)
    for _ in range(59):
        one.round(1_000)
        assert not one.gives_up()
    one.round(1_000)
    assert one.gives_up()


def test_another_coordinator_counts_on_and_not_the_time_between() -> None:
    one = Counting(AWAY)
    one.round(31_000)
    # Its host's clock says anything, and nobody knows how long nobody was there.
    two = Counting(one.homes, clock_ms=9_000_000)
    assert not two.gives_up()
    two.round(28_000)
    assert not two.gives_up()
    two.round(1_000)
    assert two.gives_up()


def test_what_is_noted_is_counted_once() -> None:
    one = Counting(AWAY)
    for _ in range(5):
        one.round(7_000)
    assert one.homes.slots[0].away_ms == 35_000
    assert one.away.away_ms(one.homes) == {0: 35_000}


def test_little_is_written() -> None:
    one, written = Counting(AWAY), 0
    for _ in range(550):
        before = one.homes
        one.round(100)
        written += one.homes is not before and one.homes != before
    assert written <= 10
    never = Counting(AWAY, after_ms=None)
    never.round(10**9)
    assert never.homes == AWAY and not never.gives_up()


def test_a_host_that_was_back_begins_anew() -> None:
    one = Counting(AWAY)
    one.round(50_000)
    home = replace(one.homes.slots[0], away_since_ms=None, away_ms=0)
    one.homes = one.homes.with_slot(0, home)
    one.round(1_000)
    assert one.homes.slots[0].away_ms == 0
    one.homes = one.homes.with_slot(0, replace(home, away_since_ms=2_000))
    one.round(0)
    one.round(59_000)
    assert not one.gives_up()
    one.round(1_000)
    assert one.gives_up()
