"""What a dead letter says of its message comes back as it was; what is settled stays settled."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.consumer.dead_letter import letter_from, letter_of
from pxrs_ray.consumer.delivery import Context
from pxrs_ray.consumer.settled_letters import RANGES_MAX, SettledLetters
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Message

HEADERS = st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9)), max_size=4)
PLACE = Context("t", "shop.q", "shop.g", "m", 1, 3, 17, 5, 4)


def written(message: Message, error: str = "no such account") -> Message:
    """The letter about a message, as somebody reads it from its queue."""
    [letter] = letter_of(message, PLACE, error, 99)
    return letter


@given(st.none() | st.binary(max_size=9), st.binary(max_size=9), HEADERS, st.none() | st.text())
def test_a_message_comes_back_as_it_was(
    key: bytes | None, payload: bytes, headers: list[tuple[str, bytes]], message_id: str | None
) -> None:
    message = Message(3, 17, key, payload, 1_700_000_000_000, tuple(headers), message_id)
    found = letter_from(written(message))
    assert found is not None and found.message == message
    assert (found.queue, found.group, found.attempts) == ("shop.q", "shop.g", 4)
    assert (found.error, found.at_ms) == ("no such account", 99)


def test_headers_that_are_called_like_ours_are_the_messages() -> None:
    nested = (("pxrs-queue", b"other"), ("pxrs-error", b"x"), ("pxrs-retried", b"dead P0@1"))
    message = Message(3, 17, b"k", b"p", 5, nested)
    found = letter_from(written(message))
    assert found is not None and found.message.headers == nested and found.queue == "shop.q"


def test_a_letter_of_a_letter_is_the_later_one() -> None:
    message = Message(3, 17, b"k", b"p", 5, (("trace", b"7"),))
    once = written(message, "first")
    twice = letter_from(written(once, "second"))
    assert twice is not None and twice.error == "second" and twice.message.headers == once.headers


def test_a_letter_of_an_older_version_has_the_time_at_which_it_was_given_up() -> None:
    letter = written(Message(3, 17, b"k", b"p", 5))
    older = tuple(pair for pair in letter.headers if pair[0] != "pxrs-timestamp-ms")
    found = letter_from(Message(0, 0, b"k", b"p", 99, older))
    assert found is not None and found.message.timestamp_ms == 99


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("trace", b"7"),),
        (("pxrs-queue", b"q"), ("pxrs-group", b"g"), ("pxrs-partition", b"one")),
    ],
)
def test_what_is_no_letter_is_none(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert letter_from(Message(0, 0, b"k", b"p", 5, headers)) is None


# --- what is settled ------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40))))
def test_exactly_what_was_added_is_settled(places: list[tuple[int, int]]) -> None:
    settled = SettledLetters("id")
    for partition, offset in places:
        settled.add(partition, offset)
    back = SettledLetters.from_text(settled.to_text(), "id")
    for partition in range(3):
        for offset in range(42):
            assert back.has(partition, offset) == ((partition, offset) in places)
    ranges = json.loads(settled.to_text())["ranges"]
    for each in ranges.values():
        assert all(a[1] < b[0] for a, b in pairwise(each)), "they do not touch"


def test_what_all_is_settled_is_small() -> None:
    settled = SettledLetters("id")
    for offset in range(5_000):
        settled.add(0, offset)
    assert len(settled.to_text()) < 100


def test_what_the_log_dropped_is_forgotten() -> None:
    settled = SettledLetters("id")
    for offset in (1, 2, 3, 7):
        settled.add(0, offset)
    settled.forget_below(0, 3)
    assert not settled.has(0, 2) and settled.has(0, 3) and settled.has(0, 7)
    settled.forget_below(0, 8)
    assert json.loads(settled.to_text())["ranges"] == {}


def test_a_queue_that_was_made_anew_has_settled_nothing() -> None:
    settled = SettledLetters("old")
    settled.add(0, 1)
    assert not SettledLetters.from_text(settled.to_text(), "new").has(0, 1)


def test_too_much_is_refused_and_says_what_to_do() -> None:
    settled = SettledLetters("id", {0: [(2 * n, 2 * n + 1) for n in range(RANGES_MAX + 1)]})
    with pytest.raises(UsageError, match="retry or drop the older letters between them first"):
        settled.to_text()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "7", "{}", '{"version": 1}', '{"version": 1, "queue_id": "id", "ranges": [1]}'],
)
def test_what_cannot_be_read_is_never_taken_for_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        SettledLetters.from_text(text, "id")
    with pytest.raises(UsageError, match="another version"):
        SettledLetters.from_text('{"version": 2}', "id")
