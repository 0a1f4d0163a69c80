"""Locked files, full disks, full memory, killed processes: refused in time, and nothing lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from pxrs_ray.errors import StoreCorrupted, StoreUnavailable
from pxrs_ray.model import Outcome, Write, WriteKind
from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.testing.store_checks.base import commit
from tests.contract.store_faults import APPLIED, GROUP, led, unavailable_in_time
from tests.contract.test_etcd_store import etcdctl
from tests.servers import EtcdServer, PostgresServer, RedisServer

DEADLINE_MS = 500
PATIENT_MS = 20_000
NO_SPACE_BYTES = 20_000
WAL_SEGMENT_BYTES = 16 << 20
WAL_LEFT_BYTES = 256 << 10

WRITER = """
import sys
from pxrs_ray.store import open_store
from pxrs_ray.testing.store_checks.base import commit
store = open_store(sys.argv[1], deadline_ms=20_000)
for offset in range(1, 1_000_000):
    (outcome,) = store.write(sys.argv[2], int(sys.argv[3]), [commit(0, offset)])
    assert outcome == "applied", outcome
    print(offset, flush=True)
"""


@contextmanager
def _led_file(path: Path, deadline_ms: int) -> Iterator[tuple[RegistryStore, int]]:
    """A store on the file `path` whose one group is led and partition 0 owned."""
    with open_store(f"sqlite:///{path}", deadline_ms=deadline_ms) as store:
        store.create()
        generation = store.lead(GROUP, 4, "faults").generation
        claim = Write(WriteKind.CLAIM, 0, "A", 1, 0, version=2)
        assert store.write(GROUP, generation, [claim]) == APPLIED
        yield store, generation


def test_sqlite_locked_by_another_for_too_long_is_given_up_in_time(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with (
        _led_file(path, DEADLINE_MS) as (store, generation),
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        told = unavailable_in_time(
            DEADLINE_MS, lambda: store.write(GROUP, generation, [commit(0, 1)])
        )
        assert "locked" in told
        assert store.load(GROUP) is not None, "readers wait for no writer"
        other.execute("ROLLBACK")
        assert store.write(GROUP, generation, [commit(0, 1)]) == APPLIED


def test_sqlite_locked_by_another_for_a_while_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with (
        _led_file(path, PATIENT_MS) as (store, generation),
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        waiting = pool.submit(store.write, GROUP, generation, [commit(0, 1)])
        time.sleep(0.3)
        assert not waiting.done()
        other.execute("ROLLBACK")
        assert waiting.result(PATIENT_MS / 1_000) == APPLIED


def test_sqlite_keeps_what_a_killed_process_had_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with _led_file(path, PATIENT_MS) as (store, generation):
        command = [sys.executable, "-c", WRITER, f"sqlite:///{path}", GROUP, str(generation)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        accepted = 0
        for line in writer.stdout:
            accepted = int(line)
            if accepted == 200:
                writer.send_signal(signal.SIGKILL)
        writer.stdout.close()
        assert writer.wait(20) == -signal.SIGKILL
        found = store.load(GROUP)
        assert found is not None
        assert found.partitions[0].checkpoint in (accepted, accepted + 1)
        outcome = store.write(GROUP, generation, [commit(0, accepted + 1)])
        assert outcome == APPLIED, "the file is not left locked"


def test_sqlite_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with _led_file(path, PATIENT_MS) as (store, generation):
        others = [Write(WriteKind.CLAIM, p, "A", 1, 0, version=2 + p) for p in range(1, 4)]
        assert store.write(GROUP, generation, others) == APPLIED * 3
        program = WRITER.replace("1_000_000", "101").replace(
            "commit(0,", "commit(int(sys.argv[4]),"
        )
        base = [sys.executable, "-c", program, f"sqlite:///{path}", GROUP, str(generation)]
        writers = [subprocess.Popen([*base, str(p)], stdout=subprocess.DEVNULL) for p in range(4)]
        assert [writer.wait(60) for writer in writers] == [0] * 4
        found = store.load(GROUP)
        assert found is not None
        assert [row.checkpoint for row in found.partitions] == [100] * 4


def test_a_sqlite_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with _led_file(path, PATIENT_MS) as (store, generation):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("DELETE FROM pxrs_partition")
            other.execute("DELETE FROM pxrs_group")
            other.execute(
                "UPDATE pxrs_registry SET setting_value = 'x' WHERE setting_name = 'registry_id'"
            )
        with pytest.raises(StoreCorrupted, match="lost or replaced"):
            store.write(GROUP, generation, [commit(0, 1)])


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of its own of 1 MB; making one takes root's rights."""
    with tempfile.TemporaryDirectory(prefix="pxrs-small-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except OSError as error:
            pytest.skip(f"no file system can be mounted here: {error}")
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True, timeout=20)


def test_sqlite_on_a_full_disk_refuses_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    path, filler = small_disk / "registry.db", small_disk / "filler"
    with _led_file(path, DEADLINE_MS) as (store, generation):
        _fill(filler)
        accepted, told = 0, ""
        for offset in range(1, 10_000):
            try:
                detail = f"{offset:01000d}"
                outcome = store.write(GROUP, generation, [commit(0, offset, detail=detail)])
                assert outcome == APPLIED
                accepted = offset
            except StoreUnavailable as error:
                told = str(error)
                break
        assert "full" in told or "disk" in told
        found = store.load(GROUP)
        assert found is not None and found.partitions[0].checkpoint == accepted
        filler.unlink()
        assert store.write(GROUP, generation, [commit(0, accepted + 1)]) == APPLIED


def _fill(filler: Path) -> None:
    """Take what is left of a file system."""
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4_096))
        except OSError:
            return


@pytest.mark.service
def test_redis_with_its_memory_full_refuses_and_goes_on_when_there_is_room(
    redis_server: RedisServer,
) -> None:
    with led(redis_server, deadline_ms=DEADLINE_MS) as setting:
        with redis.Redis(port=redis_server.port) as admin:
            admin.config_set("maxmemory", 1)
            try:
                told = unavailable_in_time(DEADLINE_MS, lambda: setting.commit(5))
                assert "memory" in told.lower()
                assert setting.row().checkpoint == 0
            finally:
                admin.config_set("maxmemory", 0)
        assert setting.commit(5) == APPLIED


@pytest.mark.service
def test_etcd_with_its_quota_used_up_refuses_and_goes_on_when_there_is_room() -> None:
    with (
        EtcdServer("--quota-backend-bytes", "1000000") as server,
        led(server, deadline_ms=DEADLINE_MS) as setting,
    ):

        def put(text: str) -> Outcome:
            return setting.store.put_document(GROUP, setting.generation, "d", text)

        accepted = tried = ""
        # etcd does not count what transactions inside of transactions write, so no commits here.
        with pytest.raises(StoreUnavailable, match="space"):
            for number in range(1_000):
                tried = str(number) * 10_000
                assert put(tried) is Outcome.APPLIED
                accepted = tried
        # Reading goes on. The last one may be there all the same: unavailable is not refused.
        assert setting.store.documents(GROUP)["d"] in (accepted, tried)
        status = etcdctl(server, "endpoint", "status", "-w", "fields")
        revision = next(line for line in status if "Revision" in line).rpartition(" ")[2]
        etcdctl(server, "compact", revision, "--physical")
        etcdctl(server, "defrag")
        etcdctl(server, "alarm", "disarm")
        assert put("again") is Outcome.APPLIED


def _use_up_wal(server: PostgresServer) -> None:
    """Leave a last part of the segment that lies ready: thousands of commits would come to it."""
    left = "SELECT %s - mod(pg_current_wal_insert_lsn() - '0/0'::pg_lsn, %s)"
    with psycopg.connect(server.url, autocommit=True) as admin:
        while admin.execute(left, [WAL_SEGMENT_BYTES] * 2).fetchone()[0] > 2 * WAL_LEFT_BYTES:
            admin.execute(
                "SELECT pg_logical_emit_message(false, 'filler', %s)", ["x" * WAL_LEFT_BYTES]
            )


@pytest.mark.service
def test_postgres_on_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    server = PostgresServer("-c", "wal_recycle=off", "-c", "max_wal_size=32MB")
    owner = server.folder.stat()
    options = f"size=120m,uid={owner.st_uid},gid={owner.st_gid},mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(server.folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, timeout=20).returncode:
        server.close()
        pytest.skip("no file system can be mounted here")
    filler = server.folder / "filler"
    try:
        with server, led(server, deadline_ms=2_000) as setting:
            _fill(filler)
            _use_up_wal(server)
            accepted = 0
            with pytest.raises(StoreUnavailable):
                for offset in range(1, 100_000):
                    outcomes = setting.store.write(
                        GROUP, setting.generation, [commit(0, offset, detail="x" * 2_000)]
                    )
                    assert outcomes == APPLIED
                    accepted = offset
            assert accepted > 0
            filler.unlink()
            server.restart()
            assert setting.row().checkpoint in (accepted, accepted + 1)
            assert setting.commit(accepted + 1) == APPLIED
            with psycopg.connect(server.url) as admin:
                assert admin.execute("SELECT count(*) FROM pxrs_partition").fetchone() == (4,)
    finally:
        subprocess.run(["umount", "--lazy", str(server.folder)], check=False, timeout=20)
        server.close()
