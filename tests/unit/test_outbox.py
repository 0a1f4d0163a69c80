"""`Outbox`: what comes while a buffer is at work becomes one frame a partition, in its order."""

from __future__ import annotations

import random

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.message_form import batch_bytes
from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import DeadlineExceeded, ProducerFenced, PxrsError
from pxrs_ray.producer.outbox import DATED_TOGETHER_MS, Outbox
from pxrs_ray.producer.sender import Call, Sender
from tests.settings import sender_limits

BUFFERS = 2
NOW_MS = 1_000
ROOM_BYTES = 10_000


class Notes:
    """A ticket: what its owner heard of each of its parts."""

    def __init__(self) -> None:
        self.told: dict[int, Appended | PxrsError] = {}

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        assert index not in self.told, "a part was told twice"
        self.told[index] = answer


class Bench:
    """An outbox whose calls a test answers, and what each partition's log has then."""

    def __init__(self, room_bytes: int = ROOM_BYTES, **limits: int) -> None:
        self.sender = Sender(BUFFERS, sender_limits(**limits))
        self.outbox = Outbox(self.sender, b"i" * 16, room_bytes, None)
        self.logs: dict[int, list[tuple[bytes, int]]] = {}
        self.frames: list[tuple[int, int]] = []

    def put(
        self, partition: int, payloads: list[bytes], ms: int = NOW_MS, own: int | None = None
    ) -> Notes:
        """`own` is the timestamp that each message brings itself."""
        notes, stamps = Notes(), None if own is None else [own] * len(payloads)
        keys = [b"k"] * len(payloads)
        batch = Batch.of(keys, payloads, timestamp_ms=ms, timestamps_ms=stamps)
        self.outbox.put(partition, batch, notes, 7, ms)
        return notes

    def calls(self, now_ms: int = NOW_MS) -> list[Call]:
        self.outbox.release()
        return list(self.sender.calls(now_ms))

    def answer(self, call: Call, *, repeated: bool = False, forgotten: bool = False) -> None:
        answers = []
        for partition, header, body in call.arguments():
            batch, log = (
                Batch.from_wire(partition, header, body),
                self.logs.setdefault(partition, []),
            )
            base = None if forgotten else len(log)
            answers.append(Appended(partition, base, len(batch), repeated))
            log.extend((message.payload, message.timestamp_ms) for message in batch)
            self.frames.append((partition, len(batch)))
        self.sender.answered(call, answers, NOW_MS)

    def deliver(self) -> None:
        while calls := self.calls():
            for call in calls:
                self.answer(call)


def test_what_comes_for_an_idle_buffer_waits_for_nothing() -> None:
    bench = Bench()
    bench.put(0, [b"a"])
    assert bench.sender.pending_frames == 1 and bench.outbox.pending_parts == 0
    (call,) = bench.calls()
    bench.put(1, [b"b"])
    assert bench.outbox.pending_parts == 0, "the other buffer is not at work"
    (other,) = bench.calls()
    assert (call.buffer, other.buffer) == (0, 1)


def test_what_comes_meanwhile_is_one_frame_a_partition_and_each_hears_of_its_own() -> None:
    bench = Bench()
    bench.put(0, [b"first"])
    (call,) = bench.calls()
    notes = [bench.put(number % 2 * 2, [b"%d" % number] * (number + 1)) for number in range(4)]
    assert bench.calls() == [] and bench.sender.pending_frames == 1, "nothing is numbered yet"
    assert bench.outbox.pending_parts == 4 and bench.outbox.pending_bytes > 0
    bench.answer(call)
    (gathered,) = bench.calls()
    assert [frame.partition for frame in gathered.frames] == [0, 2]
    assert (bench.outbox.pending_parts, bench.outbox.pending_bytes) == (0, 0)
    bench.answer(gathered)
    assert [payload for payload, _ in bench.logs[0]] == [b"first", b"0", b"2", b"2", b"2"]
    assert [payload for payload, _ in bench.logs[2]] == [b"1"] * 2 + [b"3"] * 4
    told = [note.told[7] for note in notes]
    assert told == [Appended(0, 1, 1), Appended(2, 0, 2), Appended(0, 2, 3), Appended(2, 2, 4)]
    assert bench.sender.pending_frames == bench.sender.pending_bytes == 0


def test_a_repeat_that_nobody_remembers_names_no_place() -> None:
    bench = Bench()
    bench.put(0, [b"first"])
    (call,) = bench.calls()
    notes = [bench.put(0, [b"x"]) for _ in range(2)]
    bench.answer(call)
    (gathered,) = bench.calls()
    bench.answer(gathered, repeated=True, forgotten=True)
    assert [note.told[7] for note in notes] == [Appended(0, None, 1, True)] * 2


def test_what_is_not_small_waits_for_no_answer() -> None:
    bench = Bench(call_bytes_min=2_000)
    bench.put(0, [b"first"])
    (call,) = bench.calls()
    bench.put(0, [b"x" * 1_000])
    assert bench.calls() == []
    bench.put(0, [b"y" * 1_000])
    (beside,) = bench.calls()
    assert len(beside.frames) == 1 and not call.abandoned
    for each in (call, beside):
        bench.answer(each)
    assert [payload[:1] for payload, _ in bench.logs[0]] == [b"f", b"x", b"y"]


def test_no_frame_is_larger_than_its_log_takes() -> None:
    bench = Bench(room_bytes=1_000)
    bench.put(0, [b"first"])
    (call,) = bench.calls()
    parts = [[b"%d" % number * 100] * 2 for number in range(9)]
    for part in parts:
        assert batch_bytes(Batch.of([b"k"] * 2, part, timestamp_ms=1)) * 3 < 1_000
        bench.put(0, part)
    bench.answer(call)
    bench.deliver()
    assert [payload for payload, _ in bench.logs[0][1:]] == [
        each for part in parts for each in part
    ]
    assert max(count for _, count in bench.frames) <= 8 and len(bench.frames) <= 6


def test_messages_keep_their_dates_as_near_as_those_of_one_batch() -> None:
    bench = Bench()
    bench.put(0, [b"first"])
    (call,) = bench.calls()
    late_ms = NOW_MS + DATED_TOGETHER_MS
    bench.put(0, [b"a"])
    bench.put(0, [b"b"], late_ms)
    bench.put(0, [b"c"], late_ms + 1)
    bench.put(0, [b"d"], late_ms + 500, own=5)
    bench.put(0, [b"e"], late_ms + 1_000, own=6)
    bench.answer(call)
    bench.deliver()
    dates = [NOW_MS, NOW_MS, NOW_MS, late_ms + 1, 5, 6]
    assert [ms for _, ms in bench.logs[0]] == dates
    assert [count for _, count in bench.frames] == [1, 2, 1, 2]


def test_what_is_held_ends_with_its_producer() -> None:
    bench = Bench()
    bench.put(0, [b"first"])
    (call,) = bench.calls()
    notes = [bench.put(0, [b"x"]) for _ in range(2)]
    fenced = ProducerFenced("another took over")
    bench.sender.failed(call, fenced, NOW_MS)
    bench.sender.fenced = fenced
    bench.sender._end(fenced)
    assert bench.calls() == []
    assert all(note.told[7] is fenced for note in notes)
    assert bench.outbox.pending_parts == bench.sender.pending_frames == 0


def test_what_is_held_has_the_deadline_of_when_it_was_due() -> None:
    bench = Bench(append_timeout_ms=100)
    bench.put(0, [b"first"])
    bench.calls()
    notes = [bench.put(0, [b"x"], NOW_MS + ms) for ms in (5, 0)]
    bench.sender.expire(NOW_MS + 100)
    (call,) = bench.calls(NOW_MS + 100)
    assert [frame.deadline_ms for frame in call.frames] == [NOW_MS + 100]
    bench.sender.expire(NOW_MS + 100)
    assert all(isinstance(note.told[7], DeadlineExceeded) for note in notes)


def test_every_order_of_puts_and_answers_keeps_the_order_of_a_partition() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        bench, under_way, sent = Bench(call_bytes_min=600), [], {p: [] for p in range(4)}
        for number in range(200):
            partition = rng.randrange(4)
            payload = b"%04d" % number
            bench.put(partition, [payload], NOW_MS + number // 20)
            sent[partition].append(payload)
            if rng.random() < 0.6:
                under_way += bench.calls()
            if under_way and rng.random() < 0.4:
                bench.answer(under_way.pop(0))
        for call in under_way:
            bench.answer(call)
        bench.deliver()
        assert {p: [payload for payload, _ in log] for p, log in bench.logs.items()} == sent
        assert bench.outbox.pending_bytes == bench.sender.pending_bytes == 0
