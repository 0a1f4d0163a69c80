"""What others run for the same work, as they run it from Python: servers, and clients of them.

The work: messages of 100 bytes in SHARDS ordered streams, each read by a process of its own that
calls a handler with each message, in order, and acknowledges. Each client batches as its own guide
says. A server is on loopback, keeps what it has on disk (not synced a message), and is ended by
whoever started it. Libraries that are not installed are fetched by name into a folder that goes.
Servers that are not there are got by `.ci/setup peers`, which `make bench ONLY=peers` runs first,
as root on Debian.
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
from typing import Any, NamedTuple, Protocol

from tests.benchmarks.peer_servers import NatsServer, RabbitServer
from tests.servers import PostgresServer, RedisServer, Server, ServiceMissing

SHARDS = 2
ACK_EVERY = 1_000
BATCH = 1_000
WAIT_MS = 1_000
FETCH_S = 120
SUB_ENTRY = 200

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


class Rabbit:
    """RabbitMQ through pika: one durable queue a shard, persistent messages, prefetch.

    Without confirms, for which pika's blocking channel waits message by message.
    """

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


class RabbitStream:
    """RabbitMQ's streams through rstream: one a shard, sub-batches that are confirmed.

    Of bytes as they are: to make AMQP's messages of them takes its client several times as long.
    """

    def __init__(self, url: str) -> None:
        self._rstream = import_module("rstream")
        port = RabbitServer.stream_port(url)
        self._where = {"host": "127.0.0.1", "port": port, "username": "guest", "password": "guest"}

    def prepare(self) -> None:
        async def made() -> None:
            async with self._rstream.Producer(**self._where) as producer:
                for shard in range(SHARDS):
                    await producer.create_stream(f"stream{shard}")

        asyncio.run(made())

    def send(self, payloads: Iterator[tuple[int, bytes]]) -> None:
        asyncio.run(self._sent(payloads))

    async def _sent(self, payloads: Iterator[tuple[int, bytes]]) -> None:
        asked, confirmed, done = 0, 0, asyncio.Event()

        def confirm(status: Any) -> None:
            nonlocal confirmed
            assert status.is_confirmed, f"not accepted: {status.response_code}"
            confirmed += 1
            done.set()

        async with self._rstream.Producer(**self._where) as producer:
            for chunk in chunks(payloads):
                for shard in range(SHARDS):
                    mine = [payload for of, payload in chunk if of == shard]
                    for at in range(0, len(mine), SUB_ENTRY):
                        part = mine[at : at + SUB_ENTRY]
                        await producer.send_sub_entry(
                            f"stream{shard}", part, on_publish_confirm=confirm
                        )
                        asked += 1
            while confirmed < asked:
                done.clear()
                await asyncio.wait_for(done.wait(), FETCH_S)

    def receive(self, shard: int, count: int, handle: Handle) -> None:
        asyncio.run(self._received(shard, count, handle))

    async def _received(self, shard: int, count: int, handle: Handle) -> None:
        stream, done, over = f"stream{shard}", 0, asyncio.Event()
        consumer = self._rstream.Consumer(**self._where)
        await consumer.start()

        def on_message(payload: Any, context: Any) -> Any:
            nonlocal done
            handle(payload)
            done += 1
            if done == count:
                over.set()
            elif done % ACK_EVERY:
                return None
            return consumer.store_offset(stream, f"c{shard}", context.offset)

        await consumer.subscribe(stream, on_message, subscriber_name=f"c{shard}")
        await asyncio.wait_for(over.wait(), FETCH_S)
        await consumer.close()


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


class JetStream:
    """NATS JetStream: one stream with a subject a shard, published without waiting for each answer,
    pushed to its consumer, who acknowledges many messages at once. (What is pulled goes at a third
    of the rate here.)"""

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
            for shard, payload in payloads:
                await stream.publish_async(f"bench.{shard}", payload, wait_stall=FETCH_S)
            await asyncio.wait_for(stream.publish_async_completed(), FETCH_S)
            await client.close()

        asyncio.run(sent())

    def receive(self, shard: int, count: int, handle: Handle) -> None:
        async def received() -> None:
            client = await self._nats.connect(self._url)
            done, over = 0, asyncio.Event()

            async def on_message(message: Any) -> None:
                nonlocal done
                handle(message.data)
                done += 1
                if done % ACK_EVERY == 0 or done == count:
                    await message.ack()
                if done == count:
                    over.set()

            every = self._nats.js.api.AckPolicy.ALL
            config = self._nats.js.api.ConsumerConfig(ack_policy=every, max_ack_pending=20_000)
            await client.jetstream().subscribe(
                f"bench.{shard}",
                durable=f"c{shard}",
                cb=on_message,
                manual_ack=True,
                config=config,
                pending_msgs_limit=-1,
                pending_bytes_limit=-1,
            )
            await asyncio.wait_for(over.wait(), FETCH_S)
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


class Served(NamedTuple):
    """A peer with a server: that, its client, the client's library, and how much is sent."""

    server: type[Server]
    client: type[Any]
    module: str
    package: str
    messages: int


# Each as much as takes it a few seconds.
SERVED = {
    "rabbitmq": Served(RabbitServer, Rabbit, "pika", "pika", 100_000),
    "rabbitmq_stream": Served(RabbitServer, RabbitStream, "rstream", "rstream", 1_000_000),
    "redis_streams": Served(RedisServer, RedisStreams, "redis", "redis", 400_000),
    "nats_jetstream": Served(NatsServer, JetStream, "nats", "nats-py", 100_000),
    "postgresql": Served(PostgresServer, PostgresLog, "psycopg", "psycopg", 800_000),
}
