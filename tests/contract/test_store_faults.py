"""Servers killed, frozen, silent and cut off, with real servers: nothing lost, no lie, no hang.

Every test goes on with the store that it began with: recovery needs no restart of a topology.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import redis

from pxrs_ray.errors import ConfigError, StoreCorrupted, StoreSchemaError
from pxrs_ray.model import PartitionRow
from pxrs_ray.store import open_store
from pxrs_ray.store.sql.schema import GROUP_TABLES
from pxrs_ray.testing.store_checks.base import commit
from tests.contract.store_faults import (
    APPLIED,
    GROUP,
    Setting,
    eventually,
    led,
    unavailable_in_time,
)
from tests.contract.test_etcd_store import etcdctl
from tests.proxy import Proxy
from tests.servers import EtcdServer, PostgresServer, RedisServer, Server

pytestmark = pytest.mark.service

DEADLINE_MS = 1_500
PATIENT_MS = 60_000


@pytest.fixture(params=["postgresql", "redis", "etcd"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    name = {"postgresql": "postgres"}.get(request.param, request.param)
    server: Server = request.getfixturevalue(f"{name}_server")
    yield server
    server.heal()


def test_killed_and_restarted_amid_commits_it_keeps_all_it_accepted(server: Server) -> None:
    with led(server, deadline_ms=PATIENT_MS) as setting, ThreadPoolExecutor(1) as pool:
        stop = threading.Event()
        writer = pool.submit(setting.commit_until_stopped, stop)
        for _ in range(3):
            _after_commits(setting, 20)
            server.kill()
            accepted = setting.offset
            server.restart()
            assert setting.row().checkpoint >= accepted
        _after_commits(setting, 20)
        stop.set()
        last = writer.result(PATIENT_MS / 1_000)
        assert setting.row() == PartitionRow(0, "A", 1, 1, last)
        assert setting.store.lead(GROUP, 4, "next").generation == setting.generation + 1


def test_while_it_is_down_calls_end_at_the_deadline_and_work_again_after(server: Server) -> None:
    with led(server, deadline_ms=DEADLINE_MS) as setting:
        server.kill()
        told = unavailable_in_time(DEADLINE_MS, lambda: setting.commit(5))
        assert "outcome unknown" in told
        unavailable_in_time(DEADLINE_MS, lambda: setting.store.load(GROUP))
        server.restart()
        assert setting.commit(5) == APPLIED
        assert setting.row().checkpoint == 5


def test_a_connection_that_hangs_is_given_up_at_the_deadline(server: Server) -> None:
    with led(server, deadline_ms=DEADLINE_MS) as setting:
        setting.proxy.hang()
        unavailable_in_time(DEADLINE_MS, lambda: setting.commit(5))
        unavailable_in_time(DEADLINE_MS, lambda: setting.store.expired(GROUP))
        setting.proxy.flow()
        assert setting.commit(6) == APPLIED
        assert setting.row().checkpoint == 6


def test_a_hang_shorter_than_the_deadline_is_sat_out(server: Server) -> None:
    with led(server, deadline_ms=PATIENT_MS) as setting, ThreadPoolExecutor(1) as pool:
        setting.proxy.hang()
        waiting = pool.submit(setting.commit, 5)
        time.sleep(0.3)
        setting.proxy.flow()
        assert waiting.result(PATIENT_MS / 1_000) == APPLIED
        assert setting.row().checkpoint == 5


def test_a_frozen_server_may_apply_late_and_does_no_harm(server: Server) -> None:
    with led(server, deadline_ms=DEADLINE_MS) as setting:
        assert setting.commit(3) == APPLIED
        server.freeze()
        unavailable_in_time(DEADLINE_MS, lambda: setting.commit(5))
        server.thaw()
        assert setting.commit(6) == APPLIED
        assert setting.row() == PartitionRow(0, "A", 1, 1, 6)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_is_neither_success_nor_refusal_but_found_out(
    server: Server, when: str
) -> None:
    """Cut before the server sees the write, or after it applied it: both end as applied once."""
    with led(server, deadline_ms=PATIENT_MS) as setting:
        cut = setting.proxy.cut_before if when == "before" else setting.proxy.cut_after
        cut()
        assert setting.claim(1, 3) == APPLIED
        assert setting.proxy.cuts == 1
        assert setting.row(1) == PartitionRow(1, "A", 1, 1)
        cut()
        assert setting.commit(7) == APPLIED
        assert setting.row().checkpoint == 7
        told = [(change.kind, change.version) for change in setting.store.changes(GROUP, 0)]
        assert told == [("led", 1), ("claim", 2), ("claim", 3)]


def test_connections_cut_at_random_moments_lose_and_double_nothing(server: Server) -> None:
    with led(server, deadline_ms=PATIENT_MS) as setting, ThreadPoolExecutor(1) as pool:
        stop = threading.Event()
        writer = pool.submit(setting.commit_until_stopped, stop)
        for _ in range(10):
            _after_commits(setting, 5)
            setting.proxy.cut()
        stop.set()
        last = writer.result(PATIENT_MS / 1_000)
        assert setting.row() == PartitionRow(0, "A", 1, 1, last)


def test_a_redis_without_persistence_that_restarts_is_noticed_and_refused() -> None:
    with (
        RedisServer("--appendonly", "no") as server,
        led(server, deadline_ms=PATIENT_MS) as setting,
    ):
        assert not setting.store.describe().durable
        assert any("appendonly" in words for words in setting.store.describe().warnings)
        assert setting.commit(5) == APPLIED
        server.restart()
        for _ in range(2):
            with pytest.raises(StoreCorrupted, match="lost or replaced"):
                setting.commit(6)
            with pytest.raises(StoreCorrupted):
                setting.store.lead(GROUP, 4, "next")
        with pytest.raises(StoreCorrupted):
            setting.store.create()


def test_a_redis_that_went_back_to_an_older_state_is_noticed() -> None:
    """As after a power cut or a failover: the same life of the group, but fewer writes."""
    with (
        RedisServer("--appendonly", "no") as server,
        led(server, deadline_ms=PATIENT_MS) as setting,
    ):
        with redis.Redis(port=server.port) as admin:
            admin.save()
        assert setting.commit(5) == APPLIED
        server.restart()
        with pytest.raises(StoreCorrupted, match="went back to write"):
            setting.commit(6)


def test_a_redis_that_may_evict_the_registry_is_refused() -> None:

    with (
        RedisServer("--maxmemory-policy", "allkeys-lru") as server,
        open_store(server.url) as store,
        pytest.raises(ConfigError, match="noeviction"),
    ):
        store.create()
    with (
        RedisServer("--maxmemory-policy", "volatile-ttl") as server,
        open_store(server.url) as store,
    ):
        store.create()
        assert any("volatile" in words for words in store.describe().warnings)


def test_a_postgres_that_does_not_wait_for_its_disk_is_told() -> None:
    with PostgresServer("-c", "synchronous_commit=off") as server, open_store(server.url) as store:
        store.create()
        info = store.describe()
        assert not info.durable
        assert info.warnings == ("synchronous_commit is off: a crash may lose accepted writes",)


@pytest.mark.parametrize("scheme", ["redis", "postgresql", "etcd"])
def test_a_store_that_is_away_is_described_at_once(scheme: str) -> None:
    with open_store(f"{scheme}://127.0.0.1:1/", deadline_ms=10_000) as store:
        began = time.monotonic()
        assert store.describe().backend == scheme
        assert time.monotonic() - began < 1


def test_a_postgres_that_lost_its_registry_is_noticed(postgres_server: PostgresServer) -> None:

    with led(postgres_server, deadline_ms=PATIENT_MS) as setting:
        with psycopg.connect(postgres_server.url, autocommit=True) as admin:
            for table in (*GROUP_TABLES, "pxrs_registry"):
                admin.execute(f"DROP TABLE {table}")
            with pytest.raises(StoreSchemaError):
                setting.commit(5)
        with pytest.raises(StoreCorrupted, match="in its place"):
            setting.store.create()
        with pytest.raises(StoreCorrupted):
            setting.commit(5)
        with pytest.raises(StoreCorrupted):
            setting.claim(1, 3)


def test_an_etcd_endpoint_that_is_frozen_is_passed_over(etcd_server: EtcdServer) -> None:
    """Of two addresses of one server the first, a proxy, stops passing bytes."""

    with Proxy(etcd_server.port) as proxy:
        url = f"etcd://127.0.0.1:{proxy.port},127.0.0.1:{etcd_server.port}/"
        with open_store(url, deadline_ms=6_000) as store:
            store.create()
            store.remove_group(GROUP)
            generation = store.lead(GROUP, 1, "faults").generation
            proxy.hang()
            began = time.monotonic()
            assert store.write(GROUP, generation, [commit(0, 1)])
            assert time.monotonic() - began < 5
            proxy.flow()


def _after_commits(setting: Setting, count: int) -> None:
    """Wait until the writer had `count` more commits acknowledged."""
    reached = setting.offset + count
    eventually("commits go on", lambda: setting.offset >= reached, True)


@pytest.mark.parametrize("scheme", ["redis", "etcd"])
def test_a_registry_of_a_newer_version_is_refused(
    scheme: str, redis_server: RedisServer, etcd_server: EtcdServer
) -> None:
    server = redis_server if scheme == "redis" else etcd_server
    if scheme == "redis":
        with redis.Redis(port=redis_server.port) as admin:
            admin.hset("/newer/registry", mapping={"id": "x", "schema_version": "99"})
    else:
        etcdctl(etcd_server, "put", "/newer/registry", "x;99")
    try:
        with (
            open_store(server.url, prefix="/newer/") as store,
            pytest.raises(StoreSchemaError, match="has version 99"),
        ):
            store.create()
    finally:
        if scheme == "redis":
            with redis.Redis(port=redis_server.port) as admin:
                admin.delete("/newer/registry")
        else:
            etcdctl(etcd_server, "del", "/newer/registry")
