"""Whatever kills its process, however it is worked: it is found, and nobody else is hurt."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.config import ByKey, GroupConfig, Packs
from pxrs_ray.processing import suspects
from pxrs_ray.processing.suspects import Death, HandlerCall, blame
from tests.actors.worker_bench import LogInMemory
from tests.unit.poison_world import Process, Row, World

TIMES = {1: "once", 3: "3 times"}
WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "batches": {"batch": True},
    "lanes": {"processing": ByKey(parallelism=4)},
    "one lane": {"processing": ByKey(parallelism=1, handler_timeout_ms=10_000)},
    "quarantine": {"processing": ByKey(parallelism=3), "failure_policy": "quarantine"},
    "packs": {"processing": Packs(pack_records=7, parallelism=4)},
    "packs in turn": {"processing": Packs(submit_strategy="sequential", pack_records=5)},
}
HOW = ("exit", "kill", "late exit", "late kill")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "PAUSE_MS", 2)
    monkeypatch.setattr(suspects, "PAUSE_MS_MAX", 4)
    monkeypatch.setattr(suspects, "ALONE_MS", 12)


def world_of(folder: Path, way: str, seed: int, **changes: Any) -> World:
    draw = random.Random(seed)
    options = {"failure_policy": "skip", **WAYS[way], **changes}
    batch = options.pop("batch", False)
    attempts_max = draw.choice(list(TIMES))
    config = GroupConfig(queue="q", attempts_max=attempts_max, backoff_ms=1, **options)
    messages = draw.randint(8, 30)
    deadly = {
        (draw.randrange(3), draw.randrange(messages)): draw.choice(HOW)
        for _ in range(draw.randint(1, 3))
    }
    return World(folder, config, messages, deadly, batch=batch, seed=seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_the_culprit_meets_its_policy_and_every_innocent_is_handled(
    tmp_path: Path, way: str, seed: int
) -> None:
    world = world_of(tmp_path, way, seed)
    world.run()
    everything = {(p, o) for p in range(world.partitions) for o in range(world.messages)}
    quarantined = world.config.failure_policy == "quarantine"
    # What follows a culprit under its key waits behind it in quarantine, in order.
    behind = {
        (p, o)
        for p, o in everything
        if quarantined
        and any(p == dp and o > do and world.key(o) == world.key(do) for dp, do in world.deadly)
    }
    given_up = Counter((p, o) for p, o, _ in world.given_up)
    assert set(given_up) - behind == set(world.deadly) - behind
    assert set(world.done) | behind >= everything - set(world.deadly)
    # Given up again is only what a stale checkpoint brings back.
    deliveries, most = Counter(world.delivered), world.config.attempts_max
    for place in set(world.deadly) - behind:
        verdicts = world.verdicts(place)
        assert verdicts and all(attempts == most for attempts, _ in verdicts)
        assert all("HandlerKilled" in e and TIMES[most] in e for _, e in verdicts[:1])
        assert not quarantined or len(verdicts) == 1, "it is parked once"
        # Alone it is counted each time. What kills late, among others, is alone the later.
        assert most <= deliveries[place] <= most + 12
    if not isinstance(world.config.processing, Packs):
        first: dict[tuple[int, bytes], int] = {}
        seen = set()
        for p, o in world.done:
            if (p, o) not in seen:
                seen.add((p, o))
                assert o >= first.get((p, world.key(o)), -1), "the order of a key"
                first[p, world.key(o)] = o


def test_attempts_of_what_is_next_and_not_begun_are_kept(tmp_path: Path) -> None:
    death = Death((HandlerCall(0, 1, 5, 6),), 9)
    detail = blame(3, 0, "", death, death.calls)
    world = World(tmp_path, GroupConfig(queue="q"), 8, {}, partitions=1)
    world.rows = {0: Row(3, 0, detail)}
    process = Process(world, 0, {0: LogInMemory()})
    worker = process.workers[0]
    worker.stop()
    assert worker.join(10)
    worker._order.next_offset = 5  # type: ignore[attr-defined]
    assert worker.progress().attempts == 1
    process.close()
