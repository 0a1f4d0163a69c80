"""The contract suite on a real etcd server."""

from __future__ import annotations

import subprocess

import pytest

from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_contract import StoreContract
from tests.servers import EtcdServer

pytestmark = pytest.mark.service


class TestEtcdStore(StoreContract):
    server: EtcdServer

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
