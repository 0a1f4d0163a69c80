"""A Redis stream as a source, on a real server."""

from __future__ import annotations

import pytest
import redis

from pxrs_ray.sources import open_source
from tests.servers import RedisServer
from tests.unit.test_sources import promises

pytestmark = pytest.mark.service


def test_streams_keep_the_promises_of_a_source(redis_server: RedisServer) -> None:
    plain = f"redis://127.0.0.1:{redis_server.port}/5"
    client = redis.Redis.from_url(plain)
    client.delete("orders")

    def add(count: int) -> None:
        for number in range(count):
            client.xadd("orders", {"account": f"a{number}", "payload": b"\xff", "tenant": "t"})

    source = open_source(f"{plain}?stream=orders&key=account")
    promises(source, add)
    record = source.read(0, 1, 0)[0]
    assert (record.key, record.payload) == (b"a0", b"\xff")
    assert record.headers == (("tenant", b"t"),) and record.timestamp_ms > 1_600_000_000_000
    client.xtrim("orders", maxlen=3, approximate=False)
    assert len(source.read(0, 100, 0)) == 3
    source.close()
    client.close()
