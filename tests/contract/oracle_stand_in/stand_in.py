"""`OracleStandIn`: what a test holds of the server that stands in for an Oracle Database.

The server runs in a process of its own (see `server.py`), which ends with this one. What differs
from a real Oracle is told in DIFFERENCES.md beside this file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.contract.oracle_stand_in.faults import Fault
from tests.contract.oracle_stand_in.jars import JARS

_ROOT = Path(__file__).parents[3]
_START_SECONDS_MAX = 60.0
_ANSWER_SECONDS_MAX = 30.0
_END_SECONDS_MAX = 5.0


class StandInMissing(Exception):
    """Raised when something that the stand-in needs is not installed; the message says what."""


class StandInFailed(Exception):
    """Raised when the stand-in's process does not start, does not answer or answers an error."""


def missing() -> str | None:
    """What is not installed of what the stand-in needs; None when all is there."""
    if shutil.which("java") is None:
        return "Java: apt-get install openjdk-17-jre-headless"
    absent = [f"lib{name}-java" for name, jar in sorted(JARS.items()) if not jar.exists()]
    if absent:
        return f"the Java databases: apt-get install {' '.join(absent)}"
    packages = {"jpype": "JPype1", "oracledb": "oracledb", "cryptography": "cryptography"}
    for module, package in packages.items():
        if importlib.util.find_spec(module) is None:
            return f"the Python package {package}: pip install {package}"
    return None


class OracleStandIn:
    """A server for the unmodified driver, on a free loopback port, with faults to arm.

    `engine` executes the SQL. `repeat_row_counts` says whether a REEXECUTE goes on sending the row
    counts of an array DML, which is nowhere documented: a store must stand both. Use as a context
    manager.
    """

    def __init__(
        self,
        engine: Literal["hsqldb", "h2"] = "hsqldb",
        *,
        user: str = "pxrs",
        password: str = "secret",
        repeat_row_counts: bool = True,
    ) -> None:
        wanted = missing()
        if wanted is not None:
            raise StandInMissing(f"the Oracle stand-in needs {wanted}")
        self.engine = engine
        self.user = user
        self.password = password
        self.service = "standin"
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        command = [sys.executable, "-m", "tests.contract.oracle_stand_in.server"]
        command += ["--engine", engine, "--service", self.service, "--user", user]
        command += ["--repeat-row-counts"] if repeat_row_counts else []
        self._process = subprocess.Popen(
            command,
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        try:
            self.port = int(self._send(password, _START_SECONDS_MAX))
        except BaseException:
            self._end()
            raise

    @property
    def dsn(self) -> str:
        """What `oracledb.connect(dsn=...)` takes, without user and password."""
        return f"127.0.0.1:{self.port}/{self.service}"

    @property
    def url(self) -> str:
        """What `open_store` takes."""
        return self.url_of(self.service)

    def url_of(self, service: str) -> str:
        """The URL of another of its services."""
        return f"oracle://{self.user}:{self.password}@127.0.0.1:{self.port}/{service}"

    def new_database(self) -> str:
        """Make an empty database beside the others, and return its URL."""
        name = f"db{uuid.uuid4().hex[:12]}"
        self._ask(do="add_service", name=name)
        return self.url_of(name)

    def arm(self, fault: Fault) -> None:
        """Let `fault` happen at the next call that it fits."""
        self._ask(do="arm", fault=fault.to_json())

    def disarm(self) -> None:
        """Forget every fault that has not happened."""
        self._ask(do="disarm")

    def fired(self) -> int:
        """How many faults have happened so far."""
        return int(self._ask(do="fired"))

    def log(self) -> list[str]:
        """The statements and calls that the server was sent, oldest first."""
        return [str(line) for line in self._ask(do="log")]

    def clear_log(self) -> None:
        """Forget the log."""
        self._ask(do="clear_log")

    def sessions(self) -> int:
        """How many sessions are open."""
        return int(self._ask(do="sessions"))

    def drop_sessions(self) -> int:
        """Kill every session, as an administrator or a failover would; how many there were."""
        return int(self._ask(do="drop"))

    def go_down(self) -> None:
        """Stop listening and kill every session. The databases stay."""
        self._ask(do="stop")
        self.drop_sessions()

    def come_up(self) -> None:
        """Listen again, on the same port."""
        self._ask(do="listen")

    def freeze(self) -> None:
        """Stop the whole process: connections stay open, and nothing answers."""
        os.kill(self._process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + _ANSWER_SECONDS_MAX
        while not self._is_stopped():
            if time.monotonic() > deadline:
                raise StandInFailed("the stand-in goes on in spite of SIGSTOP")
            time.sleep(0.001)

    def _is_stopped(self) -> bool:
        """Whether every thread has stopped: the signal reaches them one by one."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)

    def thaw(self) -> None:
        """Let the process go on: what it was sent meanwhile is executed now."""
        os.kill(self._process.pid, signal.SIGCONT)

    def crashes(self) -> list[str]:
        """What went wrong in the stand-in itself: stack traces."""
        return [str(text) for text in self._ask(do="crashes")]

    def close(self) -> None:
        """End the server; calling it again is harmless.

        Raises StandInFailed when a session ended by a mistake of the stand-in itself.
        """
        crashes: list[str] = []
        if self._process.poll() is None:
            self.thaw()
            with contextlib.suppress(StandInFailed):
                crashes = self.crashes()
        self._end()
        if crashes:
            raise StandInFailed(crashes[0])

    def _end(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _ask(self, **line: Any) -> Any:
        with self._lock:
            return self._send(json.dumps(line), _ANSWER_SECONDS_MAX)

    def _send(self, line: str, seconds_max: float) -> Any:
        """Send one line and wait for the line that answers it."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise StandInFailed(f"the stand-in has ended: {self._last_words()}") from error
        deadline = time.monotonic() + seconds_max
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(deadline - time.monotonic()):
                raise StandInFailed(f"no answer in {seconds_max:g} s: {self._last_words()}")
        text = stdout.readline()
        if not text:
            raise StandInFailed(f"the stand-in has ended: {self._last_words()}")
        answer = json.loads(text)
        if "error" in answer:
            raise StandInFailed(answer["error"])
        return answer["answer"]

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2_000:].decode(errors="replace").strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
