"""The contract suite on SQLite."""

from __future__ import annotations

import os
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


def test_its_files_are_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_store(f"sqlite:///{tmp_path}/registry.db") as store:
            store.create()
            store.lead("g", 1, "test")
            modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert len(modes) == 3 and set(modes.values()) == {0}, modes
