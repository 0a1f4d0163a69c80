"""Producers against real buffer actors: from a driver, threads, an event loop, tasks and actors."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import ray

from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.actors.client import producer as producer_module
from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.errors import (
    DeadlineExceeded,
    PartitionFull,
    ProducerError,
    UsageError,
)
from pxrs_ray.model import Message
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.producer.receipt import MessagePlace, Receipt
from tests.actors.buffers import WAIT_S, Buffers, running_buffers
from tests.settings import log_limits, producer_limits, sender_limits

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def everything(buffers: Buffers) -> list[Message]:
    return [m for p in range(buffers.partitions) for m in buffers.messages(p)]


def test_single_messages_columns_and_tables(tmp_path: Path) -> None:
    with running_buffers(tmp_path) as buffers, buffers.producer() as producer:
        one = producer.send("k", "single", {"h": b"1"}, timestamp=5, id="id-1").result(WAIT_S)
        assert one.offset is not None
        message = producer.get_message(one.partition, one.offset)
        assert (message.key, message.payload, message.timestamp_ms) == (b"k", b"single", 5)
        assert (message.headers, message.id) == ((("h", b"1"),), "id-1")
        assert producer.latest_offset(one.partition) == one.offset + 1
        for columns in (
            (["a", "b"], [b"lists", b"lists"]),
            (pa.array(["a", "b"]), pa.array(["arrow", "arrow"])),
            (pd.Series(["a", "b"]), pd.Series([b"pandas", b"pandas"])),
            (pa.table({"key": ["a", "b"], "payload": ["table", "table"]}),),
            (pd.DataFrame({"payload": ["frame", "frame"]}),),
        ):
            placed = producer.send_batch(*columns).result(WAIT_S)
            assert sum(each.messages for each in placed) == 2
        with pytest.raises(UsageError, match="needs 'payload'"):
            producer.send_batch(pa.table({"key": ["a"], "value": ["b"]}))
        with pytest.raises(UsageError, match="not int"):
            producer.send_batch(5)
        placed = producer.broadcast(b"everywhere").result(WAIT_S)
        assert [each.partition for each in placed] == list(range(buffers.partitions))
        assert len(everything(buffers)) == 1 + 10 + buffers.partitions


def test_order_per_key_from_many_threads(tmp_path: Path) -> None:
    with running_buffers(tmp_path) as buffers:
        with buffers.producer(linger_ms=1, batch_bytes_max=20_000) as producer:

            def work(thread: int) -> None:
                for i in range(3_000):
                    producer.send(b"%d-%d" % (thread, i % 7), b"%d" % i)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = everything(buffers)
        assert len(found) == 12_000
        _check_order(found)


def _check_order(found: list[Message]) -> None:
    last: dict[bytes | None, int] = {}
    for message in found:
        assert int(message.payload) > last.get(message.key, -1), "order of a key"
        last[message.key] = int(message.payload)


def test_an_event_loop_can_await_receipts(tmp_path: Path) -> None:
    async def run(producer: Producer) -> None:
        receipts = [await producer.send_async(b"k", b"%d" % i) for i in range(50)]
        places = await asyncio.gather(*receipts)
        assert [place.offset for place in places] == list(range(50))
        await producer.send_batch([b"k"], [b"last"])
        await producer.flush_async()

    with running_buffers(tmp_path) as buffers, buffers.producer() as producer:
        asyncio.run(run(producer))


def test_from_a_task_and_an_actor(tmp_path: Path) -> None:
    with running_buffers(tmp_path) as buffers:
        partitioner = Partitioner(buffers.partitions)
        arguments = (buffers.topology, "q", buffers.count, partitioner, producer_limits())

        @ray.remote(num_cpus=0)
        def task() -> int:
            with Producer(*arguments) as producer:
                return producer.send(b"k", b"task").result(WAIT_S).offset or 0

        class Holder:
            def __init__(self) -> None:
                self.producer = Producer(*arguments)

            async def send(self) -> Any:
                return (await self.producer.send(b"k", b"actor")).offset

        assert ray.get(task.remote(), timeout=WAIT_S) == 0
        holder: Any = ray.remote(num_cpus=0)(Holder).remote()
        assert ray.get([holder.send.remote() for _ in range(3)], timeout=WAIT_S)
        ray.kill(holder)
        assert [m.payload for m in everything(buffers)] == [b"task"] + [b"actor"] * 3


def test_a_full_partition_reaches_the_producer_with_its_reason(tmp_path: Path) -> None:
    limits = log_limits(durability=Durability.MEMORY, partition_bytes_max=50_000)
    with (
        running_buffers(tmp_path, 2, 1, limits) as buffers,
        buffers.producer(
            linger_ms=0,
            batch_bytes_max=10_000,
            pending_bytes_max=60_000,
            sender=sender_limits(append_timeout_ms=5_000),
        ) as producer,
    ):
        receipts: list[Receipt] = []
        with pytest.raises(PartitionFull, match=r"partition \d holds most of it.*no group"):
            while len(receipts) < 1_000:
                receipts += [producer.send(b"k", b"x" * 1_000, timeout_s=2)]
        # The last ones may be so few that they fit in where those before them did not.
        with pytest.raises(PartitionFull, match="no group reads it"):
            for receipt in receipts:
                receipt.result(WAIT_S)
        assert receipts[0].result(WAIT_S).offset == 0
        assert producer.latest_offset(receipts[0].result().partition) >= 10


def test_what_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "LOOK_FOR_S", 0.5)
    limits = producer_limits(sender=sender_limits(append_timeout_ms=300))
    with Producer("nowhere", "q", 1, Partitioner(1), limits) as producer:
        # It may be started just now, or moved: so it is waited for.
        with pytest.raises(DeadlineExceeded, match="deploy topology 'nowhere' first"):
            producer.latest_offset(0)
        with pytest.raises(DeadlineExceeded, match="nowhere"):
            producer.send(b"k", b"x").result(WAIT_S)
    with pytest.raises(ProducerError, match="closed"):
        producer.send(b"k", b"x")


@pytest.mark.parametrize("durability", [Durability.INTERVAL, Durability.ALWAYS])
def test_killed_buffers_lose_and_double_nothing(tmp_path: Path, durability: Durability) -> None:
    """Six kills of random buffers at random moments, while messages flow."""
    rng = random.Random(durability)
    limits = log_limits(durability=durability, segment_bytes_max=200_000)
    with running_buffers(tmp_path, limits=limits) as buffers:
        sent = 0
        receipts = []
        with buffers.producer(linger_ms=2, batch_bytes_max=10_000) as producer:
            for _ in range(6):
                stop = time.monotonic() + 0.3 + rng.random() * 0.5
                killed = False
                while time.monotonic() < stop:
                    receipts.append(producer.send(b"%d" % (sent % 50), b"%d" % sent))
                    sent += 1
                    if sent % 300 == 0:
                        time.sleep(0.002)
                    if not killed and time.monotonic() > stop - 0.3:
                        os.kill(rng.choice(buffers.pids()), signal.SIGKILL)
                        killed = True
            producer.flush(WAIT_S)
        found = everything(buffers)
        assert len(found) == sent, "lost or doubled"
        _check_order(found)
        by_place = {MessagePlace(m.partition, m.offset): m.payload for m in found}
        for number, receipt in enumerate(receipts):
            place = receipt.result(0)
            assert by_place[place] == b"%d" % number


def test_small_messages_take_a_line_and_another_one_after_a_restart(tmp_path: Path) -> None:
    with running_buffers(tmp_path, 1, 1) as buffers, buffers.producer(linger_ms=0) as producer:
        sent = 0
        line: SocketClient | None = None
        for pid in (buffers.pids()[0], None):
            before, deadline = line, time.monotonic() + WAIT_S
            while line is before or line is None or line.broken or not line.welcome:
                assert time.monotonic() < deadline, "everything still goes through Ray"
                assert producer.send(b"k", b"%d" % sent).result(WAIT_S).offset == sent
                sent += 1
                line = producer._buffers.of(0)._here.socket
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        assert [m.payload for m in everything(buffers)] == [b"%d" % n for n in range(sent)]


def test_a_killed_memory_buffer_gives_no_offset_out_twice(tmp_path: Path) -> None:
    with running_buffers(tmp_path, 4, 1, log_limits(durability=Durability.MEMORY)) as buffers:
        receipts: list[Receipt] = []
        with buffers.producer(linger_ms=1) as producer:
            for _ in range(3):
                for _ in range(400):
                    receipts.append(producer.send(b"%d" % len(receipts), b"x"))
                    time.sleep(0.0005)
                os.kill(buffers.pids()[0], signal.SIGKILL)
                receipts += [producer.send(b"%d" % i, b"x") for i in range(400)]
            producer.flush(WAIT_S)
        places = [receipt.result(0) for receipt in receipts]
        assert len(set(places)) == len(places), "two messages were told the same place"
        ends = ray.get(buffers.handles[0].ends.remote("q"), timeout=WAIT_S)
        assert all(log.gaps and log.state == "open" for log in ends.values())
        found = everything(buffers)
        assert {(m.partition, m.offset) for m in found} <= set(places)
