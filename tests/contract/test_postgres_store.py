"""The contract suite on a real PostgreSQL server."""

from __future__ import annotations

import psycopg
import pytest

from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_contract import StoreContract
from tests.contract.store_faults import RACE_ROUNDS
from tests.servers import PostgresServer

pytestmark = pytest.mark.service


class TestPostgresStore(StoreContract):
    server: PostgresServer
    claim_race_rounds = RACE_ROUNDS

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, postgres_server: PostgresServer) -> None:
        cls.server = postgres_server

    def open_store(self) -> RegistryStore:
        return open_store(self.server.url, deadline_ms=20_000)

    def leaks(self) -> list[str]:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            query = "SELECT query FROM pg_stat_activity WHERE application_name = 'pxrs'"
            left = [f"connection after {row[0]}" for row in connection.execute(query).fetchall()]
        return super().leaks() + left
