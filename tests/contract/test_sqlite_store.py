"""The contract suite on SQLite."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    def setup_method(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="pxrs-sqlite-")
        super().setup_method()

    def teardown_method(self) -> None:
        super().teardown_method()
        self.folder.cleanup()

    def open_store(self) -> RegistryStore:
        return open_store(f"sqlite:///{Path(self.folder.name) / 'registry.db'}", deadline_ms=20_000)
