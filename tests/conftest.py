"""Fixtures that every test folder shares: real servers, started once a run and only when asked for.

Rule for a service that is missing: skipped on a developer's machine, a failure where CI is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from tests.servers import EtcdServer, PostgresServer, RedisServer, ServiceMissing, skip_or_fail

AnyServer = TypeVar("AnyServer", EtcdServer, PostgresServer, RedisServer)


def _running(kind: type[AnyServer]) -> Iterator[AnyServer]:
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
    """A Redis server for the whole run; a test that breaks it calls `heal()` at its end."""
    yield from _running(RedisServer)
