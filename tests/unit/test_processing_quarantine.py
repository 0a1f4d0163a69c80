"""The fold of a quarantine's log, and what of a message survives being put aside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.model import Message
from pxrs_ray.processing.quarantine import Quarantine, Record, headers_of, restored


class Log:
    """Records as a log would give them their positions."""

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.state = Quarantine()

    def add(self, kind: Record, key: bytes | None = b"k", **values: object) -> int:
        position = len(self.records)
        record = Message(3, position, key, b"payload", 5, headers_of(kind, **values))
        self.records.append(record)
        self.state.apply(record)
        return position

    def park(self, offset: int, key: bytes | None = b"k") -> int:
        return self.add(Record.PARKED, key, offset=offset, attempts=5, error="bad", at_ms=9)

    def waiting(self, key: bytes | None = b"k") -> list[int]:
        aside = self.state.keys.get(key)
        return [] if aside is None else [entry.offset for entry in aside.entries.values()]


def test_a_key_waits_in_order_and_leaves_when_it_is_released() -> None:
    log = Log()
    first, second = log.park(10), log.park(12)
    assert log.waiting() == [10, 12] and not log.state.keys[b"k"].retrying
    log.add(Record.RETRY)
    assert log.state.keys[b"k"].retrying
    log.add(Record.REDRIVEN, position=first)
    third = log.park(20)
    assert log.waiting() == [12, 20]
    log.add(Record.RELEASED)
    assert log.waiting() == [12, 20], "what waits is never let go of unseen"
    log.add(Record.REDRIVEN, position=second)
    log.add(Record.REDRIVEN, position=third)
    log.add(Record.RELEASED)
    assert not log.state.keys and len(log.state) == 0


def test_what_fails_again_waits_for_its_operator_with_its_new_error() -> None:
    log = Log()
    at = log.park(10)
    log.add(Record.RETRY)
    log.add(Record.FAILED, position=at, attempts=10, error="worse")
    aside = log.state.keys[b"k"]
    assert not aside.retrying and aside.first is not None
    assert (aside.first.attempts, aside.first.error, aside.first.at_ms) == (10, "worse", 9)


def test_skipping_the_last_one_asks_for_release() -> None:
    log = Log()
    first, second = log.park(1), log.park(2)
    log.add(Record.SKIP, position=first)
    assert log.waiting() == [2] and not log.state.keys[b"k"].retrying
    log.add(Record.SKIP, position=second)
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
    own = headers_of(Record.PARKED, offset=41, attempts=5, error="bad", at_ms=9)
    record = Message(3, 2, b"k", b"payload", 5, (("tenant", b"t"), *own), "id-1")
    assert restored(record, 3) == Message(3, 41, b"k", b"payload", 5, (("tenant", b"t"),), "id-1")


steps = st.lists(
    st.tuples(
        st.sampled_from(list(Record)), st.sampled_from([b"a", b"b", None]), st.integers(0, 9)
    ),
    max_size=40,
)


@given(steps, st.integers(0, 40))
def test_reading_a_log_twice_or_in_parts_gives_the_same(
    told: list[tuple[Record, bytes | None, int]], cut: int
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
