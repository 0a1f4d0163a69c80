"""Two replicas of a slot on real logs: what one leads the other has; who is left behind is cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pxrs_ray.data.log_limits import Durability
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.replication.leader_effects import Advanced, ReplicationSettings, SteppedDown
from pxrs_ray.replication.peer_messages import Follower
from pxrs_ray.replication.placement import ReplicaSeen, elect, first_placement
from pxrs_ray.replication.slot_replica import ReplicaEffect, SlotReplica, ToPeer
from tests.logs import NOW_MS, contents, put
from tests.replica_logs import TINY, opened

LIMITS = replace(TINY, durability=Durability.INTERVAL)
SEEN = {disk: ReplicaSeen(1, "boot-1") for disk in "ab"}
PLACED = first_placement(("a", "b"), SEEN)
FAILED_OVER = elect(PLACED, {"a": ReplicaSeen(2, "boot-1"), "b": SEEN["b"]}, False)


def replica(folder: Path, disk: str, life: int = 1) -> SlotReplica:
    logs = {partition: opened(folder / disk / str(partition), LIMITS) for partition in range(2)}
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
        put(a.logs[number % 2], number // 2)
        a.grown(number % 2, 0)
        assert a.logs[number % 2].visible_end == number // 2, "the other one has not stored it"
        assert Advanced(number % 2, number // 2 + 1) in carry(a, b)
    a.tick(10)
    carry(a, b)
    for partition, log in a.logs.items():
        assert frames(b.logs[partition]) == frames(log)
        assert contents(b.logs[partition]) == contents(log)
        assert len(contents(log)) == 13 - partition
        assert b.logs[partition].epochs() == log.epochs() == [(1, 0)]


def test_who_was_left_behind_is_cut_back_to_the_one_that_leads(tmp_path: Path) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    put(a.logs[0], 0)
    a.grown(0, 0)
    carry(a, b)
    put(a.logs[0], 1, [b"nobody was told of it"])
    a.grown(0, 0)
    for log in a.logs.values():
        log.abandon()
    assert FAILED_OVER is not None
    assert (FAILED_OVER.leader, FAILED_OVER.epoch) == ("b", 2)
    b.placed(FAILED_OVER, 0)
    assert b.takes
    assert not put(b.logs[0], 1, [b"it was sent again"]).repeated
    b.grown(0, 0)
    a = replica(tmp_path, "a", life=2)
    a.placed(FAILED_OVER, 0)
    carry(a, b)
    assert frames(a.logs[0]) == frames(b.logs[0])
    assert contents(b.logs[0]) == {0: b"m000000", 1: b"it was sent again"}
    assert a.logs[0].epochs() == b.logs[0].epochs() == [(1, 0), (2, 1)]
    assert put(a.logs[0], 1, [b"it was sent again"]).repeated, "producers are known there as well"


def test_who_led_follows_in_the_same_life_and_tells_so(tmp_path: Path) -> None:
    a, b = replica(tmp_path, "a"), replica(tmp_path, "b")
    for one in (a, b):
        one.placed(PLACED, 0)
    carry(a, b)
    put(a.logs[0], 0)
    a.grown(0, 0)  # and nothing of it arrives
    while a.take_effect() is not None:
        pass
    assert FAILED_OVER is not None
    b.placed(FAILED_OVER, 0)
    a.placed(FAILED_OVER, 0)
    assert SteppedDown() in carry(a, b)
    assert not a.takes
    assert a.logs[0].end_offset == 0
    assert a.logs[0].leader_epoch == 0
    b.placed(PLACED, 0)
    assert b.takes, "an older placement means nothing"
    put(b.logs[0], 0, [b"another"])
    b.grown(0, 0)
    carry(a, b)
    assert frames(a.logs[0]) == frames(b.logs[0])
