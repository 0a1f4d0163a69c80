"""What is large on a link is received where it stays, and sent from where it lies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.actors.buffer import local_socket
from pxrs_ray.actors.buffer.server_end import PIECE_BYTES, ServerEnd
from pxrs_ray.actors.buffer.socket_server import SocketServer
from pxrs_ray.data.link_messages import (
    ANSWERS,
    CALLS,
    LinkKind,
    append_call,
    fetched_answer,
    ping,
)
from pxrs_ray.data.link_reader import OWN_BYTES, LinkReader
from pxrs_ray.data.protocol import Fetched
from pxrs_ray.errors import ProtocolError

LARGE = bytes(range(256)) * 1_000


def received(reader: LinkReader, said: bytes, steps: list[int]) -> list[Any]:
    """What comes of a stream that is received in such steps, each where it belongs."""
    found, at, turn = [], 0, 0
    while at < len(said):
        count = steps[turn % len(steps)]
        turn += 1
        room = reader.room()
        if room is None:
            found += reader.feed(said[at : at + count])
        else:
            count = min(count, len(room), len(said) - at)
            room[:count] = said[at : at + count]
            found += reader.came(count)
        at += count
    return found


@settings(deadline=None)
@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=6), st.booleans())
def test_a_large_call_is_heard_as_it_was_said_wherever_it_is_cut(
    steps: list[int], is_fed: bool
) -> None:
    steps = [max(step, 500) for step in steps]
    frames = [(1, b"h" * 96, LARGE), (2, b"i" * 96, LARGE[::-1])]
    said = ping(1) + append_call(2, "q", frames, 5) + ping(3) + append_call(4, "q", frames, 6)
    reader = LinkReader(CALLS)
    if is_fed:
        found = []
        for at in range(0, len(said), steps[0]):
            found += reader.feed(said[at : at + steps[0]])
    else:
        found = received(reader, said, steps)
    assert [(m.kind, m.number) for m in found] == [
        (LinkKind.PING, 1),
        (LinkKind.APPEND, 2),
        (LinkKind.PING, 3),
        (LinkKind.APPEND, 4),
    ]
    for message, wait_ms in ((found[1], 5), (found[3], 6)):
        assert message.content == ("q", frames, wait_ms)
    assert reader.room() is None and not reader._data


def test_the_frames_of_a_large_call_are_no_copies() -> None:
    (call,) = received(LinkReader(CALLS), append_call(1, "q", [(0, b"", LARGE)], 0), [70_000])
    ((_, _, body),) = call.content[1]
    assert isinstance(body, memoryview) and body == LARGE


def test_a_small_part_of_a_large_answer_does_not_hold_its_memory() -> None:
    parts = [Fetched(0, (b"s" * 1_000,), 1, 0, 1), Fetched(1, (LARGE,), 1, 0, 1)]
    (answer,) = received(LinkReader(ANSWERS), b"".join(fetched_answer(1, parts)), [70_000])
    assert answer.content == parts
    small, large = (part.chunks[0] for part in answer.content)
    assert isinstance(small, bytes) and isinstance(large, memoryview)


def test_a_length_alone_gets_no_memory() -> None:
    said = append_call(1, "q", [(0, b"", bytes(900_000))], 0)
    reader = LinkReader(CALLS)
    assert reader.feed(said[:OWN_BYTES]) == [] and reader.room() is None
    assert reader.feed(said[OWN_BYTES : OWN_BYTES + 16]) == []
    room = reader.room()
    assert room is not None and len(room) == len(said) - OWN_BYTES - 16


def test_a_large_message_must_end_where_its_head_says() -> None:
    said = bytearray(append_call(1, "q", [(0, b"", LARGE)], 0))
    said[16 + 3 + 4] = 2  # two frames, it says, and there is one
    with pytest.raises(ProtocolError):
        received(LinkReader(CALLS), bytes(said), [70_000])


class _Transport:
    """Takes so many bytes, then is stuck until it is drained; what it could not send it copies."""

    def __init__(self, takes: int) -> None:
        self.takes = self.left = takes
        self.said = bytearray()
        self.copied_bytes = 0
        self.end: ServerEnd

    def set_write_buffer_limits(self, *, high: int) -> None:
        assert high == 0

    def write(self, data: bytes | memoryview) -> None:
        self.said += data
        sent = min(self.left, len(data))
        self.left -= sent
        self.copied_bytes += len(data) - sent
        if sent < len(data):
            self.end.pause_writing()

    def drain(self) -> None:
        self.left = self.takes
        self.end.resume_writing()

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str) -> Any:
        return name


def test_a_large_answer_is_said_piece_by_piece_and_hardly_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_socket, "is_ours", lambda found: True)
    chunks = (LARGE * 5, b"", b"few", LARGE * 4)
    parts = [Fetched(0, chunks, 9, 0, 9), Fetched(1, (LARGE,), 1, 0, 1)]

    async def talk() -> _Transport:
        transport = _Transport(200_000)
        transport.end = end = ServerEnd(SocketServer({}), {})
        end.connection_made(transport)
        end._say(fetched_answer(7, parts))
        end._say([ping(8)])
        turns = 0
        while end._unsaid:
            assert transport.copied_bytes <= (turns + 1) * PIECE_BYTES, "the rest waits"
            turns += 1
            transport.drain()
        assert turns > 5
        end.connection_lost(None)
        return transport

    transport = asyncio.run(talk())
    assert bytes(transport.said) == b"".join(fetched_answer(7, parts)) + ping(8), (
        "in this order, and whole"
    )
