"""Who is to blame for a death: what is written of it, and what it makes of a row."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.processing.done_ranges import DoneRanges, done_to
from pxrs_ray.processing.suspects import (
    EXITED_ITSELF,
    NOBODY,
    Death,
    HandlerCall,
    Suspect,
    Suspicion,
    blame,
    decode_detail,
    encode_detail,
)
from pxrs_ray.store.registry import DETAIL_CHARS_MAX

EXIT_9 = EXITED_ITSELF + 9

suspects = st.builds(
    lambda first, length, trouble, alone, age, cause: Suspect(
        first, first + length, trouble, alone, age * 100, cause
    ),
    st.integers(10, 10_000),
    st.integers(1, 500),
    st.integers(1, 16),
    st.integers(0, 9),
    st.integers(0, 10_000),
    st.integers(0, 800),
)


@given(st.lists(suspects, max_size=20), st.lists(st.integers(0, 1 << 40), max_size=5), st.data())
def test_what_is_written_is_read_again(
    found: list[Suspect], redriven: list[int], data: st.DataObject
) -> None:
    gaps = DoneRanges(10)
    for first in data.draw(st.lists(st.integers(12, 500), max_size=20)):
        gaps.add(first)
    failing = data.draw(
        st.dictionaries(st.integers(gaps.low, 5_000), st.integers(1, 99), max_size=8)
    )
    ordered = tuple(sorted(found, key=lambda s: (s.first, s.end)))
    suspicion = Suspicion(ordered, tuple(redriven)).above(gaps.low)
    text = encode_detail(gaps, failing, suspicion)
    assert text.isascii() and text.isprintable() and len(text) <= DETAIL_CHARS_MAX
    gaps_again, failing_again, again = decode_detail(gaps.low, text)
    assert done_to(gaps.low, text) == gaps.high, (
        "what is done is read by those who know no suspects"
    )
    assert list(gaps_again.runs()) == list(gaps.runs()) and failing_again == failing
    assert sorted(again.suspects, key=repr) == sorted(suspicion.suspects, key=repr)
    assert again.redriven == suspicion.redriven


def test_a_detail_without_suspects_is_as_it_always_was() -> None:
    gaps = DoneRanges(5)
    gaps.add(7, 9)
    assert encode_detail(gaps, {5: 2}, NOBODY) == gaps.encode({5: 2})
    assert decode_detail(5, gaps.encode({5: 2}))[2] == NOBODY
    with pytest.raises(StoreCorrupted):
        decode_detail(5, "2:00")
    with pytest.raises(StoreCorrupted):
        decode_detail(5, "2:;;123;")


@given(st.lists(suspects, min_size=50, max_size=300))
def test_what_does_not_fit_is_left_out_and_the_worst_is_kept(found: list[Suspect]) -> None:
    gaps = DoneRanges(0)
    for offset in range(2, 1_700, 2):
        gaps.add(offset)
    worst = Suspect(9_999, 10_000, 16, 9)
    text = encode_detail(gaps, {0: 3}, Suspicion((*found, worst)))
    assert len(text) <= DETAIL_CHARS_MAX
    _, failing, kept = decode_detail(0, text)
    assert failing == {0: 3} and worst in kept.suspects


def call(first: int, end: int | None = None, **options: Any) -> HandlerCall:
    return HandlerCall(0, 7, first, first + 1 if end is None else end, **options)


def test_alone_it_is_counted_each_time_and_then_doomed() -> None:
    detail, death = "", Death((call(12),), EXIT_9)
    for attempt in (1, 2, 3):
        detail = blame(10, 0, detail, death, death.calls)
        _, failing, suspicion = decode_detail(10, detail)
        suspect = suspicion.of(12)
        assert failing == {12: attempt} and suspect is not None and suspect.alone == attempt
        assert suspect.is_doomed(attempt, 3) == (attempt == 3)
        assert suspect.isolated, "the process ended itself"
    assert suspect is not None and "3 times" in suspect.told() and "exit code 9" in suspect.told()


def test_attempts_that_failed_otherwise_are_counted_on() -> None:
    death = Death((call(10),), signal.SIGSEGV)
    assert decode_detail(10, blame(10, 2, "", death, death.calls))[1] == {10: 3}


def test_in_company_nobody_is_counted_and_a_kill_from_outside_isolates_the_second_time() -> None:
    death = Death((call(10), call(11)), signal.SIGKILL)
    once = blame(10, 0, "", death, death.calls)
    _, failing, suspicion = decode_detail(10, once)
    assert failing == {} and [s.isolated for s in suspicion.suspects] == [False, False]
    _, failing, suspicion = decode_detail(10, blame(10, 0, once, death, death.calls))
    assert failing == {} and [s.isolated for s in suspicion.suspects] == [True, True]
    assert [s.pause_ms > 0 and s.alone_ms > 0 for s in suspicion.suspects] == [True, True]


def test_a_batch_is_suspect_and_its_messages_come_apart() -> None:
    death = Death((call(5, 30),), EXIT_9)
    _, failing, suspicion = decode_detail(10, blame(10, 0, "", death, death.calls))
    assert failing == {}
    found = suspicion.of(10)
    assert found is not None and (found.first, found.end, found.apart) == (10, 30, True)
    assert suspicion.without(15).of(15) is None and suspicion.without(15).of(16) is not None
    assert suspicion.above(30) == NOBODY


def test_what_is_done_or_not_ours_is_innocent() -> None:
    gaps = DoneRanges(10)
    gaps.add(12)
    death = Death((call(9), call(12)), EXIT_9)
    assert blame(10, 0, gaps.encode(), death, death.calls) == gaps.encode()
    assert blame(10, 0, "poison", death, [call(10)]) == "poison", "a detail that is not ours"


def test_what_kills_late_is_alone_the_longer_each_time() -> None:
    spans = [Suspect(0, 1, trouble).alone_ms for trouble in range(1, 9)]
    assert spans == [0, 200, 800, 3_200, 12_800, 51_200, 204_800, 300_000]
