"""The fold of a quarantine's log, and what of a message survives being put aside."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.model import Message
from pxrs_ray.processing.quarantine_state import (
    Entries,
    Parked,
    Quarantine,
    QuarantinedKey,
    QuarantineRecord,
    headers_of,
    restored,
)


class Log:
    """Records as a log would give them their positions."""

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.state = Quarantine()

    def add(self, kind: QuarantineRecord, key: bytes | None = b"k", **values: object) -> int:
        position = len(self.records)
        record = Message(3, position, key, b"payload", 5, headers_of(kind, **values))
        self.records.append(record)
        self.state.apply(record)
        return position

    def park(self, offset: int, key: bytes | None = b"k", epoch: int = 3) -> int:
        return self.add(
            QuarantineRecord.PARKED,
            key,
            offset=offset,
            attempts=5,
            error="bad",
            at_ms=9,
            epoch=epoch,
        )

    def waiting(self, key: bytes | None = b"k") -> list[int]:
        aside = self.state.keys.get(key)
        return [] if aside is None else [entry.offset for entry in aside.entries.values()]


def test_a_key_waits_in_order_and_leaves_when_it_is_released() -> None:
    log = Log()
    first, second = log.park(10), log.park(12)
    assert log.waiting() == [10, 12] and not log.state.keys[b"k"].retrying
    log.add(QuarantineRecord.RETRY)
    assert log.state.keys[b"k"].retrying
    log.add(QuarantineRecord.REDRIVEN, position=first)
    third = log.park(20)
    assert log.waiting() == [12, 20]
    log.add(QuarantineRecord.RELEASED)
    assert log.waiting() == [12, 20], "what waits is never let go of unseen"
    log.add(QuarantineRecord.REDRIVEN, position=second)
    log.add(QuarantineRecord.REDRIVEN, position=third)
    log.add(QuarantineRecord.RELEASED)
    assert not log.state.keys and len(log.state) == 0


def test_what_fails_again_waits_for_its_operator_with_its_new_error() -> None:
    log = Log()
    at = log.park(10)
    log.add(QuarantineRecord.RETRY)
    log.add(QuarantineRecord.FAILED, position=at, attempts=10, error="worse")
    aside = log.state.keys[b"k"]
    assert not aside.retrying and aside.first is not None
    assert (aside.first.attempts, aside.first.error, aside.first.at_ms) == (10, "worse", 9)


def test_skipping_the_last_one_asks_for_release() -> None:
    log = Log()
    first, second = log.park(1), log.park(2)
    log.add(QuarantineRecord.SKIP, position=first)
    assert log.waiting() == [2] and not log.state.keys[b"k"].retrying
    log.add(QuarantineRecord.SKIP, position=second)
    assert log.waiting() == [] and log.state.keys[b"k"].retrying


def test_a_message_that_two_owners_put_aside_waits_once() -> None:
    log = Log()
    log.park(10)
    log.park(11)
    log.park(10)
    log.park(11)
    log.park(12)
    assert log.waiting() == [10, 11, 12]


def test_messages_without_a_key_are_kept_each() -> None:
    log = Log()
    log.park(7, None)
    log.park(5, None)
    assert log.waiting(None) == [7, 5]


def test_a_parked_message_comes_back_as_it_was() -> None:
    own = headers_of(QuarantineRecord.PARKED, offset=41, attempts=5, error="bad", at_ms=9)
    record = Message(3, 2, b"k", b"payload", 5, (("tenant", b"t"), *own), "id-1")
    assert restored(record, 3) == Message(3, 41, b"k", b"payload", 5, (("tenant", b"t"),), "id-1")


steps = st.lists(
    st.tuples(
        st.sampled_from(list(QuarantineRecord)),
        st.sampled_from([b"a", b"b", None]),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(steps, st.integers(0, 40))
def test_reading_a_log_twice_or_in_parts_gives_the_same(
    told: list[tuple[QuarantineRecord, bytes | None, int]], cut: int
) -> None:
    log = Log()
    for kind, key, number in told:
        log.add(kind, key, offset=number, position=number, attempts=1, error="x", at_ms=1)
    again = Quarantine()
    for record in log.records[:cut] + log.records[: cut + 3] + log.records:
        again.apply(record)
    assert again.keys == log.state.keys
    for aside in again.keys.values():
        positions = list(aside.entries)
        assert positions == sorted(positions)


def test_what_was_parked_before_a_seek_back_comes_again_and_is_forgotten() -> None:
    log = Log()
    positions = [log.park(offset) for offset in (5, 12, 20)]
    log.park(30, b"other")
    log.add(QuarantineRecord.RETRY)
    log.add(QuarantineRecord.REDRIVEN, position=positions[0])
    assert log.state.comes_again(10, 7) and not log.state.comes_again(31, 7)
    log.add(QuarantineRecord.SOUGHT, None, offset=10, epoch=7)
    assert b"k" not in log.state.keys and b"other" not in log.state.keys, "they flow again"
    log.park(12, epoch=8)
    log.park(20, epoch=8)
    assert log.waiting() == [12, 20] and not log.state.comes_again(10, 7), "once is enough"


def test_what_lies_below_the_seek_waits_on_and_what_was_redriven_above_it_can_come_again() -> None:
    log = Log()
    log.park(5)
    twelfth = log.park(12)
    log.add(QuarantineRecord.SKIP, position=twelfth)
    assert log.state.comes_again(10, 7), "it was parked, and has gone since"
    log.add(QuarantineRecord.SOUGHT, None, offset=10, epoch=7)
    assert log.waiting() == [5]
    log.park(12, epoch=8)
    log.park(12, epoch=9)
    assert log.waiting() == [5, 12]


def test_a_million_waiting_messages_are_some_numbers_each() -> None:
    import tracemalloc

    aside = QuarantinedKey()
    tracemalloc.start()
    for position in range(100_000):
        aside.entries.add(Parked(position, position + 7, 0, "", 9, 3))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 100_000 * 48


@given(st.lists(st.tuples(st.sampled_from(["add", "first", "any", "fail"]), st.integers(0, 60))))
def test_entries_are_as_a_dictionary_in_order(told: list[tuple[str, int]]) -> None:
    entries, model, position = Entries(), dict[int, Parked](), 0
    for what, number in told:
        if what == "add":
            position += 1 + number % 3
            model[position] = Parked(position, number, number % 2, "x" * (number % 2), number, 4)
            entries.add(model[position])
        elif what == "fail" and number in model:
            model[number] = replace(model[number], attempts=7, error="worse")
            entries.note_failed(number, 7, "worse")
        elif what == "first" and model:
            entries.remove(next(iter(model)))
            del model[next(iter(model))]
        else:
            entries.remove(number)
            model.pop(number, None)
        assert dict(entries) == model and list(entries) == list(model)
        assert (number in entries) == (number in model) and len(entries) == len(model)


@given(
    st.integers(0, 1 << 62),
    st.integers(0, 99),
    st.text(max_size=200).filter(lambda text: text.isascii()),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)
def test_what_is_parked_is_read_again_as_it_was(
    offset: int, attempts: int, error: str, at_ms: int, epoch: int
) -> None:
    log = Log()
    position = log.add(
        QuarantineRecord.PARKED,
        offset=offset,
        attempts=attempts,
        error=error,
        at_ms=at_ms,
        epoch=epoch,
    )
    expected = Parked(position, offset, attempts, error, at_ms, epoch)
    assert dict(log.state.keys[b"k"].entries) == {position: expected}
