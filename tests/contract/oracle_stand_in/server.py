"""The stand-in's own process: the listener, and the control line to the test that started it.

Rules of this file. The Java machine lives here and nowhere else, so that a test process with Ray
or Spark never has one. Commands come as JSON lines on standard input and are answered on standard
output, one line each; the end of standard input ends the process, so it cannot outlive the test.
Databases live in memory, one a service name.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
from typing import Any, TextIO

from tests.contract.oracle_stand_in.engines import SESSIONS, start_java
from tests.contract.oracle_stand_in.faults import Fault
from tests.contract.oracle_stand_in.session import Host, Session, serve

_BACKLOG = 128


class Listener:
    """Accepts clients on one loopback port, which it keeps while it does not listen."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._alive: set[Session] = set()
        self._sock: socket.socket | None = None
        self.port = 0
        self.listen()

    def listen(self) -> None:
        """Take connections, on the same port as before."""
        if self._sock is not None:
            return
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self.port))
        sock.listen(_BACKLOG)
        self.port = sock.getsockname()[1]
        self._sock = sock
        threading.Thread(target=self._accept, args=(sock,), name="listener", daemon=True).start()

    def _accept(self, sock: socket.socket) -> None:
        while True:
            try:
                client, _ = sock.accept()
            except OSError:
                return
            threading.Thread(
                target=serve, args=(self._host, client, self._alive), name="session", daemon=True
            ).start()

    def stop(self) -> None:
        """Refuse connections from now on; sessions stay."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()
            self._sock = None

    def drop(self) -> int:
        """Kill every session; how many there were."""
        killed = list(self._alive)
        for session in killed:
            session.kill()
        return len(killed)

    def count(self) -> int:
        """How many sessions there are."""
        return len(self._alive)


def command(host: Host, listener: Listener, line: dict[str, Any]) -> Any:
    """Carry out one command and return what it answers."""
    match line["do"]:
        case "arm":
            return host.faults.arm(Fault(**line["fault"]))
        case "disarm":
            return host.faults.disarm()
        case "fired":
            return host.faults.fired()
        case "crashes":
            return host.crashes
        case "log":
            return list(host.log)
        case "clear_log":
            return host.log.clear()
        case "sessions":
            return listener.count()
        case "drop":
            return listener.drop()
        case "listen":
            return listener.listen()
        case "stop":
            return listener.stop()
        case "add_service":
            return host.services.add(line["name"])
        case other:
            raise ValueError(f"no such command: {other}")


def control(host: Host, listener: Listener, commands: TextIO, answers: TextIO) -> None:
    """Obey commands until their source ends."""
    for text in commands:
        try:
            answer = {"answer": command(host, listener, json.loads(text))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Start, tell the port, obey, and end at once: what is in memory is nobody's afterwards."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=sorted(SESSIONS), required=True)
    parser.add_argument("--service", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--repeat-row-counts", action="store_true")
    options = parser.parse_args()
    password = sys.stdin.readline().rstrip("\n")
    start_java()
    host = Host(
        engine=options.engine,
        users={options.user.upper(): password},
        services={options.service},
        repeat_row_counts=options.repeat_row_counts,
    )
    listener = Listener(host)
    sys.stdout.write(json.dumps({"answer": listener.port}) + "\n")
    sys.stdout.flush()
    control(host, listener, sys.stdin, sys.stdout)
    os._exit(0)


if __name__ == "__main__":
    main()
