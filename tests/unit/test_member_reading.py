"""A member's machine: what it reads from its buffers, and what it makes of the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import pxrs_ray.consumer
from pxrs_ray.consumer.fetch_plan import FETCH_ANSWER_S
from pxrs_ray.consumer.member_effects import (
    DropWork,
    ForgetBuffer,
    Joined,
    MemberChannel,
    PartRefused,
    ReadingFails,
    ReadingWorks,
    ReportFenced,
    Rest,
    SkipTo,
    TakeIn,
    WakeChannel,
)
from pxrs_ray.errors import (
    Fenced,
    LogLost,
    OffsetOutOfRange,
)
from pxrs_ray.group.events import Assignment
from pxrs_ray.model import Grant
from tests.unit.member_driver import (
    LATE,
    UNKNOWN,
    Driver,
    read,
)

# --- reading --------------------------------------------------------------------------------------


def test_what_comes_is_handed_on_in_order_and_gaps_are_told() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    fetch = driver.fetches()
    assert fetch.positions == {0: (1, 0)}
    driver.machine.fetched(fetch, [read(2, 3, to=9)], driver.now_s)
    found = driver.effects()
    assert found[0] == SkipTo(0, 1, 0, 2) and found[2] == SkipTo(0, 1, 5, 9)
    assert isinstance(found[1], TakeIn) and (found[1].batch.base_offset, len(found[1].batch)) == (
        2,
        3,
    )
    driver.machine.fetched(fetch, [read(2, 3)], driver.now_s)
    assert driver.effects() == [], "twice on the way"
    assert driver.fetches().positions == {0: (1, 9)}


def test_each_buffer_is_read_for_its_own_partitions_and_woken_for_them() -> None:
    driver = Driver(buffers=2)
    driver.heard(driver.told(Grant(0, 1, 0), Grant(2, 1, 0), Grant(3, 1, 0)))
    assert driver.woken() >= {MemberChannel.FETCH, MemberChannel.FETCH + 1}
    assert driver.fetches(0).positions.keys() == {0, 2}
    assert driver.fetches(1).positions.keys() == {3}
    driver.heard(driver.told(Grant(0, 1, 0), Grant(1, 1, 0), Grant(2, 1, 0), Grant(3, 1, 0)))
    assert MemberChannel.FETCH not in driver.woken(), "its poll waits on"


def test_a_pause_throws_away_what_comes_and_its_end_is_read_from_there() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    fetch = driver.fetches()
    driver.heard(driver.told(Grant(0, 1, 0), paused=True))
    assert driver.woken() == {MemberChannel.FETCH}
    driver.machine.fetched(fetch, [read(0, 3)], driver.now_s)
    assert driver.effects() == [] and driver.machine.next_fetch(0, driver.now_s) == Rest()
    driver.heard(driver.told(Grant(0, 1, 0)))
    assert driver.woken() == {MemberChannel.FETCH}
    assert driver.fetches().positions == {0: (1, 0)}


def test_a_late_answer_of_another_life_is_thrown_away() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    fetch = driver.fetches()
    driver.refused(driver.asks(MemberChannel.HEARTBEAT), UNKNOWN)
    granted = Assignment(1, 9, "A", 2, (Grant(0, 1, 0),), frozenset(), 1_000)
    driver.machine.answered(driver.asks(MemberChannel.JOIN), Joined(2, granted), driver.now_s)
    driver.effects()
    driver.machine.fetched(fetch, [read(0, 3)], driver.now_s)
    driver.machine.fetch_failed(fetch, LogLost("gone"), driver.now_s)
    assert driver.effects() == []


def test_a_buffer_that_is_away_is_asked_again_with_growing_pauses() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    pauses_s = []
    for _ in range(3):
        driver.machine.fetch_away(driver.fetches(), driver.now_s)
        assert driver.effects() == [ForgetBuffer(0)]
        found = driver.machine.next_fetch(0, driver.now_s)
        assert isinstance(found, Rest) and found.until_s is not None
        pauses_s.append(found.until_s - driver.now_s)
        driver.now_s = found.until_s
    assert pauses_s == pytest.approx([0.05, 0.1, 0.2])
    driver.machine.fetched(driver.fetches(), [], driver.now_s)
    driver.machine.fetch_away(driver.fetches(), driver.now_s)
    found = driver.machine.next_fetch(0, driver.now_s)
    assert isinstance(found, Rest) and found.until_s == pytest.approx(driver.now_s + 0.05)


def test_a_buffer_that_never_answers_is_looked_up_anew() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    fetch = driver.fetches()
    assert fetch.until_s == driver.now_s + FETCH_ANSWER_S
    driver.machine.fetch_unanswered(fetch, driver.now_s + 1)
    assert driver.effects() == [], "something else was to be read"
    driver.machine.fetch_unanswered(fetch, fetch.until_s)
    assert driver.effects() == [ForgetBuffer(0)]


def test_a_buffer_that_has_nothing_is_asked_more_rarely_until_something_comes() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    waits_ms = []
    for _ in range(5):
        fetch = driver.fetches()
        waits_ms.append(fetch.wait_ms)
        driver.machine.fetched(fetch, [], driver.now_s)
    assert waits_ms == [2_000, 4_000, 8_000, 16_000, 16_000]
    assert waits_ms[-1] < FETCH_ANSWER_S * 1_000 / 1.5, "an answer is awaited for longer"
    driver.machine.fetched(driver.fetches(), [read(0, 1)], driver.now_s)
    assert driver.fetches().wait_ms == 2_000


def test_a_partition_that_cannot_be_read_rests_alone_and_is_read_with_the_others_again() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0), Grant(1, 1, 0))
    error = OSError("a broken disk")
    driver.machine.fetch_failed(driver.fetches(), error, driver.now_s)
    alone = driver.fetches()
    assert (alone.positions.keys(), alone.wait_ms) == ({0}, 0)
    driver.machine.fetch_failed(alone, error, driver.now_s)
    assert driver.effects() == [ReadingFails(0, error)]
    other = driver.fetches()
    assert (other.positions.keys(), other.wait_ms) == ({1}, 0)
    driver.machine.fetched(other, [], driver.now_s)
    both = driver.fetches()
    assert both.positions.keys() == {1} and both.until_s == pytest.approx(driver.now_s + 0.05)
    driver.now_s = both.until_s
    healed = driver.fetches()
    assert healed.positions.keys() == {0, 1}
    driver.machine.fetched(healed, [read(0, 1)], driver.now_s)
    assert ReadingWorks(0) in driver.effects()


def test_a_partition_that_rests_is_looked_at_when_its_pause_is_over_also_where_it_is_all() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    driver.machine.fetched(driver.fetches(), [PartRefused(0, LogLost("gone"))], driver.now_s)
    found = driver.machine.next_fetch(0, driver.now_s)
    assert isinstance(found, Rest) and found.until_s == pytest.approx(driver.now_s + 0.05)


def test_a_partition_that_is_not_served_now_is_just_asked_again() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    driver.machine.fetched(driver.fetches(), [PartRefused(0, LATE, away=True)], driver.now_s)
    assert driver.effects() == [] and driver.fetches().positions == {0: (1, 0)}


def test_who_asks_before_the_logs_start_reads_on_there() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    part = PartRefused(0, OffsetOutOfRange("behind"), start_offset=7)
    driver.machine.fetched(driver.fetches(), [part], driver.now_s)
    assert driver.effects() == [SkipTo(0, 1, 0, 7)]


def test_what_a_log_refuses_is_dropped_and_reported_until_that_is_answered() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    assert driver.next(MemberChannel.REPORT) == Rest()
    fenced = PartRefused(0, Fenced("a higher epoch"))
    driver.machine.fetched(driver.fetches(), [fenced], driver.now_s)
    assert driver.effects() == [DropWork(0), WakeChannel(MemberChannel.REPORT)]
    ask = driver.asks(MemberChannel.REPORT)
    assert ask.request == ReportFenced("A", 1, ((0, 1),))
    driver.refused(ask, LATE)
    driver.now_s += 0.1
    driver.machine.answered(driver.asks(MemberChannel.REPORT), None, driver.now_s)
    assert driver.next(MemberChannel.REPORT) == Rest()
    driver.owns(Grant(0, 1, 0))
    assert not driver.machine.session.holdings, "told before that was known"


def test_what_was_read_for_a_worker_that_is_gone_is_read_again() -> None:
    driver = Driver()
    driver.owns(Grant(0, 1, 0))
    driver.machine.fetched(driver.fetches(), [read(0, 3)], driver.now_s)
    driver.works.come(0, 1, 1)
    driver.effects()
    assert driver.machine.begin_again(0, 1) == Grant(0, 1, 1)
    assert driver.woken() == {MemberChannel.FETCH}
    assert driver.fetches().positions == {0: (1, 1)}


def test_the_machine_waits_for_nothing_and_knows_no_clock() -> None:
    for path in Path(pxrs_ray.consumer.__file__).parent.glob("*.py"):
        if path.stem.startswith(("member", "fetch", "fence", "session")):
            source = path.read_text()
            for word in ("asyncio", "import time", "threading", "import ray", "logging"):
                assert word not in source, f"{path.name}: {word}"
