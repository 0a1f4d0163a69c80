"""The contract suite on the Oracle stand-in, or on a real database (see `oracle_fixture`)."""

from __future__ import annotations

import pytest

from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_contract import StoreContract
from tests.contract.oracle_fixture import OracleServer
from tests.contract.store_faults import RACE_ROUNDS

pytestmark = pytest.mark.service


class TestOracleStore(StoreContract):
    server: OracleServer

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, oracle_server: OracleServer) -> None:
        cls.server = oracle_server
        # The races in full on one engine; the other is there for its SQL.
        on_h2 = oracle_server.stand_in is not None and oracle_server.stand_in.engine == "h2"
        cls.claim_race_rounds = RACE_ROUNDS // 4 if on_h2 else RACE_ROUNDS

    def open_store(self) -> RegistryStore:
        return open_store(self.server.url, deadline_ms=20_000)

    def leaks(self) -> list[str]:
        # One thread of the driver, started with the process's first pool, ends with the process.
        return [leak for leak in super().leaks() if "close_pools_gracefully" not in leak]
