"""What replicas say comes through as it was said; anything else ends the connection."""

from __future__ import annotations

import struct
from dataclasses import fields
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.errors import ProtocolError
from pxrs_ray.replication import peer_wire
from pxrs_ray.replication.peer_messages import (
    Agreed,
    BeginAt,
    CutAt,
    Follower,
    Frames,
    Position,
    Stored,
    ToFollower,
    ToLeader,
    Watermark,
)
from pxrs_ray.replication.peer_wire import pack_peer, unpack_peer

NUMBERS = st.integers(0, (1 << 64) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KEYS = st.tuples(TEXTS, st.integers(0, (1 << 32) - 1))
WHO = st.builds(Follower, TEXTS, TEXTS, NUMBERS)
EPOCHS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5).map(tuple)
N, DATA = NUMBERS, st.binary(max_size=200)
MESSAGES = st.one_of(
    st.builds(Position, N, WHO, KEYS, N, N, N, N, N),
    st.builds(Stored, N, WHO, KEYS, N, N, N, N, N),
    st.builds(CutAt, N, KEYS, N, N, N, N),
    st.builds(Agreed, N, KEYS, N, N),
    st.builds(BeginAt, N, KEYS, N, N, N, DATA),
    st.builds(Frames, N, KEYS, N, N, EPOCHS, N, N, DATA),
    st.builds(Watermark, N, KEYS, N, N),
)
SAID = Frames(7, ("q", 3), 10, 12, ((6, 10), (7, 11)), 9, 2, b"frames")


@given(TEXTS, MESSAGES)
def test_what_was_said_is_heard(to: str, message: ToLeader | ToFollower) -> None:
    assert unpack_peer(pack_peer(to, message)) == (to, message)


@given(MESSAGES, st.randoms(use_true_random=False))
def test_whatever_comes_is_a_message_or_refused(
    message: ToLeader | ToFollower, dice: Random
) -> None:
    """Cut short, longer, or with other bytes: nothing but ProtocolError."""
    data = bytearray(pack_peer("disk", message))
    for _ in range(dice.randint(1, 3)):
        if data and dice.random() < 0.7:
            data[dice.randrange(len(data))] = dice.randrange(256)
        elif dice.random() < 0.5:
            del data[dice.randrange(len(data) + 1) :]
        else:
            data += bytes([dice.randrange(256)] * dice.randint(1, 4))
    try:
        heard = unpack_peer(bytes(data))
    except ProtocolError:
        return
    assert pack_peer(*heard) == bytes(data)[:2] + b"\0\0" + bytes(data)[4:]


def test_a_length_is_refused_before_anything_of_it_is_kept() -> None:
    data = bytearray(pack_peer("", SAID))
    at = data.index(b"frames") - 4
    for size, told in (((1 << 32) - 1, "at most"), (7, "in the middle")):
        struct.pack_into("<I", data, at, size)
        with pytest.raises(ProtocolError, match=told):
            unpack_peer(bytes(data))
    struct.pack_into("<I", data, at, 5)
    with pytest.raises(ProtocolError, match="behind its end"):
        unpack_peer(bytes(data))


@pytest.mark.parametrize(("at", "instead"), [(0, 2), (1, 99)])
def test_another_version_or_kind_is_refused_with_what_to_do(at: int, instead: int) -> None:
    data = bytearray(pack_peer("disk", SAID))
    data[at] = instead
    with pytest.raises(ProtocolError, match="use the same pxrs-ray on all nodes"):
        unpack_peer(bytes(data))


def test_what_no_message_can_say_is_refused_by_who_says_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ProtocolError, match="no number"):
        pack_peer("disk", Agreed(1, ("q", 0), -1, 0))
    with pytest.raises(ProtocolError, match="at most"):
        pack_peer("d" * 2_000, SAID)
    monkeypatch.setattr(peer_wire, "DATA_BYTES_MAX", 5)
    with pytest.raises(ProtocolError, match="cannot carry 6"):
        pack_peer("disk", SAID)


def test_the_bytes_of_a_message_stay_what_they_are() -> None:
    """Who is upgraded first talks with who is not."""
    assert pack_peer("d", Agreed(1, ("q", 2), 3, 4)).hex() == (
        "0142000026000000"
        "0100000064"
        "0100000000000000"
        "010000007102000000"
        "0300000000000000"
        "0400000000000000"
    )
    assert [field.name for field in fields(Stored)][-2:] == ["high_watermark", "start"]
