"""Fixtures that every test folder shares: real servers, started once a run and only when asked for.

Rule for a service that is missing: skipped on a developer's machine, a failure where CI is set.
No test joins a Ray that happens to run here, or one that was killed and left a note of itself:
whoever starts Ray without an address gets one of its own.
Property tests draw the same examples each time; HYPOTHESIS_PROFILE=explore draws new ones.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import hypothesis
import pytest

from tests.light_ray import begin_processes_by_forks
from tests.servers import EtcdServer, PostgresServer, RedisServer, ServiceMissing, skip_or_fail

# No deadline an example: the machines that run this are shared and noisy.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

os.environ["RAY_ADDRESS"] = "local"
begin_processes_by_forks()


@pytest.fixture(autouse=True)
def no_ray_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of Ray's where none runs is an error: Ray would start a cluster for it, and leave it
    to every test that comes after."""
    if "ray" in sys.modules:
        monkeypatch.setattr("ray._private.auto_init_hook.enable_auto_connect", False)


def pytest_collection_finish() -> None:
    """Let the garbage collector look through what tests make, not through all that was imported.

    The stores' tests collect twice a test, worlds at each end: that was half of all they took.
    """
    gc.collect()
    gc.freeze()


AnyServer = TypeVar("AnyServer", EtcdServer, PostgresServer, RedisServer)


def _running(kind: Callable[[], AnyServer]) -> Iterator[AnyServer]:
    try:
        server = kind()
    except ServiceMissing as missing:
        skip_or_fail(str(missing))
        raise
    with server:
        yield server


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[EtcdServer]:
    """An etcd member for the whole run; a test that breaks it calls `heal()` at its end."""
    yield from _running(EtcdServer)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole run; a test that breaks it calls `heal()` at its end."""
    yield from _running(PostgresServer)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server for the whole run; a test that breaks it calls `heal()` at its end.

    It is killed amid writes, and what it accepted must be there: with `everysec` it keeps up to
    two seconds to itself while the disk is slow, and takes that with it.
    """
    yield from _running(lambda: RedisServer("--appendfsync", "always"))
