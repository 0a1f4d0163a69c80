"""Accumulator, routing and receipts: what is given comes out, in order, where the receipts say."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pxrs_ray.clock import Instant
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.message_form import row_sizes
from pxrs_ray.data.protocol import Appended, Refused
from pxrs_ray.errors import (
    ConfigError,
    DeadlineExceeded,
    MessageTooLarge,
    PartitionFull,
    UsageError,
)
from pxrs_ray.model import Message
from pxrs_ray.partitioning import Partitioner, PartitioningSpec
from pxrs_ray.producer.accumulator import Accumulator
from pxrs_ray.producer.receipt import BatchReceipt, MessagePlace, Placed
from pxrs_ray.producer.routing import chunks, route
from pxrs_ray.producer.sender import Sender
from tests.settings import producer_limits

NOW_MS = 1_000
NOW = Instant(NOW_MS, NOW_MS)


class Bench:
    """An accumulator whose frames are taken by dictionaries instead of buffers."""

    def __init__(self, spread: PartitioningSpec | None = None, **limits: Any) -> None:
        spread = spread or PartitioningSpec(8)
        self.sender = Sender(2, producer_limits().sender)
        self.accumulator = Accumulator(spread.partitioner(), self.sender, producer_limits(**limits))
        self.logs: dict[int, list[Message]] = {p: [] for p in range(spread.partitions)}

    def deliver(self) -> None:
        for call in list(self.accumulator.calls(NOW_MS)):
            answers = []
            for partition, header, body in call.arguments():
                batch = Batch.from_wire(partition, header, body)
                log = self.logs[partition]
                answers.append(Appended(partition, len(log), len(batch)))
                log.extend(batch)
            self.sender.answered(call, answers, NOW_MS)


def test_receipts_name_the_place_of_each_message() -> None:
    bench = Bench()
    rng = random.Random(1)
    given = [(b"k%d" % rng.randrange(20), b"%d" % i) for i in range(500)]
    receipts = []
    for at, (key, payload) in enumerate(given):
        receipts.append(bench.accumulator.add(key, payload, NOW))
        if at % 60 == 0:
            bench.accumulator.close_open(NOW_MS)
    assert not receipts[-1].done()
    bench.accumulator.close_open(NOW_MS)
    bench.deliver()
    partitioner = Partitioner(8)
    for (key, payload), receipt in zip(given, receipts, strict=True):
        place = receipt.result(0)
        assert place.partition == partitioner.partition(key)
        assert place.offset is not None
        message = bench.logs[place.partition][place.offset]
        assert (message.key, message.payload) == (key, payload)
    for key in {key for key, _ in given}:
        kept = [m.payload for m in bench.logs[partitioner.partition(key)] if m.key == key]
        assert kept == [payload for k, payload in given if k == key], "order per key"
    assert bench.accumulator.pending_bytes == 0


def test_columns_and_single_messages_keep_their_order() -> None:
    bench = Bench(PartitioningSpec(1))
    bench.accumulator.add(b"k", b"1", NOW)
    shipment = bench.accumulator.add_batch(
        Batch.of([b"k", b"k"], [b"2", b"3"], timestamp_ms=5), NOW_MS
    )
    bench.accumulator.add(b"k", b"4", NOW)
    bench.accumulator.close_open(NOW_MS)
    bench.deliver()
    assert [m.payload for m in bench.logs[0]] == [b"1", b"2", b"3", b"4"]
    assert BatchReceipt([shipment]).result(0) == [Placed(0, 1, 2)]
    assert [m.timestamp_ms for m in bench.logs[0]] == [NOW_MS, 5, 5, NOW_MS]


def test_extras_travel_only_where_they_are() -> None:
    bench = Bench(PartitioningSpec(1))
    bench.accumulator.add(None, "text", NOW)
    bench.accumulator.add("k", b"x", NOW, {"h": b"1"}, 77, "id-1")
    bench.accumulator.close_open(NOW_MS)
    bench.deliver()
    plain, full = bench.logs[0]
    assert (plain.key, plain.payload, plain.timestamp_ms) == (None, b"text", NOW_MS)
    assert (plain.headers, plain.id) == ((), None)
    assert (full.timestamp_ms, full.headers, full.id) == (77, (("h", b"1"),), "id-1")


def test_the_open_batch_is_full_by_records_or_bytes_and_due_by_time() -> None:
    bench = Bench(batch_records_max=3, batch_bytes_max=1_000, linger_ms=7)
    assert bench.accumulator.due_ms is None
    bench.accumulator.add(b"k", b"x", NOW)
    assert bench.accumulator.due_ms == NOW_MS + 7
    assert not bench.accumulator.full()
    bench.accumulator.add(b"k", b"x" * 1_000, NOW)
    assert bench.accumulator.full()
    bench.accumulator.close_open(NOW_MS)
    for _ in range(3):
        assert not bench.accumulator.full()
        bench.accumulator.add(b"k", b"", NOW)
    assert bench.accumulator.full()


def test_what_lingered_gathers_while_every_buffer_is_at_work() -> None:
    bench = Bench(linger_ms=0)
    accumulator, sender = bench.accumulator, bench.sender
    everywhere = Batch.of([None], [b"x"], timestamp_ms=NOW_MS)
    accumulator.add_everywhere(everywhere, range(8), NOW_MS)
    assert not sender.busy()
    first, second = sender.calls(NOW_MS)
    accumulator.add(b"k", b"waits", NOW)
    assert sender.busy() and accumulator.opened and accumulator.due_ms is None
    sender.answered(first, [Appended(p, 0, 1) for p, _, _ in first.arguments()], NOW_MS)
    assert not sender.busy() and accumulator.due_ms == NOW_MS
    full = PartitionFull("no room")
    sender.answered(second, [Refused(p, full) for p, _, _ in second.arguments()], NOW_MS)
    later = NOW_MS + 10_000
    (again,) = sender.calls(later)
    assert again.again and not sender.busy(), "what waits for room holds nobody else up"
    sender.answered(again, [Appended(p, 0, 1) for p, _, _ in again.arguments()], later)
    accumulator.close_open(later)
    timeout_ms = producer_limits().sender.append_timeout_ms
    assert sender.next_look_ms() == NOW_MS + timeout_ms, "the deadline counts from when it was due"


def test_what_is_held_for_a_busy_buffer_is_no_larger_than_a_batch() -> None:
    bench = Bench(PartitioningSpec(1), batch_bytes_max=3_000)
    bench.accumulator.add(b"k", b"first", NOW)
    bench.accumulator.close_open(NOW_MS)
    (call,) = bench.accumulator.calls(NOW_MS)
    for _ in range(20):
        bench.accumulator.add(b"k", b"x" * 500, NOW)
        bench.accumulator.close_open(NOW_MS)
    bench.sender.answered(call, [Appended(0, 0, 1)], NOW_MS)
    (gathered,) = bench.accumulator.calls(NOW_MS)
    sizes = [len(body) for _, _, body in gathered.arguments()]
    assert 4 <= len(sizes) < 20 and max(sizes) <= 3_000


def test_a_batch_gathers_in_proportion_to_what_closing_the_last_one_took() -> None:
    accumulator = Bench().accumulator
    accumulator.rest(NOW_MS, 499)
    accumulator.add(b"k", b"quick", NOW)
    assert accumulator.due_ms == NOW_MS, "few messages are sent again at once"
    accumulator.rest(NOW_MS, 1_500)
    assert accumulator.due_ms == NOW_MS + 3
    accumulator.rest(NOW_MS, 1_000_000)
    assert accumulator.due_ms == NOW_MS + 5, "a pause of the process makes nobody wait for long"


@pytest.mark.parametrize(("messages", "wait_ms"), [(99, 0), (100, 1), (1_000, 10), (5_000, 20)])
def test_where_many_come_batches_gather_for_as_long_as_that_costs_nobody(
    messages: int, wait_ms: int
) -> None:
    accumulator = Bench(batch_bytes_max=4 << 20).accumulator
    for _ in range(messages):
        accumulator.add(b"k", b"x", NOW)
    accumulator.close_open(NOW_MS)
    accumulator.rest(NOW_MS, 0)
    accumulator.add(b"k", b"next", NOW)
    assert accumulator.due_ms == NOW_MS + wait_ms
    accumulator.close_open(NOW_MS)
    accumulator.rest(NOW_MS, 0)
    accumulator.add(b"k", b"the one behind", NOW)
    assert accumulator.due_ms == NOW_MS, "after one that came alone nobody waits"


def test_who_sends_looks_at_first_messages_and_then_now_and_then() -> None:
    accumulator = Bench().accumulator
    assert accumulator.add_plain(b"k", b"x") is None, "a batch is opened by `add`"
    looks = []
    for message in range(1, 41):
        if accumulator.add_plain(b"k", b"x") is None:
            accumulator.add(b"k", b"x", NOW)
            accumulator.looked()
            looks.append(message)
    assert looks == [*range(1, 17), 19, 22, 25, 29, 33, 38]


def test_what_is_added_without_a_look_is_as_what_is_added_with_one() -> None:
    receipts = []
    for plain in (False, True):
        bench = Bench(batch_records_max=30)
        for message in range(100):
            key, payload = b"k%d" % (message % 9), b"%d" % message
            receipt = bench.accumulator.add_plain(key, payload) if plain else None
            if receipt is None:
                receipt = bench.accumulator.add(key, payload, NOW)
                bench.accumulator.looked()
            receipts.append(receipt)
            if bench.accumulator.full():
                bench.accumulator.close_open(NOW_MS)
        bench.accumulator.close_open(NOW_MS)
        bench.deliver()
    places = [receipt.result(0) for receipt in receipts]
    assert places[:100] == places[100:]


@pytest.mark.parametrize(
    ("limits", "key", "payload"),
    [
        ({}, b"k", "text"),
        ({}, None, b"x"),
        ({"message_bytes_max": 100}, b"k", b"x" * 100),
        ({"batch_records_max": 21}, b"k", b"x"),
        ({"batch_bytes_max": 20 * 33}, b"k", b"x"),
        ({"pending_bytes_max": 20 * 33}, b"k", b"x"),
    ],
    ids=["text", "no key", "too large", "as many", "a full batch", "too much unacknowledged"],
)
def test_what_is_more_than_adding_is_left_to_add(limits: Any, key: Any, payload: Any) -> None:
    accumulator = Bench(**limits).accumulator
    for _ in range(20):
        accumulator.add(b"k", b"x", NOW)
    accumulator.looked()
    assert accumulator.add_plain(key, payload) is None
    assert len(accumulator._open.keys) == 20  # type: ignore[union-attr]


def test_once_it_is_fenced_the_next_message_is_looked_at() -> None:
    accumulator = Bench().accumulator
    for _ in range(20):
        accumulator.add(b"k", b"x", NOW)
    accumulator.looked()
    assert accumulator.add_plain(b"k", b"x") is not None
    accumulator.look_now()
    assert accumulator.add_plain(b"k", b"x") is None


def test_a_bad_message_is_refused_alone() -> None:
    bench = Bench(message_bytes_max=100)
    with pytest.raises(MessageTooLarge, match="message_bytes_max=100"):
        bench.accumulator.add(b"k", b"x" * 100, NOW)
    bad: list[tuple[Any, Any, Any]] = [
        (1, b"x", {}),
        (b"k", 1, {}),
        (b"k", None, {}),
        (b"k", b"x", {"headers": {"h": 1}}),
        (b"k", b"x", {"timestamp_ms": "now"}),
        (b"k", b"x", {"message_id": 5}),
    ]
    for key, payload, options in bad:
        with pytest.raises(UsageError):
            bench.accumulator.add(key, payload, NOW, **options)
    receipt = bench.accumulator.add(b"k", b"good", NOW)
    bench.accumulator.close_open(NOW_MS)
    bench.deliver()
    assert receipt.result(0).offset == 0
    with pytest.raises(MessageTooLarge, match="nothing of the batch was sent"):
        bench.accumulator.pieces(Batch.of([b"k"], [b"x" * 200], timestamp_ms=1))


def test_a_label_sends_its_messages_to_its_partitions() -> None:
    spread = PartitioningSpec(8, "label", labels=(("gpu", 2), ("cpu", 6)))
    bench = Bench(spread)
    gpu = [bench.accumulator.add(b"%d" % i, b"x", NOW, scope="gpu") for i in range(20)]
    with pytest.raises(UsageError, match="cpu"):
        bench.accumulator.add(b"k", b"x", NOW, scope="cpus")
    with pytest.raises(UsageError, match="needs the label"):
        bench.accumulator.add(b"k", b"x", NOW)
    cpu = [bench.accumulator.add(b"%d" % i, b"x", NOW, scope="cpu") for i in range(20)]
    bench.accumulator.close_open(NOW_MS)
    columns = Batch.of([b"1", b"2"], [b"x", b"y"], timestamp_ms=1)
    batch = BatchReceipt([bench.accumulator.add_batch(columns, NOW_MS, ["gpu", "cpu"])])
    bench.deliver()
    assert {receipt.result(0).partition for receipt in gpu} == {0, 1}
    assert {receipt.result(0).partition for receipt in cpu} <= set(range(2, 8))
    first, second = batch.result(0)
    assert first.partition == gpu[1].result(0).partition
    assert second.partition == cpu[2].result(0).partition


def test_a_tenant_stays_within_its_span() -> None:
    bench = Bench(PartitioningSpec(8, "tenant", tenant_span=2))
    sent = [bench.accumulator.add(b"%d" % i, b"x", NOW, scope="acme") for i in range(20)]
    bench.accumulator.close_open(NOW_MS)
    bench.deliver()
    first, second = sorted({receipt.result(0).partition for receipt in sent})
    assert second - first in (1, 7)


def test_columns_are_cut_to_chunks() -> None:
    batch = Batch.of([b"k"] * 10, [b"%d" % i for i in range(10)], timestamp_ms=1)
    sizes = row_sizes(batch)
    assert sizes.tolist() == [34] * 10
    assert [len(piece) for piece in chunks(batch, sizes, 4, 1 << 20)] == [4, 4, 2]
    assert [len(piece) for piece in chunks(batch, sizes, 100, 69)] == [2] * 5
    assert [len(piece) for piece in chunks(batch, sizes, 100, 3)] == [1] * 10
    uneven = np.array([1] * 6 + [30, 1, 50, 1])
    assert [len(piece) for piece in chunks(batch, uneven, 5, 30)] == [5, 1, 1, 1, 1, 1]


def test_broadcast_goes_everywhere() -> None:
    bench = Bench(PartitioningSpec(5))
    shipment = bench.accumulator.add_everywhere(
        Batch.of([None], [b"flush caches"], timestamp_ms=1), range(5), NOW_MS
    )
    bench.deliver()
    assert [[m.payload for m in bench.logs[p]] for p in range(5)] == [[b"flush caches"]] * 5
    assert [p.partition for p in shipment.placed()] == list(range(5))


def test_routing_is_the_partitioners_word_and_stable() -> None:
    keys = [b"%d" % (i % 37) if i % 5 else None for i in range(1_000)]
    batch = Batch.of(keys, [b"%d" % i for i in range(1_000)], timestamp_ms=1)
    routed = route(batch, Partitioner(16))
    expected = Partitioner(16).partition_column(batch.keys)
    seen = 0
    for partition, part in routed.parts:
        numbers = [int(payload) for _, payload in part.rows()]
        assert numbers == [i for i in range(1_000) if expected[i] == partition]
        seen += len(numbers)
    assert seen == 1_000


def test_errors_reach_the_receipts_of_their_frame_only() -> None:
    bench = Bench(PartitioningSpec(4))
    receipts = [bench.accumulator.add(b"%d" % i, b"x", NOW) for i in range(50)]
    bench.accumulator.close_open(NOW_MS)
    for call in list(bench.sender.calls(NOW_MS)):
        for frame in list(call.frames):
            full = frame.partition == 2
            answer = PartitionFull("full") if full else Appended(frame.partition, 0, 1)
            frame.ticket.settle(frame.index, answer)
    partitions = [Partitioner(4).partition(b"%d" % i) for i in range(50)]
    assert 2 in partitions
    for partition, receipt in zip(partitions, receipts, strict=True):
        if partition == 2:
            with pytest.raises(PartitionFull):
                receipt.result(0)
        else:
            assert receipt.result(0).partition == partition


def test_receipts_wait_with_a_deadline_and_can_be_awaited() -> None:
    bench = Bench(PartitioningSpec(1))
    receipt = bench.accumulator.add(b"k", b"x", NOW)
    with pytest.raises(DeadlineExceeded, match=r"within 0\.01 s"):
        receipt.result(0.01)
    bench.accumulator.close_open(NOW_MS)

    async def wait() -> MessagePlace:
        asyncio.get_running_loop().call_later(0.01, bench.deliver)
        return await receipt

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receipt, 0.01)

    asyncio.run(give_up())
    assert asyncio.run(wait()) == MessagePlace(0, 0)


def test_nothing_sent_is_nothing_to_wait_for() -> None:
    assert BatchReceipt([]).result(0) == []
    assert BatchReceipt([]).done()


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="compression"):
        producer_limits(compression="gzip")
    with pytest.raises(ConfigError, match="linger_ms"):
        producer_limits(linger_ms=-1)
    assert pa.ipc.IpcWriteOptions(compression=producer_limits(compression="lz4").compression)
