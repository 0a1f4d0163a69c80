"""`LinkReader`: cuts what comes on a stream into messages. Pure.

Rules of this file. A length is checked against its bound before anything is kept. What is small is
gathered, and read as copies. A large message is received where it stays, in memory of its own, and
its frames are views of that: whoever keeps one keeps that memory. A violation raises ProtocolError.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pxrs_ray.data.link_messages import HEAD, VERSION, LinkKind, LinkMessage, content_of
from pxrs_ray.errors import ProtocolError

# A message of which so much is here, and more is missing, gets memory of its own.
OWN_BYTES = 64 << 10


class LinkReader:
    """Cuts a stream into messages of the `kinds` that this end takes, each with its bound."""

    def __init__(self, kinds: Mapping[LinkKind, int]) -> None:
        self._kinds = {int(kind): most for kind, most in kinds.items()}
        self._data = bytearray()
        # The large message that is under way: what it is, its memory, and how much has come.
        self._large: tuple[LinkKind, int, memoryview] | None = None
        self._came = 0

    def room(self) -> memoryview | None:
        """Where the rest of a large message belongs: receive it there, and say `came`. None where
        none is under way: what comes is for `feed`."""
        return None if self._large is None else self._large[2][self._came :]

    def came(self, count: int) -> list[LinkMessage]:
        """So many bytes were received into `room`. Raises ProtocolError."""
        assert self._large is not None, "there was room"
        kind, number, content = self._large
        self._came += count
        if self._came < len(content):
            return []
        self._large = None
        return [LinkMessage(kind, number, content_of(kind, content, is_own=True))]

    def feed(self, data: bytes | memoryview) -> list[LinkMessage]:
        """Every message that is whole now. Raises ProtocolError."""
        room = self.room()
        if room is None:
            self._data += data
            return self._cut()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        found = self.came(count)
        if count < len(data):
            self._data += data[count:]
            found += self._cut()
        return found

    def _cut(self) -> list[LinkMessage]:
        found, position = [], 0
        while len(self._data) >= position + HEAD.size:
            version, kind, nothing, size, number = HEAD.unpack_from(self._data, position)
            if version != VERSION or nothing:
                raise ProtocolError(f"version {version} of the protocol: this is {VERSION}")
            if kind not in self._kinds or size > self._kinds[kind]:
                raise ProtocolError(f"a message of kind {kind} and {size} bytes is not taken here")
            start = position + HEAD.size
            end = start + size
            if len(self._data) < end:
                if len(self._data) - start >= OWN_BYTES:
                    self._begin_large(LinkKind(kind), number, size, start)
                    position = len(self._data)
                break
            with memoryview(self._data) as view, view[start:end] as content:
                what = LinkKind(kind)
                found.append(LinkMessage(what, number, content_of(what, content)))
            position = end
        del self._data[:position]
        return found

    def _begin_large(self, kind: LinkKind, number: int, size: int, start: int) -> None:
        """Memory is for what has come to a good part: a length alone gets none."""
        content = np.empty(size, np.uint8).data
        self._came = len(self._data) - start
        content[: self._came] = memoryview(self._data)[start:]
        self._large = (kind, number, content)
