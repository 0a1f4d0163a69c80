"""Packs: all submit and processing strategies against a slow, obvious reference."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

from pxrs_ray.errors import ConfigError
from pxrs_ray.model import Progress
from pxrs_ray.processing.pack_rules import PackRules, ProcessingStrategy, SubmitStrategy
from pxrs_ray.processing.packs import PackScheduler
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.processing.scheduler import Item, Task
from tests.settings import pack_rules, pack_shape
from tests.unit.driven_scheduler import Ran, Script, drive

S, P = SubmitStrategy, ProcessingStrategy
KEYS = 4
TENANTS = 2


def items(count: int) -> list[Item]:
    return [
        Item(offset, b"k%d" % (offset * 7 % KEYS), f"t{offset * 5 % 3 % TENANTS}")
        for offset in range(count)
    ]


def run(
    submit: SubmitStrategy,
    strategy: ProcessingStrategy,
    script: Script,
    count: int = 12,
    policy: FailurePolicy = FailurePolicy.SKIP,
    **rules: float,
) -> Ran:
    scheduler = PackScheduler(
        Progress(0),
        pack_shape(submit, pack_records=8, batch_records=3),
        pack_rules(strategy, **rules),  # type: ignore[arg-type]
        policy,
    )
    ran = drive(scheduler, items(count), script)
    if policy is FailurePolicy.SKIP:
        assert scheduler.progress() == Progress(count)
    return ran


class Reference:
    """Everything again from the beginning, message by message, millisecond by millisecond."""

    def __init__(self, submit: SubmitStrategy, rules: PackRules, script: Script) -> None:
        self.submit, self.rules, self.script = submit, rules, script
        self.attempts: dict[int, int] = {}
        self.begun: list[tuple[int, int, int]] = []
        self.given_up: list[int] = []
        self.now_ms = 0

    def must_wait_for(self, pack: list[Item], item: Item) -> Iterable[Item]:
        before = [other for other in pack if other.offset < item.offset]
        if self.submit is S.BURST:
            return []
        if self.submit is S.BATCH:
            return before[: len(before) // 3 * 3]
        if self.submit is S.SEQUENTIAL_BY_ORIGINATOR:
            return [other for other in before if other.key == item.key]
        if self.submit is S.SEQUENTIAL_BY_TENANT:
            return [other for other in before if other.tenant == item.tenant]
        return before

    def round(self, pack: list[Item]) -> dict[int, str]:
        ends: dict[int, tuple[int, str | None]] = {}
        deadline_ms = self.now_ms + self.rules.timeout_ms
        waits = self.rules.strategy is P.SKIP_ALL_FAILURES
        over: set[int] = set()
        while len(over) < len(pack):
            over = {offset for offset, (end, _) in ends.items() if end <= self.now_ms}
            if len(over) == len(pack) or (self.now_ms >= deadline_ms and not waits):
                break
            for item in pack:
                free = all(other.offset in over for other in self.must_wait_for(pack, item))
                if free and item.offset not in ends:
                    self.attempts[item.offset] = self.attempts.get(item.offset, 0) + 1
                    attempt = self.attempts[item.offset]
                    took, error = self.script(item.offset, attempt)
                    ends[item.offset] = (self.now_ms + took, error)
                    self.begun.append((self.now_ms, item.offset, attempt))
            over = {offset for offset, (end, _) in ends.items() if end <= self.now_ms}
            if len(over) < len(pack) and not any(
                item.offset not in ends
                and all(other.offset in over for other in self.must_wait_for(pack, item))
                for item in pack
            ):
                self.now_ms += 1
        return {
            item.offset: "late"
            if item.offset not in over
            else ("bad" if ends[item.offset][1] else "good")
            for item in pack
        }

    def pack(self, pack: list[Item]) -> None:
        strategy, size = self.rules.strategy, len(pack)
        for number in itertools.count(1):
            fates = self.round(pack)
            good = [o for o in fates if fates[o] == "good"]
            bad = [o for o in fates if fates[o] == "bad"]
            late = [o for o in fates if fates[o] == "late"]
            again: list[int] = []
            if strategy is P.RETRY_ALL and bad + late:
                again = good + bad + late
            elif strategy is P.RETRY_FAILED:
                again = bad
            elif strategy is P.RETRY_TIMED_OUT:
                again = late
            elif strategy is P.RETRY_FAILED_AND_TIMED_OUT:
                again = bad + late
            too_often = self.rules.retries and number > self.rules.retries
            too_bad = len(bad + late) / size * 100 > self.rules.failure_percentage
            if too_often or too_bad:
                again = []
            self.given_up += sorted(o for o in bad + late if o not in again)
            if not again:
                return
            pause_ms = self.rules.pause_ms
            for _ in range(number - 1):
                pause_ms = min(pause_ms * 2, self.rules.pause_ms_max)
            self.now_ms += min(pause_ms, self.rules.pause_ms_max)
            pack = [item for item in pack if item.offset in again]

    def run(self, every: list[Item]) -> None:
        while every:
            self.pack(every[:8])
            every = every[8:]


def script_of(seed: int) -> Script:
    def script(offset: int, attempt: int) -> tuple[int, str | None]:
        draw = random.Random(seed * 1_000_003 + offset * 1_009 + attempt)
        took = draw.choice([0, 1, 2, 5, 9, 25])
        return took, draw.choice([None, None, None, "broken"])

    return script


@pytest.mark.parametrize("strategy", P)
@pytest.mark.parametrize("submit", S)
def test_every_combination_does_what_the_reference_does(
    submit: SubmitStrategy, strategy: ProcessingStrategy
) -> None:
    for seed in range(12):
        draw = random.Random(seed)
        rules = pack_rules(
            strategy,
            timeout_ms=draw.choice([8, 20, 60]),
            retries=draw.choice([1, 2, 4, 0 if seed % 3 else 3]),
            pause_ms=draw.choice([0, 3, 10]),
            pause_ms_max=draw.choice([10, 25]),
            failure_percentage=draw.choice([100.0, 100.0, 60.0, 30.0]),
        )
        script, count = script_of(seed), draw.choice([1, 7, 12, 20])
        scheduler = PackScheduler(Progress(0), pack_shape(submit, 8, 3), rules, FailurePolicy.SKIP)
        ran = drive(scheduler, items(count), script)
        reference = Reference(submit, rules, script)
        reference.run(items(count))
        assert ran.begun == reference.begun
        assert ran.given_up == reference.given_up
        assert scheduler.progress() == Progress(count)


# --- what only one strategy does ------------------------------------------------------------------


def slow_even(offset: int, attempt: int) -> tuple[int, str | None]:
    return (10 if offset % 2 == 0 else 1), None


def begins(submit: SubmitStrategy) -> list[tuple[int, int]]:
    ran = run(submit, P.RETRY_FAILED, slow_even, count=6, timeout_ms=1_000)
    return [(at, offset) for at, offset, _ in ran.begun]


SUBMITTED = {
    S.BURST: [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)],
    S.BATCH: [(0, 0), (0, 1), (0, 2), (10, 3), (10, 4), (10, 5)],
    S.SEQUENTIAL_BY_ORIGINATOR: [(0, 0), (0, 1), (0, 2), (0, 3), (1, 5), (10, 4)],
    S.SEQUENTIAL_BY_TENANT: [(0, 0), (0, 2), (10, 1), (10, 5), (11, 3), (12, 4)],
    S.SEQUENTIAL: [(0, 0), (10, 1), (11, 2), (21, 3), (22, 4), (32, 5)],
}


@pytest.mark.parametrize("submit", S)
def test_submit_strategies_each_begin_in_a_way_of_their_own(submit: SubmitStrategy) -> None:
    found = begins(submit)
    assert sorted(offset for _, offset in found) == list(range(6))
    assert [other for other in S if begins(other) == found] == [submit]
    assert found == SUBMITTED[submit]


def one_fails_one_is_late(offset: int, attempt: int) -> tuple[int, str | None]:
    if attempt == 1 and offset == 1:
        return 1, "broken"
    if attempt == 1 and offset == 2:
        return 50, None
    return 1, None


CALLED = {
    P.SKIP_ALL_FAILURES: ({0: 1, 1: 1, 2: 1, 3: 1}, [1]),
    P.SKIP_ALL_FAILURES_AND_TIMED_OUT: ({0: 1, 1: 1, 2: 1, 3: 1}, [1, 2]),
    P.RETRY_ALL: ({0: 2, 1: 2, 2: 2, 3: 2}, []),
    P.RETRY_FAILED: ({0: 1, 1: 2, 2: 1, 3: 1}, [2]),
    P.RETRY_TIMED_OUT: ({0: 1, 1: 1, 2: 2, 3: 1}, [1]),
    P.RETRY_FAILED_AND_TIMED_OUT: ({0: 1, 1: 2, 2: 2, 3: 1}, []),
}


@pytest.mark.parametrize("strategy", P)
def test_processing_strategies_each_end_in_a_way_of_their_own(strategy: ProcessingStrategy) -> None:
    ran = run(S.BURST, strategy, one_fails_one_is_late, count=4, timeout_ms=20)
    calls = {o: max(a for _, other, a in ran.begun if other == o) for o in range(4)}
    assert (calls, ran.given_up) == CALLED[strategy]
    assert list(CALLED.values()).count(CALLED[strategy]) == 1


# --- the limits -----------------------------------------------------------------------------------


def always_fails(offset: int, attempt: int) -> tuple[int, str | None]:
    return 0, "broken"


def test_pauses_grow_to_their_maximum() -> None:
    ran = run(S.BURST, P.RETRY_FAILED, always_fails, 1, retries=5, pause_ms=100, pause_ms_max=500)
    assert [at for at, _, _ in ran.begun] == [0, 100, 300, 700, 1_200, 1_700]
    assert ran.given_up == [0]


def test_no_limit_of_retries_is_no_limit() -> None:
    def at_last(offset: int, attempt: int) -> tuple[int, str | None]:
        return 0, None if attempt == 500 else "broken"

    ran = run(S.BURST, P.RETRY_FAILED, at_last, 1, retries=0, pause_ms=1, pause_ms_max=1)
    assert len(ran.begun) == 500 and not ran.given_up


@pytest.mark.parametrize(("broken", "calls"), [(4, 16), (5, 8)])
def test_a_pack_that_is_mostly_broken_is_not_repeated(broken: int, calls: int) -> None:
    def script(offset: int, attempt: int) -> tuple[int, str | None]:
        return 0, "broken" if offset < broken else None

    ran = run(S.BURST, P.RETRY_ALL, script, 8, retries=1, failure_percentage=50)
    assert len(ran.begun) == calls and ran.given_up == list(range(broken))


def test_stop_keeps_the_message_and_begins_nothing_more() -> None:
    scheduler = PackScheduler(
        Progress(0),
        pack_shape(S.SEQUENTIAL, 4),
        pack_rules(P.RETRY_FAILED, retries=1, pause_ms=1, pause_ms_max=1),
        FailurePolicy.STOP,
    )
    ran = drive(scheduler, items(8), lambda o, _: (0, "broken" if o == 2 else None))
    assert scheduler.stopped_by is not None and scheduler.stopped_by.offset == 2
    assert scheduler.progress() == Progress(2, 2, "1:11")
    assert max(offset for _, offset, _ in ran.begun) == 3


def test_a_crash_repeats_only_what_was_not_done_and_counts_on() -> None:
    rules = pack_rules(P.RETRY_FAILED, retries=3, pause_ms=100, pause_ms_max=100)
    shape = pack_shape(S.BURST, 8)

    def odd_fail(offset: int, attempt: int) -> tuple[int, str | None]:
        return 0, "broken" if offset % 2 else None

    first = PackScheduler(Progress(0), shape, rules, FailurePolicy.SKIP)
    drive(first, items(8), odd_fail, until_ms=150)
    kept = first.progress()
    assert (kept.checkpoint, kept.attempts) == (1, 2)
    second = PackScheduler(kept, shape, rules, FailurePolicy.SKIP)
    ran = drive(second, items(8)[1:], odd_fail)
    assert [offset for _, offset, _ in ran.begun] == [1, 3, 5, 7] * 2
    assert ran.given_up == [1, 3, 5, 7] and second.progress() == Progress(8)


def test_what_a_late_call_says_is_not_listened_to() -> None:
    rules = pack_rules(P.RETRY_TIMED_OUT, timeout_ms=10, retries=1, pause_ms=0)
    scheduler = PackScheduler(Progress(0), pack_shape(S.BURST, 8), rules, FailurePolicy.SKIP)
    scheduler.offer(items(1))
    [late] = scheduler.take(0, 10)
    assert scheduler.expire(10) == [late] and late.over
    [again] = scheduler.take(10, 10)
    scheduler.ended(late, None, 11)
    assert scheduler.progress().checkpoint == 0
    scheduler.ended(again, None, 12)
    assert scheduler.progress() == Progress(1)


def test_giving_up_that_fails_is_tried_again() -> None:
    rules = pack_rules(P.SKIP_ALL_FAILURES, pause_ms=100, pause_ms_max=1_000)
    scheduler = PackScheduler(Progress(0), pack_shape(S.BURST), rules, FailurePolicy.DEAD_LETTER)
    scheduler.offer(items(1))
    [handled] = scheduler.take(0, 1)
    scheduler.ended(handled, "broken", 0)
    refused: list[Task] = scheduler.take(0, 1)
    scheduler.ended(refused[0], "the dead-letter queue is away", 0)
    assert scheduler.take(50, 1) == [] and scheduler.due_ms() == 100
    [letter] = scheduler.take(100, 1)
    scheduler.ended(letter, None, 100)
    assert scheduler.progress() == Progress(1)


def test_rules_are_checked() -> None:
    with pytest.raises(ConfigError):
        pack_rules(P.RETRY_ALL, failure_percentage=101)
    with pytest.raises(ConfigError):
        pack_rules(P.RETRY_ALL, pause_ms=20, pause_ms_max=10)
    with pytest.raises(ConfigError):
        pack_shape(S.BURST, pack_records=5_000)
