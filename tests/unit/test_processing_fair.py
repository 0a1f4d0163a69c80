"""Fair turns between tenants, and what a flood does to a quiet neighbour's wait."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.errors import ConfigError
from pxrs_ray.model import Progress
from pxrs_ray.processing.fair_queue import FairQueue
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.scheduler import Item, Task
from tests.settings import lane_rules


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=1, max_size=30))
def test_everything_comes_out_once_and_each_tenant_in_its_order(
    puts: list[tuple[str, int]],
) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue({"a": 2.0})
    given_in: list[tuple[str, int]] = []
    for tenant, count in puts:
        for _ in range(count):
            given_in.append((tenant, len(given_in)))
            queue.put(tenant, len(given_in), given_in[-1])
    out = [queue.pop()[1] for _ in range(len(given_in))]
    assert sorted(out, key=lambda entry: entry[1]) == given_in and len(queue) == 0
    for tenant in "abc":
        mine = [entry for entry in out if entry[0] == tenant]
        assert mine == sorted(mine)
    with pytest.raises(IndexError):
        queue.pop()


def test_turns_follow_the_weights() -> None:
    queue: FairQueue[int] = FairQueue({"a": 1, "b": 2, "c": 4})
    for tenant in "abc":
        for number in range(1_000):
            queue.put(tenant, number, number)
    turns = Counter(queue.pop()[0] for _ in range(700))
    assert turns == {"a": 100, "b": 200, "c": 400}


def test_silence_saves_up_no_turns() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.put("late", 0, 0)
    queue.pop()
    for number in range(100):
        queue.put("busy", number, number)
    for _ in range(50):
        queue.pop()
    for number in range(100):
        queue.put("late", number, number)
    turns = Counter(queue.pop()[0] for _ in range(20))
    assert turns == {"busy": 10, "late": 10}


def test_many_tenants_that_come_and_go_are_forgotten() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(40_000):
        queue.put("always there", number, number)
    for number in range(20_000):
        queue.put(f"tenant-{number}", number, number)
        assert number in (queue.pop()[1], queue.pop()[1])
    assert len(queue._times) < 2_000


def test_weights_are_checked() -> None:
    with pytest.raises(ConfigError):
        FairQueue({"a": 0.0})


def p99_wait_ms(flood: bool, fair: bool, took_ms: int = 4, slots: int = 4) -> int:
    """The 99th percentile from arrival to end of a quiet tenant's messages, one every 40 ms,
    while another sends a thousand for each of them."""
    lanes = KeyLanes(Progress(0), lane_rules(lookahead_records=1 << 20, fair=True))
    running: list[tuple[int, Task]] = []
    arrived: dict[int, int] = {}
    waits = []
    offset = 0
    for now_ms in range(4_000):
        for end, task in [entry for entry in running if entry[0] <= now_ms]:
            running.remove((end, task))
            lanes.ended(task, None, now_ms)
            if task.item.offset in arrived:
                waits.append(now_ms - arrived[task.item.offset])
        if now_ms % 40 == 7:
            for number in range(1_000 if flood else 0):
                lanes.offer([Item(offset, b"l%d" % number, "loud" if fair else "")])
                offset += 1
            lanes.offer([Item(offset, b"q", "quiet" if fair else "")])
            arrived[offset] = now_ms
            offset += 1
        running += [(now_ms + took_ms, task) for task in lanes.take(now_ms, slots - len(running))]
    assert len(waits) >= 90 or not fair
    return sorted(waits)[len(waits) * 99 // 100] if waits else 1 << 30


def test_a_flood_of_a_thousand_to_one_at_most_doubles_the_others_wait() -> None:
    alone = p99_wait_ms(flood=False, fair=True)
    beside = p99_wait_ms(flood=True, fair=True)
    assert beside <= 2 * alone
    assert p99_wait_ms(flood=True, fair=False) > 20 * alone
