"""What others run for the same work, as they run it from Python: servers, and clients of them.

The work: messages of 100 bytes in SHARDS ordered streams, each read by a process of its own that
calls a handler with each message, in order, and acknowledges. Each client batches as its own guide
says. A server is on loopback, keeps what it has on disk (not synced a message), and is ended by
whoever started it. Libraries that are not installed are fetched by name into a folder that goes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from tests.servers import PostgresServer, RedisServer, Server, ServiceMissing

SHARDS = 2
ACK_EVERY = 1_000
BATCH = 1_000
WAIT_MS = 1_000
FETCH_S = 120

Handle = Callable[[bytes], None]


class Peer(Protocol):
    """One of the others. It is made in each process that uses it, with the server's address."""

    def prepare(self) -> None:
        """Make its streams; once, before anybody sends."""

    def send(self, payloads: Iterator[tuple[int, bytes]]) -> None:
        """Send each payload to its shard; returns when all are accepted."""

    def receive(self, shard: int, count: int, handle: Handle) -> None:
        """Call the handler with so many messages of the shard, and acknowledge them all."""


def library(name: str, package: str, folder: Path) -> None:
    """Have a library, which is fetched by name when it is not there. Raises ServiceMissing."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        import_module(name)
        return
    except ImportError:
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), package]
    done = subprocess.run(command, capture_output=True, timeout=FETCH_S, check=False)
    if done.returncode:
        raise ServiceMissing(f"{package} is not installed, and could not be fetched")
    import_module(name)


def chunks(payloads: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """What is sent, BATCH at a time."""
    while chunk := list(islice(payloads, BATCH)):
        yield chunk


class RabbitServer(Server):
    """RabbitMQ on one port, with everything that it keeps in its folder."""

    name, program, package = "rabbitmq", "rabbitmq-server", "the package rabbitmq-server"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def _command(self) -> list[str]:
        return [self._program]

    def _popen_options(self) -> dict[str, Any]:
        import os

        own = {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.port + 1),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
        }
        return {"env": os.environ | own}

    def _is_up(self) -> bool:
        pika = import_module("pika")
        try:
            pika.BlockingConnection(pika.URLParameters(self.url)).close()
        except Exception:  # it is not up yet
            return False
        return True


class Rabbit:
    """RabbitMQ: one durable queue a shard, publisher confirms by the channel, prefetch."""

    def __init__(self, url: str) -> None:
        pika = import_module("pika")
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._channel = pika.BlockingConnection(pika.URLParameters(url)).channel()

    def prepare(self) -> None:
        for shard in range(SHARDS):
            self._channel.queue_declare(f"bench{shard}", durable=True)

    def send(self, payloads: Iterator[tuple[int, bytes]]) -> None:
        publish, properties = self._channel.basic_publish, self._persistent
        for shard, payload in payloads:
            publish("", f"bench{shard}", payload, properties)
        self._channel.connection.process_data_events()

    def receive(self, shard: int, count: int, handle: Handle) -> None:
        self._channel.basic_qos(prefetch_count=5 * ACK_EVERY)
        coming = self._channel.consume(f"bench{shard}")
        for done, (method, _, body) in enumerate(coming, 1):
            handle(body)
            if done % ACK_EVERY == 0 or done == count:
                self._channel.basic_ack(method.delivery_tag, multiple=True)
            if done == count:
                break
        self._channel.cancel()
        self._channel.connection.close()


class RedisStreams:
    """Redis: one stream and one group a shard, pipelined adds, reads and acknowledgements."""

    def __init__(self, url: str) -> None:
        self._client = import_module("redis").Redis.from_url(url)

    def prepare(self) -> None:
        for shard in range(SHARDS):
            self._client.xgroup_create(f"bench{shard}", "g", "0", mkstream=True)

    def send(self, payloads: Iterator[tuple[int, bytes]]) -> None:
        for chunk in chunks(payloads):
            pipeline = self._client.pipeline(transaction=False)
            for shard, payload in chunk:
                pipeline.xadd(f"bench{shard}", {"p": payload})
            pipeline.execute()

    def receive(self, shard: int, count: int, handle: Handle) -> None:
        stream, done = f"bench{shard}", 0
        while done < count:
            for _, entries in self._client.xreadgroup(
                "g", "c", {stream: ">"}, count=BATCH, block=WAIT_MS
            ):
                for _, fields in entries:
                    handle(fields[b"p"])
                self._client.xack(stream, "g", *[entry for entry, _ in entries])
                done += len(entries)


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
        import socket

        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False


class JetStream:
    """NATS JetStream: one stream with a subject a shard, pulled in batches, all acknowledged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._nats: Any = import_module("nats")

    def prepare(self) -> None:
        async def made() -> None:
            client = await self._nats.connect(self._url)
            names = [f"bench.{shard}" for shard in range(SHARDS)]
            await client.jetstream().add_stream(name="bench", subjects=names)
            await client.close()

        asyncio.run(made())

    def send(self, payloads: Iterator[tuple[int, bytes]]) -> None:
        async def sent() -> None:
            client = await self._nats.connect(self._url)
            stream = client.jetstream()
            for chunk in chunks(payloads):
                coming = [stream.publish(f"bench.{shard}", payload) for shard, payload in chunk]
                await asyncio.gather(*coming)
            await client.close()

        asyncio.run(sent())

    def receive(self, shard: int, count: int, handle: Handle) -> None:
        async def received() -> None:
            client = await self._nats.connect(self._url)
            subscribed = await client.jetstream().pull_subscribe(f"bench.{shard}", f"c{shard}")
            done = 0
            while done < count:
                for message in await subscribed.fetch(min(BATCH, count - done), timeout=FETCH_S):
                    handle(message.data)
                    await message.ack()
                    done += 1
            await client.drain()

        asyncio.run(received())


class PostgresLog:
    """PostgreSQL as a log: a table a shard, filled by COPY, read behind a kept position."""

    def __init__(self, url: str) -> None:
        self._connection = import_module("psycopg").connect(url)

    def prepare(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("CREATE TABLE passed (shard int PRIMARY KEY, at bigint)")
            for shard in range(SHARDS):
                cursor.execute(f"CREATE TABLE log{shard} (id bigserial PRIMARY KEY, p bytea)")
                cursor.execute("INSERT INTO passed VALUES (%s, 0)", (shard,))
        self._connection.commit()

    def send(self, payloads: Iterator[tuple[int, bytes]]) -> None:
        for chunk in chunks(payloads):
            with self._connection.cursor() as cursor:
                for shard in range(SHARDS):
                    with cursor.copy(f"COPY log{shard} (p) FROM STDIN") as copy:
                        for of, payload in chunk:
                            if of == shard:
                                copy.write_row((payload,))
            self._connection.commit()

    def receive(self, shard: int, count: int, handle: Handle) -> None:
        at, done = 0, 0
        query = f"SELECT id, p FROM log{shard} WHERE id > %s ORDER BY id LIMIT {BATCH}"
        with self._connection.cursor() as cursor:
            while done < count:
                rows = cursor.execute(query, (at,)).fetchall()
                for _, payload in rows:
                    handle(payload)
                done += len(rows)
                at = rows[-1][0] if rows else at
                cursor.execute("UPDATE passed SET at = %s WHERE shard = %s", (at, shard))
                self._connection.commit()
                if not rows:
                    time.sleep(0.002)


SERVED: dict[str, tuple[type[Server], type[Any], str, str]] = {
    "rabbitmq": (RabbitServer, Rabbit, "pika", "pika"),
    "redis_streams": (RedisServer, RedisStreams, "redis", "redis"),
    "nats_jetstream": (NatsServer, JetStream, "nats", "nats-py"),
    "postgresql": (PostgresServer, PostgresLog, "psycopg", "psycopg"),
}
