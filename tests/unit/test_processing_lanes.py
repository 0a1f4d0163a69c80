"""Key lanes: order per key, the lowest unfinished offset, what a crash repeats, what is parked."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.model import Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.key_ordered import KeyLanes, LaneRules
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.scheduler import Item, Work, WorkScheduler
from tests.settings import lane_rules
from tests.unit.driven_scheduler import Script, drive


def items(keys: list[int | None], tenants: int = 1) -> list[Item]:
    return [
        Item(offset, None if key is None else b"k%d" % key, f"t{(key or 0) % tenants}")
        for offset, key in enumerate(keys)
    ]


def rules(
    policy: FailurePolicy = FailurePolicy.SKIP, attempts_max: int = 3, **others: object
) -> LaneRules:
    retry = RetryRules(attempts_max, 10, 40, policy)
    return lane_rules(retry, **others)  # type: ignore[arg-type]


def script_of(seed: int, broken: frozenset[int] = frozenset()) -> Script:
    def script(offset: int, attempt: int) -> tuple[int, str | None]:
        draw = random.Random(seed * 1_000_003 + offset * 1_009 + attempt)
        fails = offset in broken or draw.random() < 0.15
        return draw.choice([0, 1, 2, 5, 30]), "broken" if fails else None

    return script


def check_order(begun: list[tuple[int, int, int]], every: list[Item]) -> None:
    """Within a key no message begins before the former one was begun for the last time."""
    by_key: dict[bytes, list[int]] = {}
    for _, offset, _ in begun:
        key = every[offset].key
        if key is not None:
            by_key.setdefault(key, []).append(offset)
    for offsets in by_key.values():
        assert offsets == sorted(offsets)


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=60),
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.integers(0, 400),
    st.sampled_from([100, 150, 2_000]),
)
def test_a_crash_anywhere_repeats_only_what_was_not_done(
    keys: list[int | None], seed: int, room: int, crash_ms: int, detail_chars: int
) -> None:
    every = items(keys)
    told: list[Progress] = []

    def check(scheduler: WorkScheduler) -> None:
        told.append(scheduler.progress())

    limits = rules(attempts_max=0, detail_chars=detail_chars)
    first = KeyLanes(Progress(0), limits)
    before = drive(first, every, script_of(seed), room, crash_ms, check)
    assert [s.checkpoint for s in told] == sorted(s.checkpoint for s in told)
    kept = first.progress()
    done = {offset for offset in range(len(keys)) if offset in DoneRanges.decode(*_of(kept))[0]}
    last = {offset: attempt for _, offset, attempt in before.begun}
    ended = {offset for _, offset in before.ended}
    assert done == {o for o in ended if script_of(seed)(o, last[o])[1] is None}
    second = KeyLanes(kept, limits)
    after = drive(second, every[kept.checkpoint :], script_of(seed + 1), room, check=check)
    assert second.progress() == Progress(len(keys))
    assert not {offset for _, offset, _ in after.begun} & done
    check_order(before.begun, every)
    check_order(after.begun, every)


def _of(progress: Progress) -> tuple[int, str]:
    return progress.checkpoint, progress.detail


def test_a_slow_key_holds_up_nobody_else() -> None:
    every = items([0, 1, 0, 2, 3, 1])
    ran = drive(KeyLanes(Progress(0), rules()), every, lambda o, _: (100 if o == 0 else 1, None))
    began = {offset: at for at, offset, _ in ran.begun}
    assert began == {0: 0, 1: 0, 2: 100, 3: 0, 4: 0, 5: 1}


def test_messages_without_a_key_wait_for_nobody() -> None:
    ran = drive(KeyLanes(Progress(0), rules()), items([None] * 5), lambda *_: (7, None))
    assert ran.now_ms == 7


def test_many_keys_at_once_are_many_times_faster_than_one_after_the_other() -> None:
    draw = random.Random(5)
    every = items([draw.randrange(1_000) for _ in range(10_000)])
    took = [draw.randrange(6) for _ in every]
    ran = drive(KeyLanes(Progress(0), rules()), every, lambda o, _: (took[o], None), room=32)
    assert sum(took) / ran.now_ms > 24


def test_attempts_survive_three_hand_overs() -> None:
    progress = Progress(0)
    limits = rules(FailurePolicy.DEAD_LETTER, attempts_max=5)
    every = items([0, 1, 2, 1])
    attempts = []

    def one_broken(offset: int, attempt: int) -> tuple[int, str | None]:
        return 1, "broken" if offset == 1 else None

    for _ in range(3):
        lanes = KeyLanes(progress, limits)
        drive(lanes, every[progress.checkpoint :], one_broken, until_ms=20)
        progress = lanes.progress()
        attempts.append(progress.attempts)
        assert progress.checkpoint == 1
    assert attempts == [2, 3, 4]
    last = KeyLanes(progress, limits)
    ran = drive(last, every[1:], one_broken)
    assert [offset for _, offset, _ in ran.begun] == [1, 3] and ran.given_up == [1]
    assert last.progress() == Progress(4)


def test_a_poisoned_key_is_parked_with_what_follows_and_others_flow() -> None:
    every = items([0, 1, 0, 2, 0, 1, 0])
    lanes = KeyLanes(Progress(0), rules(FailurePolicy.QUARANTINE, attempts_max=2))
    ran = drive(lanes, every, lambda o, _: (1, "poison" if o == 2 else None))
    assert [o for _, o, _ in ran.begun if every[o].key == b"k0"] == [0, 2, 2]
    assert ran.parked == [2, 4, 6] and lanes.parked == {b"k0"}
    assert lanes.progress() == Progress(7)
    assert not any(o in ran.parked for _, o, _ in ran.begun if o in (1, 3, 5))


def test_a_key_that_was_parked_before_stays_parked_until_it_is_let_go() -> None:
    lanes = KeyLanes(Progress(5), rules(FailurePolicy.QUARANTINE))
    lanes.park(b"k0")
    lanes.offer([Item(5, b"k0"), Item(6, b"k1"), Item(7, b"k0")])
    tasks = {task.work: task for task in lanes.take(0, 10)}
    assert [item.offset for item in tasks[Work.PARK].items] == [5, 7]
    assert not lanes.unpark(b"k0")
    lanes.ended(tasks[Work.PARK], None, 0)
    assert lanes.unpark(b"k0")
    lanes.offer([Item(8, b"k0")])
    assert [task.work for task in lanes.take(0, 10)] == [Work.HANDLE]


def test_parking_that_fails_is_tried_again_and_nothing_of_the_key_overtakes() -> None:
    lanes = KeyLanes(Progress(0), rules(FailurePolicy.QUARANTINE, attempts_max=1))
    lanes.offer(items([0, 0]))
    [handled] = lanes.take(0, 10)
    lanes.ended(handled, "poison", 0)
    [parking] = lanes.take(0, 10)
    lanes.ended(parking, "the quarantine is away", 0)
    assert lanes.take(9, 10) == [] and lanes.due_ms() == 10
    [again] = lanes.take(10, 10)
    assert again.work is Work.PARK and len(again.items) == 2
    lanes.ended(again, None, 10)
    assert lanes.progress() == Progress(2)


def test_stop_lets_the_others_end_and_begins_nothing_more() -> None:
    lanes = KeyLanes(Progress(0), rules(FailurePolicy.STOP, attempts_max=1))
    lanes.offer(items([0, 1, 0, 1]))
    one, other = lanes.take(0, 10)
    lanes.ended(one, "broken", 1)
    lanes.ended(other, None, 2)
    assert lanes.take(3, 10) == [] and lanes.due_ms() is None
    assert lanes.stopped_by is one.item
    assert lanes.progress() == Progress(0, 1, "1:11;01")


def test_a_handler_that_takes_too_long_has_failed_and_is_not_listened_to() -> None:
    lanes = KeyLanes(Progress(0), rules(timeout_ms=50))
    lanes.offer(items([0]))
    [late] = lanes.take(0, 10)
    assert lanes.due_ms() == 50 and lanes.expire(49) == []
    assert lanes.expire(50) == [late] and late.item.error == "HandlerTimeout: not done in 50 ms"
    lanes.ended(late, None, 51)
    assert lanes.progress().checkpoint == 0 and lanes.progress().attempts == 1
    [again] = lanes.take(60, 10)
    assert again.attempt == 2


def test_when_the_map_is_full_only_the_lowest_goes_on_until_it_fits_again() -> None:
    every = items(list(range(2_000)))
    stuck = {0}

    def script(offset: int, attempt: int) -> tuple[int, str | None]:
        return 1, "stuck" if offset in stuck or offset % 2 else None

    longest = 0

    def check(scheduler: WorkScheduler) -> None:
        nonlocal longest
        longest = max(longest, len(scheduler.progress().detail))

    lanes = KeyLanes(Progress(0), rules(attempts_max=0, detail_chars=300))
    ran = drive(lanes, every, script, room=8, until_ms=5_000, check=check)
    assert 100 < longest <= 300
    assert len({offset for _, offset, _ in ran.begun}) < 300
    stuck.clear()
    more = drive(lanes, [], lambda *_: (1, None), room=8, until_ms=100_000, check=check)
    assert more.begun and lanes.progress().checkpoint > 100


def test_room_ends_at_the_look_ahead_in_messages_and_bytes() -> None:
    lanes = KeyLanes(Progress(0), rules(lookahead_records=3))
    lanes.offer(items([0, 0, 0]))
    assert not lanes.has_room()
    lanes = KeyLanes(Progress(0), rules(lookahead_bytes=100))
    lanes.offer([Item(0, b"k", size_bytes=100)])
    assert not lanes.has_room()
    [task] = lanes.take(0, 1)
    lanes.ended(task, None, 0)
    assert lanes.has_room()


def test_gaps_of_the_log_are_passed() -> None:
    lanes = KeyLanes(Progress(3, 2, "1:11;02"), rules())
    lanes.skip(10)
    assert lanes.progress() == Progress(10)
    lanes.offer([Item(12, b"k")])
    lanes.skip(20)
    assert lanes.progress().checkpoint == 10


@pytest.mark.parametrize("room", [1, 4])
def test_tenants_take_turns_by_their_weights(room: int) -> None:
    loud = [Item(o, b"l%d" % o, "loud") for o in range(900)]
    quiet = [Item(900 + o, b"q%d" % o, "quiet") for o in range(100)]
    lanes = KeyLanes(Progress(0), rules(weights={"quiet": 3.0}))
    lanes.offer(loud + quiet)
    ran = drive(lanes, [], lambda *_: (1, None), room=room)
    first = [o for _, o, _ in ran.begun[:120]]
    assert 85 <= sum(o >= 900 for o in first) <= 95
