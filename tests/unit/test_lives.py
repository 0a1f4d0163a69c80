"""Hand-overs, again after a kill at each commit: nobody crashes, skips, or breaks a key's order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.config import ByKey, GroupConfig, Packs
from pxrs_ray.config.scheduling import scheduler_for
from pxrs_ray.model import Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.scheduler import Item, Task
from pxrs_ray.store.registry import DETAIL_CHARS_MAX
from tests.unit.lives import Choose, Lives, Log, by_seed

MESSAGES = 40
KEYS = 5
SOON = {"pause_ms": 1, "pause_ms_max": 5}
WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "lanes": {"processing": ByKey(parallelism=4)},
    "lanes that look ahead a little": {"processing": ByKey(parallelism=4, lookahead_records=8)},
    "lanes that skip": {"processing": ByKey(parallelism=4), "attempts_max": 2},
    "lanes with a time limit": {"processing": ByKey(parallelism=4, handler_timeout_ms=30)},
    "packs": {"processing": Packs(pack_records=16, **SOON)},
    "packs by originator": {
        "processing": Packs(
            submit_strategy="sequential_by_originator",
            processing_strategy="retry_failed",
            pack_records=9,
            **SOON,
        ),
    },
}


def config(way: str) -> GroupConfig:
    usual: dict[str, Any] = {"queue": "q", "failure_policy": "skip"}
    usual |= {"attempts_max": 0, "backoff_ms": 2, "backoff_ms_max": 20}
    return GroupConfig(**{**usual, **WAYS[way]})


def play(first: str, second: str, choose: Choose, kill_at: int, *, stored: bool) -> int:
    """A life that ends at its commit number `kill_at`, and one that finishes; all its commits."""
    lives = Lives(Log.of(MESSAGES, KEYS, choose), choose)
    life = lives.begin(config(first))
    commits = 0
    while not lives.all_done():
        for _ in range(1 + choose(30)):
            life.step()
        if choose(15) == 0:
            lives.log.truncate(min(lives.log.start + choose(10), lives.log.end))
        if choose(6) == 0:
            life.begin_again(config(first))
        commits += 1
        if commits >= kill_at:
            if stored:
                life.commit(answered=False)
            break
        life.commit()
    lives.begin(config(second)).finish()
    lives.check_end()
    return commits


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_a_kill_at_each_commit_of_a_hand_over(first: str, second: str, stored: bool) -> None:
    kill_at = 1
    while play(first, second, by_seed(1), kill_at, stored=stored) == kill_at:
        kill_at += 1
    assert kill_at > 3


@settings(max_examples=150, deadline=None)
@given(st.integers(0), st.lists(st.sampled_from(sorted(WAYS)), min_size=2, max_size=6))
def test_many_owners_after_one_another(seed: int, ways: list[str]) -> None:
    choose = by_seed(seed)
    lives = Lives(Log.of(MESSAGES, KEYS, choose), choose)
    for way in ways[:-1]:
        life = lives.begin(config(way))
        for _ in range(choose(6)):
            for _ in range(choose(40)):
                life.step()
            life.commit(answered=bool(choose(2)))
    lives.begin(config(ways[-1])).finish()
    lives.check_end()


@pytest.mark.parametrize(("done", "every"), [(1, 2), (39, 40), (1, 12)])
@pytest.mark.parametrize("way", ["lanes", "packs"])
def test_a_gap_map_that_fills_its_row_never_outgrows_it(way: str, done: int, every: int) -> None:
    """As many runs as fit into a row, and then every second message of the rest is done first."""
    gaps, at = DoneRanges(0), every - done
    while len(gaps.encode()) < DETAIL_CHARS_MAX - 60:
        gaps.add(at, at + done)
        at += every
    everything = config(way)
    if way == "packs":
        everything = everything.model_copy(update={"processing": Packs(pack_records=1_900)})
    scheduler = scheduler_for(everything, Progress(0, 0, gaps.encode()))
    assert scheduler is not None
    offered, waiting = 0, dict[int, Task]()
    for _ in range(2_000):
        if scheduler.has_room():
            scheduler.offer([Item(o, b"k%d" % o) for o in range(offered, offered + 1_900)])
            offered += 1_900
        for task in scheduler.take(0, 400 - len(waiting) if way == "lanes" else 4_000):
            waiting[task.item.offset] = task
        odd = [offset for offset in waiting if offset % 2]
        for offset in odd or list(waiting):
            scheduler.ended(waiting.pop(offset), None, 0)
        assert len(scheduler.progress().detail) <= DETAIL_CHARS_MAX
        if scheduler.progress().checkpoint > 600:
            return
    raise AssertionError(f"stands still at {scheduler.progress().checkpoint}")


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 400, 1_900])
@pytest.mark.parametrize("sparse", [1, 7, 1_000])
def test_room_for_keeps_its_word_however_they_end(count: int, sparse: int) -> None:
    for seed in range(5):
        choose = by_seed(seed)
        gaps = DoneRanges(5)
        for _ in range(choose(200)):
            first = 6 + choose(3_000)
            gaps.add(first, first + 1 + choose(9))
        offsets = [o for o in range(5, 5 + count * sparse, sparse) if o not in gaps][:count]
        offsets = offsets if offsets and offsets[0] == gaps.low else [gaps.low, *offsets]
        room = gaps.room_for(offsets, 600)
        assert 1 <= room <= len(offsets)
        done = offsets[:room]
        # Every second one first: that makes the most runs.
        for offset in [*done[1::2], *done[0::2]]:
            before = len(gaps.encode())
            gaps.add(offset)
            assert len(gaps.encode()) <= max(600, before)
