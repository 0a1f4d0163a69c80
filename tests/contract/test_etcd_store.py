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

    def open_store(self) -> RegistryStore:
        return open_store(self.server.url, deadline_ms=20_000)

    def leaks(self) -> list[str]:
        return super().leaks() + etcdctl(self.server, "lease", "list")[1:] + self._keys()

    def _keys(self) -> list[str]:
        found = etcdctl(self.server, "get", "/", "--prefix", "--keys-only")
        return [key for key in found if key and key != "/pxrs/registry"]


def etcdctl(server: EtcdServer, *arguments: str) -> list[str]:
    command = ["etcdctl", "--endpoints", server.endpoint, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=20, check=True, env={"ETCDCTL_API": "3"}
    )
    return done.stdout.splitlines()
