"""The contract suite on a real etcd server."""

from __future__ import annotations

import subprocess

import pytest

from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_contract import StoreContract
from tests.contract.store_faults import RACE_ROUNDS
from tests.servers import EtcdServer

pytestmark = pytest.mark.service


class TestEtcdStore(StoreContract):
    server: EtcdServer
    claim_race_rounds = RACE_ROUNDS

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, etcd_server: EtcdServer) -> None:
        cls.server = etcd_server

    def setup_method(self) -> None:
        self.keys_before: set[str] = set()
        super().setup_method()
        self.keys_before = set(self.keys())

    def open_store(self) -> RegistryStore:
        return open_store(self.server.url, deadline_ms=20_000)

    def keys(self) -> list[str]:
        return etcdctl(self.server, "get", "/", "--prefix", "--keys-only")

    def leaks(self) -> list[str]:
        leases = etcdctl(self.server, "lease", "list")[1:]
        return super().leaks() + leases + sorted(set(self.keys()) - self.keys_before)


def etcdctl(server: EtcdServer, *arguments: str) -> list[str]:
    command = ["etcdctl", "--endpoints", server.endpoint, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=20, check=True, env={"ETCDCTL_API": "3"}
    )
    return done.stdout.splitlines()


def test_a_document_that_lost_a_piece_is_corrupt_and_not_taken_for_removed(
    etcd_server: EtcdServer,
) -> None:
    group = "lost-piece"
    with open_store(etcd_server.url, deadline_ms=20_000) as store:
        generation = store.lead(group, 1, "me").generation
        store.put_document(group, generation, "homes", "h" * 600_000)
        pieces = [
            key
            for key in etcdctl(etcd_server, "get", "/", "--prefix", "--keys-only")
            if group in key and key.endswith("/000001")
        ]
        assert len(pieces) == 1
        etcdctl(etcd_server, "del", pieces[0])
        with pytest.raises(StoreCorrupted, match="2 of 3 pieces"):
            store.documents(group)
        store.put_document(group, generation, "homes", "")
        assert dict(store.documents(group)) == {}
