"""Pauses between tries."""

from __future__ import annotations

from pxrs_ray.backoff import Backoff, pause_after
from pxrs_ray.closing import Closing
from pxrs_ray.supervision.restart_rules import first_line, first_sentence, last_line


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_try_that_worked() -> None:
    backoff = Backoff(0.1, 0.5)
    assert [backoff.failed() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.worked()
    assert backoff.next_s == 0.1 and backoff.failed() == 0.1


def test_a_pause_keeps_its_unit_and_its_bound_however_often_a_try_failed() -> None:
    assert [pause_after(n, 10, 1_000) for n in (1, 2, 3, 8, 10_000)] == [10, 20, 40, 1_000, 1_000]
    assert pause_after(3, 0.05, 1.0) == 0.2


def test_what_an_error_says_in_a_line() -> None:
    error = ValueError("\n  the first. And more  \nbetween\n the last \n")
    told = [first_line(error), first_sentence(error), last_line(error)]
    assert told == ["the first. And more", "the first", "the last"]
    assert {first_line(KeyError()), last_line(KeyError())} == {"KeyError"}
    assert len(first_line(ValueError("x" * 1_000))) == 300


def test_what_is_held_is_closed_at_the_end_of_its_block_whatever_happens_there() -> None:
    class Held(Closing):
        is_open = True

        def close(self) -> None:
            self.is_open = False

    held = Held()
    try:
        with held as same:
            assert same is held and held.is_open
            raise LookupError
    except LookupError:
        assert not held.is_open
