"""Messages and greetings of links: what is said is heard as it was meant, or is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.data import link_door
from pxrs_ray.data.link_door import GREETING_BYTES, LinkOffer, Tickets, check_welcome, greeting
from pxrs_ray.data.link_messages import (
    ANSWERS,
    CALLS,
    MUCH_CALL_BYTES_MAX,
    MUCH_CALLS,
    VERSION,
    LinkKind,
    append_call,
    appended_answer,
    failed_answer,
    fetch_call,
    fetched_answer,
    hear_parts,
    heard_answer,
    ping,
    pong,
)
from pxrs_ray.data.link_reader import LinkReader
from pxrs_ray.data.protocol import Appended, Fetched, Heard, Refused
from pxrs_ray.errors import (
    LeaseOver,
    LogError,
    PartitionFull,
    ProtocolError,
    PxrsError,
    SequenceGap,
)

NUMBERS = st.integers(0, (1 << 64) - 1)
PARTITIONS = st.integers(0, (1 << 32) - 1)
TEXTS = st.text(st.characters(), max_size=30)
BYTES = st.binary(max_size=60)


class Special(LeaseOver):
    """A class that the other end does not know."""


def errors() -> st.SearchStrategy[PxrsError]:
    kinds = st.sampled_from([SequenceGap, LeaseOver, LogError, PartitionFull, Special])
    return st.builds(lambda kind, texts: kind(*texts), kinds, st.lists(TEXTS, max_size=3))


def refusals() -> st.SearchStrategy[Refused]:
    maybe = st.none() | NUMBERS
    places = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4).map(tuple)
    heard = st.none() | st.builds(Heard, NUMBERS, NUMBERS, places)
    return st.builds(Refused, PARTITIONS, errors(), maybe, maybe, maybe, heard)


appends = st.builds(Appended, PARTITIONS, NUMBERS, PARTITIONS, st.booleans()) | st.builds(
    Appended, PARTITIONS, st.none(), PARTITIONS, st.just(True)
)
fetches = st.builds(
    Fetched, PARTITIONS, st.lists(BYTES, max_size=3).map(tuple), NUMBERS, NUMBERS, NUMBERS
)


def heard(said: bytes, kinds: Any = ANSWERS, step: int = 7) -> Any:
    """What comes out of a stream that arrives in pieces."""
    reader = LinkReader(kinds)
    found = []
    for at in range(0, len(said), step):
        found += reader.feed(said[at : at + step])
    (message,) = found
    assert not reader._data, "nothing is left"
    assert message.number == 9
    return message


def plain(part: Any) -> Any:
    """A part of an answer with its error as texts, for errors equal nothing but themselves."""
    if not isinstance(part, Refused):
        return part
    error = part.error
    name = "LeaseOver" if isinstance(error, Special) else type(error).__name__
    numbers = (part.expected_sequence, part.start_offset, part.end_offset, part.heard)
    return (part.partition, name, error.args, numbers)


@given(TEXTS, st.lists(st.tuples(PARTITIONS, BYTES, BYTES), max_size=4), PARTITIONS)
def test_appends_are_heard_as_they_are_said(queue: str, frames: Any, wait_ms: int) -> None:
    message = heard(append_call(9, queue, frames, wait_ms), CALLS)
    assert (message.kind, message.content) == (LinkKind.APPEND, (queue, frames, wait_ms))


@given(TEXTS, TEXTS, st.dictionaries(PARTITIONS, st.tuples(NUMBERS, NUMBERS)), TEXTS)
def test_fetches_are_heard_as_they_are_said(q: str, g: str, positions: Any, reader: str) -> None:
    message = heard(fetch_call(9, q, g, positions, 5, 6, reader), CALLS)
    assert (message.kind, message.content) == (LinkKind.FETCH, (q, g, positions, 5, 6, reader))
    assert list(message.content[2]) == list(positions), "in the order that was asked for"


@given(st.lists(appends | refusals(), max_size=5))
def test_answers_to_appends_are_heard_as_they_are_said(answers: list[Any]) -> None:
    found = heard(b"".join(appended_answer(9, answers))).content
    assert [plain(part) for part in found] == [plain(part) for part in answers]


@given(st.lists(fetches | refusals(), max_size=5))
def test_answers_to_fetches_are_heard_as_they_are_said(answers: list[Any]) -> None:
    found = heard(b"".join(fetched_answer(9, answers))).content
    assert [plain(part) for part in found] == [plain(part) for part in answers]


def test_what_has_no_content() -> None:
    assert heard(ping(9), CALLS).kind is LinkKind.PING
    assert heard(pong(9)).kind is LinkKind.PONG
    too_much = heard(b"".join(fetched_answer(9, None)))
    assert (too_much.kind, too_much.content) == (LinkKind.TOO_MUCH, None)
    failed = heard(failed_answer(9, Special("x" * 100_000)))
    assert type(failed.content) is LeaseOver and len(str(failed.content)) == 2_048


def test_what_is_too_large_is_not_said() -> None:
    for said in (
        lambda: append_call(9, "q", [(0, b"", b"x" * (1 << 20))], 0),
        lambda: append_call(9, "q" * 10_000, [], 0),
        lambda: fetched_answer(9, [Fetched(0, (b"x" * (8 << 20),), 1, 0, 1)]),
    ):
        with pytest.raises(ProtocolError):
            said()


@pytest.mark.parametrize(
    "said",
    [
        b"\x02" + ping(9)[1:],
        pong(9),
        bytes((VERSION, 1, 0, 0)) + b"\xff" * 12,
        bytes((VERSION, 3, 0, 0, 1, 0, 0, 0)) + bytes(8),
        append_call(9, "q", [], 0).replace(b"\x01\x00q", b"\x01\x00\xff"),
    ],
    ids=["another version", "an answer", "a hostile length", "a fat ping", "no text"],
)
def test_what_breaks_a_rule_ends_the_stream(said: bytes) -> None:
    with pytest.raises(ProtocolError):
        LinkReader(CALLS).feed(said + bytes(100))


def test_every_cut_and_every_extra_byte_is_found() -> None:
    whole = append_call(9, "queue", [(1, b"header", b"body")], 5)
    size = len(whole) - 16
    for wrong in (*range(size), size + 1):
        head = whole[:4] + wrong.to_bytes(4, "little") + whole[8:16]
        with pytest.raises(ProtocolError):
            LinkReader(CALLS).feed(head + whole[16:] + bytes(1))


# ---- the door


def test_a_ticket_opens_once_and_both_ends_prove_themselves() -> None:
    tickets = Tickets()
    offer = tickets.offer("there", 0.0)
    assert offer.key not in offer.address.encode() and offer.version == VERSION
    said, expected = greeting(offer)
    assert len(said) == GREETING_BYTES and offer.key not in said
    welcome, much = tickets.admit(said, 1.0)
    assert not much
    check_welcome(welcome, expected)
    with pytest.raises(ProtocolError):
        check_welcome(bytes(32), expected)
    for again in (said, greeting(offer)[0]):
        with pytest.raises(ProtocolError):
            tickets.admit(again, 1.0)


def test_who_has_not_the_key_uses_no_ticket_up() -> None:
    tickets = Tickets()
    offer = tickets.offer("there", 0.0)
    for wrong in (
        LinkOffer("", VERSION, offer.ticket, b"w" * 32),
        LinkOffer("", VERSION + 1, offer.ticket, offer.key),
        LinkOffer("", VERSION, b"t" * 16, offer.key),
        LinkOffer("", VERSION, b"t" * 16, bytes(32)),
    ):
        with pytest.raises(ProtocolError):
            tickets.admit(greeting(wrong)[0], 1.0)
    assert tickets.admit(greeting(offer)[0], 1.0)


def test_tickets_end_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_door, "TICKETS_MAX", 3)
    tickets = Tickets()
    offers = [tickets.offer("there", float(at)) for at in range(5)]
    with pytest.raises(ProtocolError):
        tickets.admit(greeting(offers[1])[0], 5.0)
    with pytest.raises(ProtocolError):
        tickets.admit(greeting(offers[2])[0], 62.0)
    assert tickets.admit(greeting(offers[4])[0], 62.0)
    assert len(tickets._given) == 1


@given(st.lists(BYTES, max_size=5))
def test_what_replicas_say_is_heard_as_it_is_said(messages: list[bytes]) -> None:
    said = b"".join(hear_parts(9, messages))
    assert heard(said, MUCH_CALLS)[::2] == (LinkKind.HEAR, (messages,))
    assert heard(b"".join(heard_answer(9, None)))[::2] == (LinkKind.HEARD, None)
    with pytest.raises(ProtocolError, match="is not taken here"):
        heard(said, CALLS)  # a line for what is small carries none of it


def test_what_replicas_say_has_a_bound_and_ends_where_it_says() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        hear_parts(9, [bytes(MUCH_CALL_BYTES_MAX)])
    head, count, size, data = hear_parts(9, [b"said"])
    for broken in (count + size + data[:-1] + b"", count, b"\xff" + count[1:] + size + data):
        with pytest.raises(ProtocolError):
            heard(head[:4] + len(broken).to_bytes(4, "little") + head[8:] + broken, MUCH_CALLS)
