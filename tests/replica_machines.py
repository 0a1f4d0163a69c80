"""The machines of two replicas, and what carries their words: for tests of who says what."""

from __future__ import annotations

from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.leader_effects import (
    ReplicationSettings,
    Ship,
    Tell,
)
from pxrs_ray.replication.led_log import LedLog
from pxrs_ray.replication.peer_messages import (
    Follower,
)
from pxrs_ray.replication.placement import (
    InSync,
    Placement,
    ReplicaSeen,
)
from pxrs_ray.replication.slot_follower import (
    CutLog,
    FollowedLog,
    Say,
    SlotFollower,
)
from pxrs_ray.replication.slot_leader import SlotLeader

KEY = ("q", 0)
A, B, C = (InSync(disk, "boot 1") for disk in "abc")
ALIVE = {disk: ReplicaSeen(1, "boot 1") for disk in "abc"}
SETTINGS = ReplicationSettings(lag_max_ms=400, again_ms=80)


def placement(*isr: InSync, leader: str = "a", epoch: int = 1, version: int = 1) -> Placement:
    return Placement(("a", "b", "c"), isr, leader, 1, epoch, version)


def leader_of(end: int, *begins: tuple[int, int], isr: tuple[InSync, ...] = (A, B)) -> SlotLeader:
    log = LedLog(end, end, EpochTable([(0, 0), *begins]))
    epoch = max((epoch for epoch, _ in begins), default=0) + 1
    return SlotLeader("a", placement(*isr, epoch=epoch), {KEY: log}, SETTINGS, 0)


def effects(machine: SlotLeader | SlotFollower) -> list[object]:
    found: list[object] = []
    while (effect := machine.take_effect()) is not None:
        found.append(effect)
    return found


def follower_of(end: int, *begins: tuple[int, int]) -> SlotFollower:
    log = FollowedLog(end, end, EpochTable([(0, 0), *begins]))
    return SlotFollower(Follower("b", "boot 1", 1), {KEY: log}, 80)


def settle(leader: SlotLeader, follower: SlotFollower) -> list[int]:
    """Carry what they say until both are silent; where the follower has cut."""
    cuts = []
    follower.follow(leader.placement.epoch, "a", 0)
    for _ in range(20):
        said = effects(follower)
        cuts += [one.end for one in said if isinstance(one, CutLog)]
        for one in said:
            if isinstance(one, Say):
                leader.heard(one.message, 0)
        told = effects(leader)
        for effect in told:
            if isinstance(effect, Tell):
                follower.heard(effect.message, 0)
            elif isinstance(effect, Ship):
                leader.shipped(effect, leader.logs[KEY].end, 0)
        if not said and not told:
            break
    return cuts
