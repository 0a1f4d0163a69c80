"""Frames as they ship, of messages that checkers can tell apart.

A frame's body takes as long to make as all that is done with it later, so equal ones are made once,
however many runs need them; and what it says is looked up by its checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import FrameHeader, frames_in, pack_header, unpack_header
from pxrs_ray.model import Offset

STAMP_MS = 1
_KEPT_MAX = 50_000
_Content = tuple[bytes, tuple[str, ...]]
# A place that no log here comes to.
_FAR = 1 << 40
_made: dict[tuple[_Content, bool], tuple[FrameHeader, bytes]] = {}
_content: dict[int, _Content] = {}


@dataclass(frozen=True, slots=True)
class Line:
    """One message, as the log keeps it. Without a text: up to `offset` there is none."""

    offset: Offset
    key: bytes
    message: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Messages in a row: what a batch is here."""

    lines: list[Line]

    @property
    def base_offset(self) -> Offset:
        """Of the first one."""
        return self.lines[0].offset

    @property
    def end_offset(self) -> Offset:
        """Behind the last one."""
        return self.lines[-1].offset + 1

    def __len__(self) -> int:
        return len(self.lines)


def begin_run() -> None:
    """Forget what former runs have made, when that has become much; a run needs all of its own."""
    if len(_content) >= _KEPT_MAX:
        _made.clear()
        _content.clear()


def frame_of(
    key: bytes, messages: tuple[str, ...], *, framed: bool = False
) -> tuple[FrameHeader, bytes]:
    """A frame's header, without a producer's number, and its body. Where it is `framed`, each
    payload is a whole frame of a log, as of somebody who keeps logs in queues."""
    content = (key, messages)
    found = _made.get((content, framed))
    if found is None:
        payloads = [message.encode() for message in messages]
        if framed:
            payloads = [_whole_frame(key, payload) for payload in payloads]
        header, body = _packed(key, payloads)
        found = _made[content, framed] = (unpack_header(header), body)
        _content[found[0].body_checksum] = content
    return found


def _packed(key: bytes, payloads: list[bytes]) -> tuple[bytes, bytes]:
    batch = Batch.of([key] * len(payloads), payloads, timestamp_ms=STAMP_MS)
    header, body = batch.to_wire(bytes(16), 0, 0)
    return header, body.to_pybytes()


def _whole_frame(key: bytes, payload: bytes) -> bytes:
    header, body = _packed(key, [payload])
    return pack_header(unpack_header(header)._replace(base_offset=_FAR)) + body


def learn_frame(header: FrameHeader, content: Callable[[], _Content]) -> None:
    """Know a frame that was made elsewhere by what is in it."""
    if header.body_checksum not in _content:
        _content[header.body_checksum] = content()


def messages_of(header: FrameHeader) -> _Content:
    """The key of a frame, and its messages."""
    return _content[header.body_checksum]


def lines_in(chunks: Sequence[Any], offset: Offset) -> Iterator[Line]:
    """The messages of runs of frames, from `offset` on."""
    for chunk in chunks:
        for header, _ in frames_in(chunk):
            key, messages = _content[header.body_checksum]
            for at, message in enumerate(messages, header.base_offset):
                if at >= offset:
                    yield Line(at, key, message)


def rows_of(lines: Iterator[Line]) -> tuple[Lines, ...]:
    """Messages without a gap between them, together."""
    rows: list[list[Line]] = []
    for line in lines:
        if not rows or rows[-1][-1].offset + 1 != line.offset:
            rows.append([])
        rows[-1].append(line)
    return tuple(map(Lines, rows))
