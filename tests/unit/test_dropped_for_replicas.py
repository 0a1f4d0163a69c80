"""What the leader of a slot has dropped: who lacks it begins anew; late words change nothing."""

from __future__ import annotations

import pytest

from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.leader_effects import (
    HaveBegin,
    ReplicationSettings,
    Ship,
    Tell,
)
from pxrs_ray.replication.led_log import LedLog
from pxrs_ray.replication.peer_messages import (
    Agreed,
    BeginAt,
    CutAt,
    Follower,
    Frames,
    Position,
    Stored,
    Watermark,
)
from pxrs_ray.replication.slot_follower import (
    BeginLog,
    FollowedLog,
    Say,
    SlotFollower,
    StoreFrames,
)
from pxrs_ray.replication.slot_leader import SlotLeader
from tests.replica_machines import (
    KEY,
    A,
    B,
    effects,
    follower_of,
    leader_of,
    placement,
    settle,
)


def begun_by(leader: SlotLeader, follower: SlotFollower) -> list[object]:
    """What the leader says to a follower that asks where their logs part."""
    follower.follow(leader.placement.epoch, "a", 0)
    [asked] = effects(follower)
    assert isinstance(asked, Say)
    leader.heard(asked.message, 0)
    return effects(leader)


@pytest.mark.parametrize(
    ("end", "begins"),
    [(5, ((1, 0),)), (12, ((1, 0),)), (15, ((1, 0), (2, 8)))],
    ids=["it ends before it", "it ends behind it", "it has an epoch of its own"],
)
def test_who_has_nothing_of_what_the_leader_still_has_begins_anew(
    end: int, begins: tuple[tuple[int, int], ...]
) -> None:
    """A cut would go down to the start, below what it knows to be safe."""
    leader = leader_of(30, (1, 0), (3, 10))
    leader.shortened(KEY, 10, 11)
    assert HaveBegin("b", KEY, 1, 1) in begun_by(leader, follower_of(end, *begins))
    follower = follower_of(end, *begins)
    follower.follow(4, "a", 0)
    effects(follower)
    follower.heard(BeginAt(4, KEY, 1, 1, 10, b"known"), 0)
    begun, asked = effects(follower)
    assert begun == BeginLog(KEY, 10, b"known")
    assert isinstance(asked, Say) and isinstance(asked.message, Position)
    assert (asked.message.first, asked.message.end, asked.message.number) == (10, 10, 2)
    leader.heard(asked.message, 0)
    assert Tell("b", Agreed(4, KEY, 1, 2)) in effects(leader)


def test_who_begins_later_than_the_leader_begins_anew_where_it_cannot_be_cut() -> None:
    leader, follower = leader_of(30, (1, 0), (2, 10)), follower_of(20)
    follower.logs[KEY].first = 20
    assert HaveBegin("b", KEY, 1, 1) in begun_by(leader, follower)


def test_whose_next_frames_are_dropped_meanwhile_begins_anew_and_is_told_until_it_does() -> None:
    leader, follower = leader_of(3, (1, 0), isr=(A,)), follower_of(3, (1, 0))
    settle(leader, follower)
    leader.appended(KEY, 9, 9, 0)
    [ship] = [one for one in effects(leader) if isinstance(one, Ship)]
    leader.shipped(ship, 6, 0)  # and it is lost on the way
    effects(leader)
    leader.shortened(KEY, 7, 7)
    told = HaveBegin("b", KEY, 1, 1)
    leader.tick(100)
    assert told in effects(leader)
    leader.tick(120)
    assert told not in effects(leader)
    leader.tick(200)
    assert told in effects(leader)
    leader.heard(Position(2, Follower("b", "boot 1", 1), KEY, 1, 1, 0, 3, 3), 210)
    assert told in effects(leader), "its question was late"
    leader.tick(400)
    assert told in effects(leader), "and was no answer"
    follower.heard(BeginAt(2, KEY, 1, 1, 7, b""), 210)
    follower.heard(BeginAt(2, KEY, 1, 1, 7, b""), 210)
    begun, asked = effects(follower)
    assert isinstance(begun, BeginLog) and isinstance(asked, Say), "once, however often it is told"


def test_what_was_stored_before_a_new_beginning_counts_for_nothing() -> None:
    leader, follower = leader_of(9, (1, 0)), follower_of(9, (1, 0))
    settle(leader, follower)
    leader.leave_behind("b", KEY, 0)
    who = Follower("b", "boot 1", 1)
    leader.heard(Position(2, who, KEY, 2, 1, 0, 7, 7), 0)
    leader.appended(KEY, 12, 12, 0)
    leader.heard(Stored(2, who, KEY, 1, 12, 12), 0)
    assert leader.logs[KEY].high_watermark == 9
    leader.heard(Stored(2, who, KEY, 2, 12, 12), 0)
    assert leader.logs[KEY].high_watermark == 12


def test_an_answer_to_a_former_life_is_not_heard() -> None:
    """Each life counts its questions from the start, and what it asks first is asked again."""
    log = FollowedLog(12, 12, EpochTable([(0, 0), (1, 0), (2, 7)]))
    follower = SlotFollower(Follower("b", "boot 1", 2), {KEY: log}, 80)
    follower.follow(3, "a", 0)
    effects(follower)
    follower.heard(CutAt(3, KEY, 1, 1, 1, 7), 0)
    follower.heard(BeginAt(3, KEY, 1, 1, 20, b""), 0)
    follower.heard(Agreed(3, KEY, 1, 1), 0)
    assert effects(follower) == [] and (log.end, log.agreed) == (12, False)
    follower.heard(Agreed(3, KEY, 2, 1), 0)
    assert log.agreed


def test_what_a_follower_said_last_and_was_lost_is_asked_again() -> None:
    settings = ReplicationSettings(synced_only=True, again_ms=80)
    log = LedLog(3, 3, EpochTable([(0, 0), (1, 0)]))
    leader = SlotLeader("a", placement(A, B, epoch=2), {KEY: log}, settings, 0)
    follower = follower_of(3, (1, 0))
    settle(leader, follower)
    leader.appended(KEY, 4, 4, 0)
    [ship] = [one for one in effects(leader) if isinstance(one, Ship)]
    leader.shipped(ship, 4, 0)
    follower.heard(Frames(2, KEY, 3, 4, ((2, 3),), 3, 0, b"x"), 0)
    assert isinstance(effects(follower)[0], StoreFrames)
    follower.stored(KEY, 3)
    [said] = effects(follower)
    assert isinstance(said, Say)
    leader.heard(said.message, 0)
    follower.stored(KEY, 4)
    effects(follower)  # lost: that it is synced
    leader.tick(200)
    [told] = [one for one in effects(leader) if isinstance(one, Tell)]
    follower.heard(told.message, 200)
    [said] = effects(follower)
    assert isinstance(said, Say)
    leader.heard(said.message, 200)
    assert log.high_watermark == 4


def test_a_start_that_was_lost_on_the_way_is_told_again() -> None:
    leader, follower = leader_of(8, (1, 0)), follower_of(8, (1, 0))
    settle(leader, follower)
    leader.shortened(KEY, 0, 5)
    leader.tick(100)
    [lost] = effects(leader)
    leader.tick(150)
    assert effects(leader) == []
    leader.tick(200)
    assert effects(leader) == [lost]
    assert isinstance(lost, Tell) and isinstance(lost.message, Watermark)
    follower.heard(lost.message, 200)
    assert follower.logs[KEY].start == 5
    [said] = effects(follower)
    assert isinstance(said, Say)
    leader.heard(said.message, 200)
    leader.tick(400)
    assert effects(leader) == []
