"""The test servers and the proxy keep their word: fault tests are worth what these do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests.proxy import Proxy
from tests.servers import EtcdServer, PostgresServer, RedisServer, Server, ServiceMissing

pytestmark = pytest.mark.service


def ask(port: int, timeout: float = 5) -> bytes:
    """Send one Redis PING, and answer what came back; b'' when the connection was cut."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(100)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("fixture", ["etcd_server", "postgres_server", "redis_server"])
def test_a_server_survives_kill_restart_and_freeze(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(fixture)
    port = server.port
    assert server._is_up()
    server.kill()
    assert not server._is_up()
    server.restart()
    assert server._is_up() and server.port == port
    server.freeze()
    assert not server._is_up()
    server.thaw()
    assert server._is_up()
    server.kill()
    server.heal()
    assert server._is_up()


def test_data_survives_a_kill(postgres_server: PostgresServer) -> None:
    import psycopg

    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    postgres_server.restart()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
        connection.execute("DROP TABLE kept")


@pytest.mark.parametrize("kind", [RedisServer, EtcdServer, PostgresServer])
def test_close_leaves_neither_process_nor_folder(kind: type[Server]) -> None:
    with kind() as server:
        family = server._family()
        assert family
    assert not server.folder.exists()
    assert not any(member.is_running() for member in family)


def test_a_server_dies_with_the_process_that_started_it() -> None:
    program = (
        "import os; from tests.servers import RedisServer; server = RedisServer().start();"
        "print(server._family()[0].pid, server.folder, flush=True); os._exit(1)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    pid, folder = ended.stdout.split()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not psutil.pid_exists(int(pid))
    subprocess.run(["rm", "-r", folder], check=True)


def test_a_missing_program_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisServer, "program", "no-such-redis")
    with pytest.raises(ServiceMissing, match="no-such-redis is not installed: run `make setup`"):
        RedisServer()


def test_the_proxy_passes_bytes_and_cuts_them(redis_server: RedisServer) -> None:
    with Proxy(redis_server.port) as proxy:
        assert ask(proxy.port) == b"+PONG\r\n"
        proxy.cut_before()
        assert ask(proxy.port) == b""
        proxy.cut_after()
        assert ask(proxy.port) == b""
        assert proxy.cuts == 2
        assert ask(proxy.port) == b"+PONG\r\n"
        proxy.refuse()
        assert ask(proxy.port) == b""
        proxy.flow()
        assert ask(proxy.port) == b"+PONG\r\n"


def test_the_proxy_hangs_and_delays(redis_server: RedisServer) -> None:
    with Proxy(redis_server.port) as proxy:
        proxy.delay(30)
        began = time.monotonic()
        assert ask(proxy.port) == b"+PONG\r\n"
        assert time.monotonic() - began >= 0.06  # there and back
        proxy.flow()
        proxy.hang()
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as connection:
            connection.sendall(b"PING\r\n")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            proxy.flow()
            connection.settimeout(5)
            assert connection.recv(100) == b"+PONG\r\n"
