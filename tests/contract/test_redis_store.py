"""The contract suite on a real Redis server."""

from __future__ import annotations

import pytest
import redis

from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_contract import StoreContract
from tests.contract.store_faults import RACE_ROUNDS
from tests.servers import RedisServer

pytestmark = pytest.mark.service


class TestRedisStore(StoreContract):
    server: RedisServer
    claim_race_rounds = RACE_ROUNDS

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, redis_server: RedisServer) -> None:
        cls.server = redis_server

    def setup_method(self) -> None:
        self.keys_before: set[str] = set()
        super().setup_method()
        self.keys_before = set(self.keys())

    def open_store(self) -> RegistryStore:
        return open_store(self.server.url, deadline_ms=20_000)

    def keys(self) -> list[str]:
        with redis.Redis(port=self.server.port, decode_responses=True) as client:
            return sorted(client.keys())

    def leaks(self) -> list[str]:
        with redis.Redis(port=self.server.port, decode_responses=True) as client:
            connections = [c for c in client.client_list() if c["name"] == "pxrs"]
        left = [f"connection of {connection['cmd']}" for connection in connections]
        return super().leaks() + left + sorted(set(self.keys()) - self.keys_before)
