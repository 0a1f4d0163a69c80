"""The published stories of replicated logs, each told with the machines: who cuts what, who leads.

The names are those of Kafka's improvement proposals, where each story was first written down.
"""

from __future__ import annotations

from functools import partial

import pytest

from pxrs_ray.errors import UsageError
from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
    ReplicationSettings,
    Ship,
    Tell,
)
from pxrs_ray.replication.led_log import LedLog
from pxrs_ray.replication.peer_messages import (
    CutAt,
    Follower,
    Frames,
    Position,
    Stored,
)
from pxrs_ray.replication.placement import (
    InSync,
    IsrChange,
    ReplicaSeen,
    accept_loss,
    change_isr,
    elect,
    first_placement,
    waits_for,
    with_replicas,
)
from pxrs_ray.replication.slot_follower import (
    CutLog,
    Say,
    StoreFrames,
)
from pxrs_ray.replication.slot_leader import SlotLeader
from tests.replica_machines import (
    ALIVE,
    KEY,
    A,
    B,
    C,
    effects,
    follower_of,
    leader_of,
    placement,
    settle,
)

# --- where logs part ------------------------------------------------------------------------------


def test_kip_101_a_follower_that_restarts_keeps_what_its_leader_has() -> None:
    """It has heard of no high watermark, and would have cut all that it has."""
    leader, follower = leader_of(10, (1, 0)), follower_of(10, (1, 0))
    assert settle(leader, follower) == []
    assert follower.logs[KEY].agreed


def test_kip_101_a_tail_of_an_epoch_that_went_on_elsewhere_is_cut_where_that_ended() -> None:
    leader, follower = leader_of(12, (1, 0), (2, 7)), follower_of(10, (1, 0))
    assert settle(leader, follower) == [7]


def test_kip_279_who_had_an_epoch_of_its_own_cuts_down_to_one_that_both_had() -> None:
    leader = leader_of(20, (1, 0), (4, 9))
    follower = follower_of(15, (1, 0), (2, 6), (3, 12))
    assert settle(leader, follower) == [6]
    assert follower.logs[KEY].table.last == 1


def test_an_epoch_without_a_message_is_cut_though_no_message_is() -> None:
    leader, follower = leader_of(8, (1, 0), (3, 8)), follower_of(8, (1, 0), (2, 8))
    assert settle(leader, follower) == [8]
    assert follower.logs[KEY].table.begins == [(0, 0), (1, 0)]
    assert follower.logs[KEY].agreed


def test_kip_320_what_is_said_under_another_epoch_is_not_heard() -> None:
    follower = follower_of(5, (1, 0))
    follower.follow(3, "a", 0)
    effects(follower)
    follower.heard(CutAt(2, KEY, 1, 1, 0, 0), 0)
    follower.heard(Frames(2, KEY, 5, 6, ((2, 5),), 0, 0, b"x"), 0)
    assert effects(follower) == [] and follower.logs[KEY].end == 5


def test_a_cut_that_comes_late_cuts_nothing_that_was_stored_since() -> None:
    leader, follower = leader_of(12, (1, 0), (2, 7)), follower_of(10, (1, 0))
    follower.follow(3, "a", 0)
    [asked] = effects(follower)
    assert isinstance(asked, Say) and isinstance(asked.message, Position)
    leader.heard(asked.message, 0)
    [told] = [one for one in effects(leader) if isinstance(one, Tell)]
    assert settle(leader, follower) == []
    follower.heard(told.message, 0)
    settle_again = effects(follower)
    assert CutLog(KEY, 7) in settle_again
    for one in settle_again:
        if isinstance(one, Say):
            leader.heard(one.message, 0)
    for effect in effects(leader):
        if isinstance(effect, Tell):
            follower.heard(effect.message, 0)
    follower.heard(Frames(3, KEY, 7, 12, ((2, 7),), 0, 0, b"x"), 0)
    assert [one for one in effects(follower) if isinstance(one, StoreFrames)]
    follower.heard(told.message, 0)
    assert effects(follower) == [] and follower.logs[KEY].end == 12


def test_a_table_names_the_epochs_of_a_run_of_frames() -> None:
    table = EpochTable([(0, 0), (1, 4), (3, 9)])
    assert table.epochs_in(2, 10) == ((0, 2), (1, 4), (3, 9))
    assert table.epochs_in(4, 9) == ((1, 4),)
    table.cut(9)
    assert (table.last, table.end_of(7, 9)) == (1, (1, 9))


def test_frames_are_taken_at_the_end_of_the_log_and_nowhere_else() -> None:
    leader, follower = leader_of(5, (1, 0)), follower_of(5, (1, 0))
    settle(leader, follower)
    for first, end in ((4, 6), (6, 7)):
        follower.heard(Frames(2, KEY, first, end, ((2, 5),), 0, 0, b"x"), 0)
        [said] = effects(follower)
        assert isinstance(said, Say) and isinstance(said.message, Stored)
        assert said.message.end == 5, "so the leader sends what is missing"
    follower.heard(Frames(2, KEY, 5, 6, ((2, 5),), 0, 0, b"x"), 0)
    assert isinstance(effects(follower)[0], StoreFrames)


# --- what is acknowledged -------------------------------------------------------------------------


def stored(end: int, life: int = 1) -> Stored:
    return Stored(2, Follower("b", "boot 1", life), KEY, 1, end, end)


def test_the_high_watermark_is_what_all_in_sync_have_and_it_never_goes_back() -> None:
    leader = leader_of(3, (1, 0))
    settle(leader, follower_of(3, (1, 0)))
    assert leader.logs[KEY].high_watermark == 3
    leader.appended(KEY, 6, 6, 0)
    assert not [one for one in effects(leader) if isinstance(one, Advanced)]
    leader.heard(stored(5), 0)
    assert Advanced(KEY, 5) in effects(leader)
    leader.heard(Position(2, Follower("b", "boot 1", 2), KEY, 1, 1, 0, 2, 2), 0)
    assert leader.logs[KEY].high_watermark == 5


def test_what_a_former_life_has_stored_counts_for_nothing() -> None:
    leader = leader_of(3, (1, 0))
    settle(leader, follower_of(3, (1, 0)))
    leader.appended(KEY, 6, 6, 0)
    leader.heard(Position(2, Follower("b", "boot 1", 2), KEY, 1, 1, 0, 2, 2), 0)
    leader.heard(stored(6), 0)
    assert leader.logs[KEY].high_watermark == 3
    leader.heard(stored(6, life=2), 0)
    assert leader.logs[KEY].high_watermark == 6, "and the later one is not forgotten for it"


def test_a_leader_that_hears_nobody_asks_for_a_smaller_set_and_waits_until_it_stands() -> None:
    leader = leader_of(3, (1, 0))
    settle(leader, follower_of(3, (1, 0)))
    leader.appended(KEY, 6, 6, 10)
    leader.tick(450)
    leader.tick(1_000)
    asked = [one.change for one in effects(leader) if isinstance(one, AskIsr)]
    assert asked and asked[0] == IsrChange(2, 1, (A,))
    assert leader.logs[KEY].high_watermark == 3
    leader.placed(placement(A, epoch=2, version=2), 1_010)
    assert leader.logs[KEY].high_watermark == 6


def test_who_was_never_heard_stays_in_sync_while_there_is_nothing_to_have() -> None:
    leader = SlotLeader("a", placement(A, B, epoch=2), {}, ReplicationSettings(), 0)
    leader.tick(5_000)
    assert leader.take_effect() is None, "a slot without logs"
    leader.opened(KEY, LedLog(0, 0, EpochTable()), 5_000)
    leader.tick(5_100)
    assert leader.take_effect() is None, "a log that was made a moment ago"
    leader.appended(KEY, 5, 0, 5_200)
    leader.tick(6_300)
    asked = leader.take_effect()
    assert isinstance(asked, AskIsr) and asked.change.isr == (A,)


def test_a_replica_that_comes_back_is_waited_for_from_the_moment_it_is_asked_for() -> None:
    leader = leader_of(3, (1, 0), isr=(A,))
    assert leader.logs[KEY].high_watermark == 3
    settle(leader, follower_of(3, (1, 0)))
    assert leader.is_asking
    leader.appended(KEY, 4, 4, 0)
    assert leader.logs[KEY].high_watermark == 3, "the registry may have let it in by now"


def test_a_leader_hears_nothing_of_another_epoch_and_no_question_that_was_answered() -> None:
    leader = leader_of(3, (1, 0))
    who = Follower("b", "boot 1", 1)
    leader.heard(Position(1, who, KEY, 1, 1, 0, 3, 3), 0)
    assert effects(leader) == []
    leader.heard(Position(2, who, KEY, 2, 1, 0, 3, 3), 0)
    assert [one for one in effects(leader) if isinstance(one, Tell)]
    leader.heard(Position(2, who, KEY, 1, 1, 0, 9, 9), 0)
    assert effects(leader) == []


def test_fewer_in_sync_than_the_least_acknowledge_nothing() -> None:
    log = LedLog(3, 3, EpochTable([(0, 0), (1, 0)]))
    settings = ReplicationSettings(min_isr=2)
    leader = SlotLeader("a", placement(A, epoch=2), {KEY: log}, settings, 0)
    assert not leader.takes and log.high_watermark == 0
    leader.placed(placement(A, B, epoch=2, version=2), 0)
    assert leader.takes


def test_where_a_power_cut_is_to_take_nothing_only_what_is_synced_counts() -> None:
    log = LedLog(5, 4, EpochTable([(0, 0), (1, 0)]))
    leader = SlotLeader(
        "a", placement(A, B, epoch=2), {KEY: log}, ReplicationSettings(synced_only=True), 0
    )
    leader.heard(Position(2, Follower("b", "boot 1", 1), KEY, 1, 1, 0, 5, 3), 0)
    assert log.high_watermark == 3
    leader.heard(Stored(2, Follower("b", "boot 1", 1), KEY, 1, 5, 5), 0)
    assert log.high_watermark == 4


def test_who_lacks_what_the_log_had_when_the_epoch_began_is_not_let_in() -> None:
    """It may be acknowledged, though the new leader has not heard of it."""
    leader = leader_of(10, (1, 0), isr=(A, C))
    leader.heard(Position(2, Follower("b", "boot 1", 1), KEY, 1, 1, 0, 5, 5), 0)
    assert not [one for one in effects(leader) if isinstance(one, AskIsr)]
    leader.heard(stored(10), 0)
    assert [one.change.isr for one in effects(leader) if isinstance(one, AskIsr)] == [(A, C, B)]


def test_what_was_lost_on_the_way_is_said_again() -> None:
    leader, follower = leader_of(3, (1, 0)), follower_of(3, (1, 0))
    follower.follow(2, "a", 0)
    [asked] = effects(follower)
    follower.tick(100)
    assert effects(follower) == [asked]
    assert isinstance(asked, Say)
    leader.heard(asked.message, 0)
    effects(leader)
    leader.appended(KEY, 4, 4, 0)
    [ship] = [one for one in effects(leader) if isinstance(one, Ship)]
    leader.shipped(ship, 4, 0)
    leader.tick(50)
    assert not [one for one in effects(leader) if isinstance(one, Ship)]
    leader.heard(stored(3), 60)
    leader.tick(100)
    assert Ship("b", KEY, 3) in effects(leader), "and an answer that brings nothing puts it off not"


# --- who leads ------------------------------------------------------------------------------------


def test_who_has_answered_is_elected_first_and_who_cannot_lead_leaves_the_set_by_it() -> None:
    seen = {"b": ALIVE["b"], "c": ALIVE["c"]}
    found = elect(placement(A, B, C), seen, synced_only=False, answered={"c"})
    assert found is not None and (found.leader, found.isr) == ("c", (B, C))
    again = {"a": ReplicaSeen(2, "boot 1"), "b": ReplicaSeen(1, "boot 2")}
    found = elect(placement(A, B), again, synced_only=False, answered={"a", "b"})
    assert found is not None and (found.leader, found.isr) == ("a", (A,))
    found = elect(placement(A, B), again, synced_only=False, answered={"b"})
    assert found is not None and (found.leader, found.isr) == ("a", (A, B))


def test_only_who_is_in_sync_is_elected_and_nobody_leaves_the_set_by_it() -> None:
    found = elect(placement(A, B), {"b": ALIVE["b"], "c": ALIVE["c"]}, synced_only=False)
    assert found is not None
    assert (found.leader, found.epoch, found.version, found.isr) == ("b", 2, 2, (A, B))
    assert elect(placement(A, B), {"c": ALIVE["c"]}, synced_only=False) is None


def test_a_later_process_of_the_leader_leads_under_a_higher_epoch() -> None:
    again = {"a": ReplicaSeen(2, "boot 1")}
    found = elect(placement(A), again, synced_only=False)
    assert found is not None and (found.leader, found.life, found.epoch) == ("a", 2, 2)


def test_kip_966_the_last_replica_is_not_elected_when_its_machine_was_started_again() -> None:
    again = {"a": ReplicaSeen(2, "boot 2"), "b": ALIVE["b"]}
    assert elect(placement(A), again, synced_only=False) is None
    [told] = waits_for(placement(A), again, synced_only=False).values()
    assert "not synced" in told
    assert elect(placement(A), again, synced_only=True) is not None
    chosen = accept_loss(placement(A), "b", ALIVE["b"])
    assert (chosen.leader, chosen.isr, chosen.epoch) == ("b", (B,), 2)


def test_a_damaged_replica_is_not_elected_and_why_the_slot_waits_is_told() -> None:
    seen = {"b": ReplicaSeen(1, "boot 1", whole=False)}
    assert elect(placement(A, B), seen, synced_only=True) is None
    assert waits_for(placement(A, B), seen, synced_only=True) == {"a": "is away", "b": "is damaged"}
    assert waits_for(placement(A, B), ALIVE, synced_only=True) == {}


def test_kip_903_a_question_older_than_a_replicas_last_start_lets_nobody_in() -> None:
    asked = IsrChange(1, 1, (A, B), (("b", 1),))
    assert change_isr(placement(A), asked, ALIVE) == placement(A, B, version=2)
    reborn = {**ALIVE, "b": ReplicaSeen(1, "boot 2")}
    assert change_isr(placement(A), asked, reborn) is None
    assert change_isr(placement(A, version=2), asked, ALIVE) is None
    assert change_isr(placement(A), IsrChange(1, 1, (B,)), ALIVE) is None, "not without the leader"


def test_replicas_change_around_the_leader_and_never_below_what_is_in_sync() -> None:
    assert with_replicas(placement(A, B), ("a", "d")).isr == (A,)
    with pytest.raises(UsageError, match="lead first"):
        with_replicas(placement(A, B), ("b", "c"))
    first = first_placement(("a", "b"), ALIVE)
    assert (first.leader, first.epoch, first.isr) == ("a", 1, (A, B))


def test_kip_903_a_process_that_began_since_is_not_let_in_for_what_the_one_before_it_had() -> None:
    """It may have lost a log meanwhile, on the same disk and in the same boot."""
    leader = leader_of(5, isr=(A,))
    follower = follower_of(5)
    settle(leader, follower)
    asked = [one.change for one in effects(leader) if isinstance(one, AskIsr)]
    leader.tick(1_000)
    asked += [one.change for one in effects(leader) if isinstance(one, AskIsr)]
    assert asked and asked[-1].isr == (A, B) and asked[-1].lives == (("b", 1),)
    stands = placement(A)
    assert change_isr(stands, asked[-1], ALIVE) is not None
    newer = {**ALIVE, "b": ReplicaSeen(2, "boot 1")}
    assert change_isr(stands, asked[-1], newer) is None


# --- catching up, bounded -------------------------------------------------------------------------


def shipping(isr: tuple[InSync, ...], now_ms: int = 0) -> SlotLeader:
    """A leader at 10 messages, of which b has none, and 1,000 bytes a second for who catches up."""
    log = LedLog(10, 10, EpochTable([(0, 0), (1, 0)]))
    settings = ReplicationSettings(lag_max_ms=400, again_ms=80, catch_up_bytes_per_s=1_000)
    leader = SlotLeader("a", placement(*isr, epoch=2), {KEY: log}, settings, now_ms)
    leader.heard(Position(2, Follower("b", "boot 1", 1), KEY, 1, 0, 0, 0, 0), now_ms)
    return leader


def ships(leader: SlotLeader) -> list[int]:
    return [one.first for one in effects(leader) if isinstance(one, Ship)]


def test_who_catches_up_is_sent_no_more_in_a_second_than_there_is_room_for() -> None:
    leader, sent = shipping((A,), 1_000), 0
    for at_ms in range(1_000, 2_000, 20):
        # As its host does: what is to be sent goes before anything else happens.
        for event in (partial(leader.heard, stored(sent), at_ms), partial(leader.tick, at_ms)):
            event()
            for first in ships(leader):
                sent += 1
                leader.shipped(Ship("b", KEY, first), min(10, first + 1), at_ms, 200)
    assert 5 <= sent <= 6, "five of 200 bytes, and what was saved before"
    leader.needs(1, 0)
    leader.tick(2_000)
    assert ships(leader), "without a bound it goes on at once"


def test_who_is_in_sync_or_about_to_be_is_sent_all_at_once() -> None:
    for leader in (shipping((A, B)), shipping((A,))):
        leader._room.take(1_000_000, 0)
        ships(leader)
        if B not in leader.placement.isr:
            leader._asked = (A, B)
        leader.shipped(Ship("b", KEY, 0), 5, 0, 200)
        assert ships(leader) == [5]
