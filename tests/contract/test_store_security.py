"""TLS, client certificates and passwords against real servers; and secrets that stay secret."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pxrs_ray.errors import StoreError
from pxrs_ray.model import Outcome, Write, WriteKind
from pxrs_ray.store import open_store
from pxrs_ray.testing.store_checks.base import commit
from tests.contract.certificates import Certificates, make_certificates
from tests.contract.test_etcd_store import etcdctl
from tests.servers import EtcdServer, PostgresServer, RedisServer

pytestmark = pytest.mark.service

SECRET = "top-secret/:@%"
QUOTED = "top-secret%2F%3A%40%25"
GROUP = "security"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def _works(url: str) -> None:
    """A whole turn of a registry at `url`, which shows no secret."""
    with open_store(url, deadline_ms=10_000) as store:
        store.create()
        generation = store.lead(GROUP, 1, "c").generation
        claim = Write(WriteKind.CLAIM, 0, "A", 1, 0, version=99)
        assert store.write(GROUP, generation, [claim, commit(0, 5)]) == [Outcome.APPLIED] * 2
        assert store.expired(GROUP)[0].checkpoint == 5
        store.remove_group(GROUP)
        for shown in (repr(store), repr(store.describe()), repr(vars(store))):
            assert SECRET not in shown and QUOTED not in shown


def _refused(url: str, told: str | None = None) -> None:
    """The registry at `url` cannot be opened, and the error says so without the secret."""
    with (
        open_store(url, deadline_ms=1_500) as store,
        pytest.raises(StoreError, match=told) as raised,
    ):
        store.create()
    assert SECRET not in str(raised.value) and QUOTED not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


class TlsEtcd(EtcdServer):
    """An etcd that speaks TLS with clients, and takes those alone that have a certificate."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(
            *("--cert-file", certificates["server.pem"], "--key-file", certificates["server.key"]),
            *("--client-cert-auth", "--trusted-ca-file", certificates["ca.pem"]),
        )

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def _is_up(self) -> bool:
        return b"ready to serve client requests" in (self.folder / "log").read_bytes()


def test_etcd_with_tls_and_a_client_certificate(certificates: Certificates) -> None:
    with TlsEtcd(certificates) as server:
        base = f"etcds://127.0.0.1:{server.port}/?ca_file={certificates['ca.pem']}"
        mine = f"&cert_file={certificates['client.pem']}&key_file={certificates['client.key']}"
        _works(base + mine)
        _refused(base)
        _refused(f"etcd://127.0.0.1:{server.port}/")


@pytest.fixture
def guarded_etcd() -> Iterator[EtcdServer]:
    """An etcd that wants a password over plaintext, and forgets tokens that idle for 2 s."""
    with EtcdServer("--auth-token-ttl", "2") as server:
        etcdctl(server, "user", "add", f"root:{SECRET}")
        etcdctl(server, "user", "grant-role", "root", "root")
        etcdctl(server, "auth", "enable")
        yield server


def test_etcd_with_a_password(guarded_etcd: EtcdServer) -> None:
    address = f"127.0.0.1:{guarded_etcd.port}"
    _works(f"etcd://root:{QUOTED}@{address}/")
    _refused(f"etcd://root:wrong-{QUOTED}@{address}/", "password")
    _refused(f"etcd://{address}/")


def test_etcd_that_forgot_the_login_is_logged_in_to_again(guarded_etcd: EtcdServer) -> None:
    url = f"etcd://root:{QUOTED}@127.0.0.1:{guarded_etcd.port}/"
    with open_store(url, deadline_ms=10_000) as store:
        store.create()
        generation = store.lead(GROUP, 1, "c").generation
        guarded_etcd.restart()
        claim = Write(WriteKind.CLAIM, 0, "A", 1, 0, version=2)
        assert store.write(GROUP, generation, [claim]) == [Outcome.APPLIED]


def test_redis_with_tls_and_a_password(certificates: Certificates) -> None:
    class TlsRedis(RedisServer):
        def _is_up(self) -> bool:
            return b"Ready to accept connections" in (self.folder / "log").read_bytes()

        def _command(self) -> list[str]:
            command = super()._command()
            command[command.index("--port")] = "--tls-port"
            return [*command, "--port", "0"]

    files = ("--tls-cert-file", certificates["server.pem"], "--tls-key-file")
    more = (certificates["server.key"], "--tls-ca-cert-file", certificates["ca.pem"])
    with TlsRedis(*files, *more, "--requirepass", SECRET) as server:
        base = f"rediss://:{QUOTED}@127.0.0.1:{server.port}/0?ca_file={certificates['ca.pem']}"
        mine = f"&cert_file={certificates['client.pem']}&key_file={certificates['client.key']}"
        _works(base + mine)
        _refused(base)
        _refused((base + mine).replace(QUOTED, f"wrong-{QUOTED}"), "password")
        _refused(f"redis://:{QUOTED}@127.0.0.1:{server.port}/0")


@pytest.fixture(scope="module")
def guarded_postgres(certificates: Certificates) -> Iterator[PostgresServer]:
    """A PostgreSQL with TLS where the user 'guarded' needs TLS and a password."""
    with PostgresServer() as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{SECRET}'")
            admin.execute("CREATE DATABASE guarded OWNER guarded")
        owner = server.folder.stat()
        for name in ("server.pem", "server.key"):
            file = server.folder / "data" / name
            shutil.copy(certificates[name], file)
            os.chown(file, owner.st_uid, owner.st_gid)
            file.chmod(0o600)
        with (server.folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write("ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.key'\n")
        rules = "host all pxrs 127.0.0.1/32 trust\nhostssl all guarded 127.0.0.1/32 scram-sha-256\n"
        (server.folder / "data" / "pg_hba.conf").write_text(rules)
        server.restart()
        yield server


def test_postgres_with_tls_and_a_password(
    guarded_postgres: PostgresServer, certificates: Certificates, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{guarded_postgres.port}/guarded"
    tls = f"tls=true&ca_file={certificates['ca.pem']}"
    _works(f"postgresql://guarded:{QUOTED}@{address}?{tls}")
    _works(f"postgresql://guarded:{QUOTED}@{address}?sslmode=require")
    file = tmp_path / "password"
    file.write_text(SECRET)
    _works(f"postgresql://guarded@{address}?{tls}&password_file={file}")
    _refused(f"postgresql://guarded:wrong-{QUOTED}@{address}?{tls}", "password")
    _refused(f"postgresql://guarded:{QUOTED}@{address}?sslmode=disable", "no encryption")
    other = make_certificates(tmp_path)
    _refused(f"postgresql://guarded:{QUOTED}@{address}?tls=true&ca_file={other['ca.pem']}")
