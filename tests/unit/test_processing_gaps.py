"""The gap map against a set of integers, and against what a row can hold."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.processing.done_ranges import DoneRanges, numbers, written

spans = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 12)), max_size=40)


def lowest(done: set[int], low: int) -> int:
    while low in done:
        low += 1
    return low


@given(st.integers(0, 60), spans)
def test_it_is_a_set_of_integers(low: int, added: list[tuple[int, int]]) -> None:
    gaps, done = DoneRanges(low), set(range(low))
    for first, count in added:
        gaps.add(first, first + count)
        done |= set(range(first, first + count))
        assert gaps.low == lowest(done, low)
        assert [o for o in range(120) if o in gaps] == sorted(done)
        runs = list(gaps.runs())
        assert all(end < following for (_, end), (following, _) in pairwise(runs))
        assert all(gaps.low < first < end for first, end in runs)


@given(st.integers(0, 1 << 50), spans, st.dictionaries(st.integers(0, 200), st.integers(1, 99)))
def test_what_is_written_is_read_back(
    low: int, added: list[tuple[int, int]], failed: dict[int, int]
) -> None:
    gaps = DoneRanges(low)
    for first, count in added:
        gaps.add(low + first, low + first + count)
    attempts = {gaps.low + o: n for o, n in failed.items() if gaps.low + o not in gaps}
    text = gaps.encode(attempts)
    assert text.isascii() and text.isprintable() and " " not in text
    back, found = DoneRanges.decode(gaps.low, text)
    assert list(back.runs()) == list(gaps.runs()) and found == attempts
    assert (text == "") == (not len(gaps) and not attempts)


@given(st.integers(0, 1 << 62))
def test_numbers_are_short(number: int) -> None:
    text = written(number)
    assert list(numbers(text)) == [number]
    assert len(text) == max(1, -(-number.bit_length() // 5))


def test_short_runs_cost_a_character_each() -> None:
    gaps = DoneRanges(0)
    for offset in range(1, 1_000, 2):
        gaps.add(offset)
    assert len(gaps.encode()) == 2 + 1_000


@pytest.mark.parametrize("text", ["2:11", "x", "1:1", "1:a", "1:1 1", "1:11;5"])
def test_what_is_no_map_is_refused(text: str) -> None:
    with pytest.raises(StoreCorrupted):
        DoneRanges.decode(0, text)
