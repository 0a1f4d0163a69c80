"""The servers that no test needs, and that `peers` compares with: RabbitMQ and NATS.

As `tests.servers`: on loopback, in folders of their own, ended with everything they started.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.servers import END_SECONDS_MAX, Server, free_port

# Debian's command of this name becomes another user, and keeps its files elsewhere.
RABBIT_ITSELF = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitServer(Server):
    """RabbitMQ with its stream plugin, and with everything that it keeps in its folder.

    Its ports and its name come from the one port of its AMQP listener.
    """

    name, program, package = "rabbitmq", "rabbitmq-server", "the package rabbitmq-server"

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        if RABBIT_ITSELF.exists():
            self._program = str(RABBIT_ITSELF)
        self._stream_port, self._own_port, self._names_port = (free_port() for _ in range(3))
        self._names: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/#{self._stream_port}"

    @staticmethod
    def stream_port(url: str) -> int:
        """Where a server of this address takes streams."""
        return int(url.rpartition("#")[2])

    @property
    def _environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._own_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names_port),
        }
        return os.environ | own

    def start(self) -> Self:
        """Start it, and the daemon that knows its name, which would outlive it otherwise."""
        settings = {
            "listeners.tcp.default": f"127.0.0.1:{self.port}",
            "stream.listeners.tcp.1": f"127.0.0.1:{self._stream_port}",
            "stream.advertised_host": "127.0.0.1",
            "stream.advertised_port": self._stream_port,
        }
        lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
        (self.folder / "rabbitmq.conf").write_text(lines)
        (self.folder / "plugins").write_text("[rabbitmq_stream].\n")
        daemon = shutil.which("epmd")
        assert daemon is not None, "RabbitMQ is here without Erlang's epmd"
        where = ["-port", str(self._names_port), "-address", "127.0.0.1"]
        self._names = subprocess.Popen(
            [daemon, *where], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        return super().start()

    def kill(self) -> None:
        super().kill()
        if self._names is not None:
            self._names.kill()
            self._names.wait(END_SECONDS_MAX)
            self._names = None

    def _command(self) -> list[str]:
        return [self._program]

    def _popen_options(self) -> dict[str, Any]:
        return {"env": self._environment}

    def _is_up(self) -> bool:
        return all(_answers(port) for port in (self.port, self._stream_port))


class NatsServer(Server):
    """NATS with JetStream, which keeps its streams in the server's folder."""

    name, program, package = "nats", "nats-server", "the package nats-server"

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        where = ["-a", "127.0.0.1", "-p", str(self.port)]
        return [self._program, *where, "-js", "-sd", str(self.folder / "data")]

    def _is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
