"""Store URLs: what they say, where secrets come from and never go, and what is refused how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pxrs_ray.errors import ConfigError
from pxrs_ray.store import open_store, parse_store_url
from pxrs_ray.store.memory import MemoryStore

SECRET = "hunter2-very:secret"
QUOTED = "hunter2-very%3Asecret"


def test_a_url_with_everything() -> None:
    url = parse_store_url(
        f"postgresql://user:{QUOTED}@db1:5433,db2/pxrs?sslmode=require&tls=true&ca_file=/ca", {}
    )
    assert url.scheme == "postgresql"
    assert url.hosts == (("db1", 5433), ("db2", None))
    assert (url.path, url.user, url.password) == ("/pxrs", "user", SECRET)
    assert (url.tls, url.ca_file, url.options) == (True, "/ca", {"sslmode": "require"})


@pytest.mark.parametrize("text", ["etcd://[::1]:2379/p", "etcd://[::1]/p"])
def test_addresses_of_ip_version_6(text: str) -> None:
    assert parse_store_url(text, {}).hosts[0][0] == "::1"


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "etcd", "oracle", "postgresql", "redis"])
def test_a_scheme_alone_is_a_url(scheme: str) -> None:
    assert parse_store_url(f"{scheme}:", {}).scheme == scheme


def test_an_s_means_tls() -> None:
    for text, scheme in (("rediss://h", "redis"), ("etcds://h", "etcd")):
        url = parse_store_url(text, {})
        assert (url.scheme, url.tls) == (scheme, True)


def test_where_passwords_come_from(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    common = {"PXRS_STORE_PASSWORD": "common", "MINE": "mine", "PXRS_STORE_USER": "them"}
    found = {
        text: parse_store_url(text, common).password
        for text in (
            f"redis://u:{QUOTED}@h",
            f"redis://h?password_file={file}",
            "redis://h?password_env=MINE",
            "redis://h",
        )
    }
    assert list(found.values()) == [SECRET, SECRET, "mine", "common"]
    assert parse_store_url("redis://h", {"PXRS_STORE_PASSWORD_FILE": str(file)}).password == SECRET
    assert parse_store_url("redis://h", {}).password is None
    assert parse_store_url("redis://h", common).user == "them"
    assert parse_store_url("redis://me@h", common).user == "me"


def test_a_password_that_cannot_be_had_is_told() -> None:
    with pytest.raises(ConfigError, match="no variable 'NOPE'"):
        parse_store_url("redis://h?password_env=NOPE", {})
    with pytest.raises(ConfigError, match="password_file"):
        parse_store_url("redis://h?password_file=/no/such/file", {})


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://user:{QUOTED}@db/pxrs",
        f"oracle://user:{QUOTED}@db:1521/service?wallet_password={QUOTED}",
        f"redis://:{QUOTED}@cache",
        f"etcd://user:{QUOTED}@kv:2379/pxrs",
    ],
)
def test_a_secret_is_shown_nowhere(text: str) -> None:
    url = parse_store_url(text, {})
    assert url.password == SECRET
    for shown in (url.shown, repr(url), str(url), url.scrub(f"login {SECRET} failed")):
        assert SECRET not in shown and QUOTED not in shown and "hunter2" not in shown
    assert "***" in url.shown or url.user is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sqllite:///f", "did you mean 'sqlite'"),
        ("postgres://h/db", "did you mean 'postgresql'"),
        ("etcd3://h", "did you mean 'etcd'"),
        ("mysql://h/db", "starts with one of"),
        ("/a/path", "starts with one of"),
        ("", "starts with one of"),
        ("redis://h:port", "port that is not a number"),
        ("redis://h?tls=maybe", "tls='maybe'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_store_url(text, {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("redis://h?dbb=3", "unknown option 'dbb', did you mean 'db'"),
        ("redis://h/name", "number of a database"),
        ("postgresql://h/db?sslmod=require", "did you mean 'sslmode'"),
        ("postgresql://h/db/more", "the name of one database"),
        ("oracle://h", "names no service"),
        ("etcd://h?cert_file=/c", "come together"),
        ("sqlite:", "needs a file"),
        ("sqlite:///no/such/folder/f.db", "sqlite:////no/such/folder/f.db"),
        ("memory:?x=1", "unknown option 'x'"),
    ],
)
def test_what_a_backend_does_not_know_is_refused_with_a_hint(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_store(text)


def test_a_deadline_has_a_least_value() -> None:
    with pytest.raises(ConfigError, match="deadline_ms is 10"):
        open_store("memory:", deadline_ms=10)


def test_sqlite_alone_is_a_file_in_the_data_folder(tmp_path: Path) -> None:
    with open_store("sqlite:", data_folder=tmp_path) as store:
        store.create()
        assert store.describe().url == f"sqlite:///{tmp_path / 'registry.db'}"
    assert (tmp_path / "registry.db").exists()


def test_sqlite_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("sqlite:///relative.db", f"sqlite:///{tmp_path}/absolute.db"):
        with open_store(text) as store:
            store.create()
    assert {path.name for path in tmp_path.glob("*.db")} == {"relative.db", "absolute.db"}


@pytest.mark.parametrize(
    ("path", "prefix", "whole"),
    [
        ("", "/pxrs/", "/pxrs/"),
        ("/", "/pxrs/", "/pxrs/"),
        ("/pxrs", "/pxrs/", "/pxrs/"),
        ("/pxrs/", "/pxrs/", "/pxrs/"),
        ("/team/", "/pxrs/", "/team/pxrs/"),
        ("/team/pxrs", "/pxrs/", "/team/pxrs/"),
    ],
)
def test_the_path_of_an_etcd_url_stands_before_the_prefix(
    path: str, prefix: str, whole: str
) -> None:
    from pxrs_ray.store.etcd.etcd_store import _whole_prefix

    assert _whole_prefix(path, prefix) == whole


def test_memory_is_a_registry_of_its_own() -> None:
    with open_store("memory:") as one, open_store("memory:") as other:
        assert isinstance(one, MemoryStore)
        assert one.create() != other.create()


def test_no_driver_is_loaded_before_its_url_is_opened() -> None:
    program = (
        "import sys; from pxrs_ray.store import open_store, parse_store_url;"
        "open_store('memory:').close();"
        "loaded = {'psycopg', 'oracledb', 'redis', 'etcd3', 'grpc', 'sqlite3'} & set(sys.modules);"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
