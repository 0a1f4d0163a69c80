"""`RedisSource`: a Redis stream. An offset is an entry's id: milliseconds * 2**20 + its number.

Rules of this file: no consumer group of Redis is used, for ownership is ours; entries stay until
their writer trims them. One field is the key, one the payload, and all others are headers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pxrs_ray.errors import UsageError
from pxrs_ray.extras import extra
from pxrs_ray.model import Offset
from pxrs_ray.sources.source import Source, SourceRecord

NUMBER_BITS = 20


def offset_of(entry: bytes | str) -> Offset:
    """The offset of an entry's id. Raises UsageError when one millisecond has too many."""
    text = entry.decode() if isinstance(entry, bytes) else entry
    at_ms, _, number = text.partition("-")
    if int(number or 0) >> NUMBER_BITS:
        raise UsageError(f"stream entry {text}: more than a million in one millisecond")
    return int(at_ms) << NUMBER_BITS | int(number or 0)


def entry_of(offset: Offset) -> str:
    """The id that an offset stands for."""
    return f"{offset >> NUMBER_BITS}-{offset & ((1 << NUMBER_BITS) - 1)}"


class RedisSource(Source):
    """See the rules at the head of this file."""

    def __init__(
        self,
        url: str,
        stream: str,
        key: str = "key",
        payload: str = "payload",
        password: str | None = None,
    ) -> None:
        with extra("redis", "a source that is a Redis stream"):
            import redis
        self._client: Any = redis.Redis.from_url(
            url, **({} if password is None else {"password": password})
        )
        self._stream = stream
        self._key, self._payload = key.encode(), payload.encode()

    def end(self) -> Offset:
        """Behind the newest entry."""
        newest = self._client.xrevrange(self._stream, count=1)
        return offset_of(newest[0][0]) + 1 if newest else 0

    def read(self, offset: Offset, records_max: int, wait_ms: int) -> Sequence[SourceRecord]:
        """Entries from the id of `offset` on; Redis wakes a read that waits."""
        found = self._client.xrange(self._stream, min=entry_of(offset), count=records_max)
        if not found and wait_ms:
            after = entry_of(offset - 1) if offset else "0-0"
            told = self._client.xread({self._stream: after}, count=records_max, block=wait_ms)
            found = told[0][1] if told else []
        return [self._record(entry, fields) for entry, fields in found]

    def _record(self, entry: bytes, fields: Mapping[bytes, bytes]) -> SourceRecord:
        offset = offset_of(entry)
        headers = tuple(
            (name.decode(errors="replace"), value)
            for name, value in fields.items()
            if name not in (self._key, self._payload)
        )
        return SourceRecord(
            offset,
            fields.get(self._key),
            fields.get(self._payload, b""),
            offset >> NUMBER_BITS,
            headers,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
