"""Two replicas of a slot on real logs: what one leads the other has; who is left behind is cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pxrs_ray.data.log_limits import Durability
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.replication.leader_effects import Advanced, ReplicationSettings, SteppedDown
from pxrs_ray.replication.peer_messages import Follower, Stored
from pxrs_ray.replication.placement import ReplicaSeen, elect, first_placement
from pxrs_ray.replication.slot_replica import ReplicaEffect, SlotReplica, ToPeer
from tests.logs import NOW_MS, contents, put
from tests.replica_logs import TINY, opened

LIMITS = replace(TINY, durability=Durability.INTERVAL)
KEYS = [("q", 0), ("q", 1)]
KEY = KEYS[0]
SEEN = {disk: ReplicaSeen(1, "boot-1") for disk in "ab"}
PLACED = first_placement(("a", "b"), SEEN)
FAILED_OVER = elect(PLACED, {"a": ReplicaSeen(2, "boot-1"), "b": SEEN["b"]}, False)


def replica(folder: Path, disk: str, life: int = 1) -> SlotReplica:
    logs = {key: opened(folder / disk / str(key[1]), LIMITS) for key in KEYS}
    who = Follower(disk, "boot-1", life)
    return SlotReplica(who, logs, ReplicationSettings(again_ms=80), 700, lambda: NOW_MS)


def carry(*replicas: SlotReplica) -> list[ReplicaEffect]:
    """Have them talk until they are silent; what else they wanted."""
    others: list[ReplicaEffect] = []
    by_disk = {one.who.disk: one for one in replicas}
    busy = True
    while busy:
        busy = False
        for one in replicas:
            while (effect := one.take_effect()) is not None:
                busy = True
                if isinstance(effect, ToPeer):
                    if effect.to in by_disk:
                        by_disk[effect.to].heard(effect.message, 0)
                else:
                    others.append(effect)
    return others


def frames(log: ReplicaLog) -> bytes:
    return b"".join(log.read_unsettled(0, 1 << 30).chunks)


def test_what_is_acknowledged_is_on_both_and_readable_on_both(tmp_path: Path) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    assert (a.takes, b.takes) == (True, False)
    for number in range(25):
        put(a.logs[KEYS[number % 2]], number // 2)
        a.grown(KEYS[number % 2], 0)
        assert a.logs[KEYS[number % 2]].visible_end == number // 2, (
            "the other one has not stored it"
        )
        assert Advanced(KEYS[number % 2], number // 2 + 1) in carry(a, b)
    a.tick(10)
    carry(a, b)
    for key, log in a.logs.items():
        assert frames(b.logs[key]) == frames(log)
        assert contents(b.logs[key]) == contents(log)
        assert len(contents(log)) == 13 - key[1]
        assert b.logs[key].epochs() == log.epochs() == [(1, 0)]


def test_who_was_left_behind_is_cut_back_to_the_one_that_leads(tmp_path: Path) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    put(a.logs[KEY], 0)
    a.grown(KEY, 0)
    carry(a, b)
    put(a.logs[KEY], 1, [b"nobody was told of it"])
    a.grown(KEY, 0)
    for log in a.logs.values():
        log.abandon()
    assert FAILED_OVER is not None
    assert (FAILED_OVER.leader, FAILED_OVER.epoch) == ("b", 2)
    b.placed(FAILED_OVER, 0)
    assert b.takes
    assert not put(b.logs[KEY], 1, [b"it was sent again"]).repeated
    b.grown(KEY, 0)
    a = replica(tmp_path, "a", life=2)
    a.placed(FAILED_OVER, 0)
    carry(a, b)
    assert frames(a.logs[KEY]) == frames(b.logs[KEY])
    assert contents(b.logs[KEY]) == {0: b"m000000", 1: b"it was sent again"}
    assert a.logs[KEY].epochs() == b.logs[KEY].epochs() == [(1, 0), (2, 1)]
    assert put(a.logs[KEY], 1, [b"it was sent again"]).repeated, "producers are known there as well"


def test_who_led_follows_in_the_same_life_and_tells_so(tmp_path: Path) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    put(a.logs[KEY], 0)
    a.grown(KEY, 0)  # and nothing of it arrives
    while a.take_effect() is not None:
        pass
    assert FAILED_OVER is not None
    b.placed(FAILED_OVER, 0)
    a.placed(FAILED_OVER, 0)
    assert SteppedDown() in carry(a, b)
    assert not a.takes
    assert a.logs[KEY].end_offset == 0
    assert a.logs[KEY].leader_epoch == 0
    b.placed(PLACED, 0)
    assert b.takes, "an older placement means nothing"
    put(b.logs[KEY], 0, [b"another"])
    b.grown(KEY, 0)
    carry(a, b)
    assert frames(a.logs[KEY]) == frames(b.logs[KEY])


def test_who_joins_when_all_that_was_is_dropped_answers_its_producers_all_the_same(
    tmp_path: Path,
) -> None:
    a = replica(tmp_path, "a")
    alone = first_placement(("a",), SEEN)
    a.placed(replace(alone, replicas=("a", "b")), 0)
    for number in range(40):
        put(a.logs[KEY], number)
        a.grown(KEY, 0)
    a.logs[KEY].sync()
    a.logs[KEY].truncate_before(38, NOW_MS, force=True)
    a.grown(KEY, 0)
    assert a.logs[KEY].first_offset > 0
    b = replica(tmp_path, "b")
    b.placed(replace(alone, replicas=("a", "b")), 0)
    carry(a, b)
    a.tick(100)
    carry(a, b)
    assert b.logs[KEY].start_offset == 38
    assert contents(b.logs[KEY]) == contents(a.logs[KEY])
    both = replace(PLACED, version=5)
    leads = elect(both, {"b": SEEN["b"]}, False)
    assert leads is not None
    b.placed(leads, 200)
    again = put(b.logs[KEY], 3)
    assert (again.base_offset, again.repeated) == (3, True)
    assert put(b.logs[KEY], 40).base_offset == 40


def test_what_is_dropped_while_frames_are_asked_for_ends_nobody(tmp_path: Path) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    a.placed(replace(PLACED, isr=PLACED.isr[:1], version=2), 0)
    for number in range(30):
        put(a.logs[KEY], number)
        a.grown(KEY, 0)
    while a.take_effect() is not None:
        pass  # lost, all of it
    a.placed(replace(PLACED, isr=PLACED.isr[:1], version=3), 0)
    log = a.logs[KEY]
    log.sync()
    log.truncate_before(29, NOW_MS, force=True)
    assert log.first_offset > 0
    a.tick(100)
    carry(a, b)
    assert (b.logs[KEY].first_offset, b.logs[KEY].end_offset) == (log.first_offset, 30)
    assert frames_from(b.logs[KEY], 29) == frames_from(log, 29)


def test_what_is_synced_because_something_was_dropped_is_told(tmp_path: Path) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    for number in range(4):
        put(a.logs[KEY], number)
        a.grown(KEY, 0)
        carry(a, b)
    a.tick(100)
    carry(a, b)
    a.logs[KEY].truncate_before(4, NOW_MS, force=True)
    a.grown(KEY, 100)
    a.tick(200)
    carry(a, b)
    assert (b.logs[KEY].start_offset, b.logs[KEY].durable_offset) == (4, 4)
    b.tick(200)
    said = []
    while (effect := b.take_effect()) is not None:
        said.append(effect)
    told = [one.message for one in said if isinstance(one, ToPeer)]
    assert [one.synced for one in told if isinstance(one, Stored) and one.key == KEY] == [4]


def test_a_log_that_is_opened_later_is_replicated_and_one_that_is_closed_no_more(
    tmp_path: Path,
) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    new = ("another", 0)
    a.opened(new, opened(tmp_path / "a" / "new", LIMITS), 0)
    assert a.logs[new].leader_epoch == 1
    put(a.logs[new], 0)
    a.grown(new, 0)
    assert Advanced(new, 1) not in carry(a, b)
    b.opened(new, opened(tmp_path / "b" / "new", LIMITS), 0)
    assert Advanced(new, 1) in carry(a, b)
    put(a.logs[new], 1)
    a.grown(new, 0)
    b.closed(new)
    a.closed(new)
    assert carry(a, b) == [] and new not in a.logs


def frames_from(log: ReplicaLog, offset: int) -> bytes:
    return b"".join(log.read_unsettled(offset, 1 << 30).chunks)
