"""Real etcd, PostgreSQL and Redis servers for tests, on free ports and in folders of their own.

Rules of this file: a server never outlives the test process (the kernel kills it when the thread
that started it ends, so start it from the main thread), listens on 127.0.0.1 alone, and comes back
on the same port with the same data after `restart`. Every wait has a deadline, and a server that
does not come up shows its log's end.

    with RedisServer() as server:
        server.kill()       # as a power cut: SIGKILL to every process of it
        server.restart()
        server.freeze()     # SIGSTOP: connections stay open and nothing answers
        server.thaw()
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

START_SECONDS_MAX = 60
END_SECONDS_MAX = 20
PR_SET_PDEATHSIG = 1
LOG_TAIL_BYTES = 2_000


class ServiceMissing(Exception):
    """Raised when a server's program is not installed here; the text says how to get it."""


def skip_or_fail(reason: str) -> None:
    """Skip the test on a developer's machine, fail it where CI is set: CI must have it all."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (CI is set, so this is not skipped)")
    pytest.skip(reason)


def free_port() -> int:
    """Name a port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_program(name: str, package: str) -> str:
    """Find a server's program, also where Debian keeps those that are not on the PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name)
    )
    places = [os.environ.get("PATH", ""), "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"]
    places += [str(path) for path in reversed(versions)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise ServiceMissing(f"{name} is not installed: run `make setup` as root, or get {package}")
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """One server and its folder. Subclasses say which program, how to start it, when it is up."""

    name = ""
    program = ""
    package = ""

    def __init__(self, *options: str) -> None:
        self._program = find_program(self.program, self.package)
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[psutil.Process] = []
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"pxrs-{self.name}-"))

    @property
    def url(self) -> str:
        """The address as a store URL."""
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _is_up(self) -> bool:
        raise NotImplementedError

    def _popen_options(self) -> dict[str, Any]:
        return {}

    def start(self) -> Self:
        """Start the server, and return when it answers."""
        assert self._process is None, f"{self.name} runs already"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                **self._popen_options(),
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.name} did not start:\n{self.log_tail()}")
            time.sleep(0.02)
        return self

    def log_tail(self) -> str:
        """The end of the server's own log, for a failure's message."""
        return (self.folder / "log").read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def _family(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        try:
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL every process of the server, as a power cut would; its data stays."""
        if self._process is None:
            return
        family = self._family()
        for member in family:
            _send(member, signal.SIGKILL)
        self._process.wait(END_SECONDS_MAX)
        psutil.wait_procs(family, END_SECONDS_MAX)
        self._process = None
        self._frozen = []

    def restart(self) -> None:
        """Bring the server back on the same port with the same data; kills it when it runs."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP every process: connections stay open, and nothing answers when this returns."""
        self._frozen = self._family()
        for member in self._frozen:
            _send(member, signal.SIGSTOP)
        # A signal reaches threads one by one; a server on a busy machine goes on until then.
        deadline = time.monotonic() + END_SECONDS_MAX
        while not all(map(_stands, self._frozen)):
            assert time.monotonic() < deadline, f"{self.name} does not stop"
            time.sleep(0.001)

    def thaw(self) -> None:
        """Let a frozen server go on where it stopped; harmless on one that runs."""
        for member in self._frozen:
            _send(member, signal.SIGCONT)
        self._frozen = []

    def heal(self) -> None:
        """Bring a server that a test froze or killed back to work, for the next test."""
        self.thaw()
        if self._process is None or self._process.poll() is not None:
            self.restart()

    def close(self) -> None:
        """End the server and remove its folder; calling it again is harmless."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def _stands(process: psutil.Process) -> bool:
    """Whether every thread of a process is stopped, or the process is gone."""
    try:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        stats = [(thread / "stat").read_text() for thread in threads]
    except FileNotFoundError:
        return not process.is_running()
    return all(stat.rpartition(") ")[2][0] in "TtZX" for stat in stats)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass


class RedisServer(Server):
    """Redis with its append-only file on; pass other settings as options ('--appendfsync', ...)."""

    name = "redis"
    program = "redis-server"
    package = "the package redis-server"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        fixed = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        kept = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        return [self._program, *fixed, *kept, *self._options]

    def _is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) in (b"+PONG", b"-NOAU")
        except OSError:
            return False


class EtcdServer(Server):
    """One etcd member that compacts by itself, as a production one must."""

    name = "etcd"
    program = "etcd"
    package = "the package etcd-server"

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self._peer_port = free_port()

    @property
    def url(self) -> str:
        return f"etcd://127.0.0.1:{self.port}/"

    @property
    def endpoint(self) -> str:
        """The address as etcd's own tools write it."""
        return f"http://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        peer = f"http://127.0.0.1:{self._peer_port}"
        options = {
            "--data-dir": str(self.folder / "data"),
            "--listen-client-urls": self.endpoint,
            "--advertise-client-urls": self.endpoint,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"default={peer}",
            "--auto-compaction-mode": "periodic",
            "--auto-compaction-retention": "5m",
        }
        given = [part for option in options.items() for part in option]
        return [self._program, *given, *self._options]

    def _popen_options(self) -> dict[str, Any]:
        return {"env": os.environ | {"ETCD_UNSUPPORTED_ARCH": os.uname().machine}}

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except OSError:
            return False


class PostgresServer(Server):
    """PostgreSQL with one database `pxrs` of the user `pxrs`, who needs no password."""

    name = "postgres"
    program = "postgres"
    package = "the package postgresql"

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            account = _unprivileged_account()
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    @property
    def url(self) -> str:
        return f"postgresql://pxrs@127.0.0.1:{self.port}/postgres"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def start(self) -> Self:
        if not self._data.exists():
            initdb = str(Path(self._program).resolve().with_name("initdb"))
            how = ["--username=pxrs", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
            made = subprocess.run(
                [initdb, "--pgdata", str(self._data), *how],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=START_SECONDS_MAX,
                **self._user,
            )
            if made.returncode:
                raise RuntimeError(f"initdb failed:\n{made.stderr.decode(errors='replace')}")
        return super().start()

    def _command(self) -> list[str]:
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        where = ["-D", str(self._data), "-p", str(self.port)]
        return [self._program, *where, *settings, *self._options]

    def _popen_options(self) -> dict[str, Any]:
        return self._user

    def _is_up(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, connect_timeout=1):
                return True
        except psycopg.OperationalError:
            return False


def _unprivileged_account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServiceMissing("PostgreSQL refuses to run as root, and there is no user to run it as")
