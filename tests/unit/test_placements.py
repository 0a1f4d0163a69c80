"""What a coordinator decides about replicas, and keeps before anybody hears of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pxrs_ray.errors import StoreSchemaError, UsageError
from pxrs_ray.replication.placement import InSync, IsrChange, Placement, ReplicaSeen
from pxrs_ray.replication.placements import (
    PLACEMENTS,
    AskReplicas,
    KeepPlacements,
    PlacementRules,
    Placements,
    SlotPlacements,
    TellReplicas,
    placements_from,
)
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.replica_spread import (
    another_disk,
    spread_replicas,
)

BOOT = "boot 1"
A, B, C = (InSync(disk, BOOT) for disk in "abc")
RULES = PlacementRules(heard_ms=250, answer_ms=5)
BOTH = Placement(("a", "b", "c"), (A, B), "a", 1, 1, 1)
LATE_MS = 300


def table_of(placement: Placement = BOTH, *seen: str, now_ms: int = LATE_MS) -> SlotPlacements:
    table = SlotPlacements(Placements(slots={0: placement}), RULES, 0)
    for disk in seen or ("a", "b", "c"):
        table.heard(0, disk, now_ms, ReplicaSeen(1, BOOT), 0)
    assert effects(table) == []
    return table


def effects(table: SlotPlacements) -> list[object]:
    found: list[object] = []
    while (effect := table.take_effect()) is not None:
        found.append(effect)
    return found


def late(table: SlotPlacements, now_ms: int = LATE_MS, slot: int = 0) -> None:
    """Nobody answers who is asked because a leader is missed."""
    table.look(now_ms)
    assert effects(table) == [AskReplicas(slot)]
    table.look(now_ms + RULES.answer_ms)


def kept(table: SlotPlacements) -> Placement:
    """What it wants to be durable."""
    [effect] = effects(table)
    assert isinstance(effect, KeepPlacements)
    return effect.placements.slots[0]


def test_nobody_hears_of_an_election_before_it_is_durable() -> None:
    table = table_of()
    table.died(0, "a", 1, LATE_MS)
    late(table)
    led = kept(table)
    assert (led.leader, led.epoch, led.version) == ("b", 2, 2)
    assert table.placements.slots[0] == BOTH
    table.note_away({"c": 1_500}, LATE_MS + 1)
    assert effects(table) == [], "one write at a time"
    table.kept(True, LATE_MS + 2)
    told, written = effects(table)
    assert told == TellReplicas(0, led) and isinstance(written, KeepPlacements)
    assert table.placements.slots[0] == led


def test_who_answers_since_the_leader_was_missed_leads_with_who_lives_by_one_write() -> None:
    table, missed_ms = table_of(), LATE_MS + 10
    table.died(0, "a", 1, missed_ms)
    assert effects(table) == [AskReplicas(0)]
    table.heard(0, "b", missed_ms - 1, ReplicaSeen(1, BOOT), missed_ms + 1)
    assert effects(table) == [], "it was asked before: it may have gone with the leader"
    table.heard(0, "b", missed_ms, ReplicaSeen(1, BOOT), missed_ms + 2)
    led = kept(table)
    assert (led.leader, led.epoch, led.isr) == ("b", 2, (B,))
    table.kept(True, missed_ms + 3)
    assert effects(table) == [TellReplicas(0, led)]


def test_for_who_does_not_answer_nobody_leaves_the_in_sync_set() -> None:
    table = table_of()
    table.died(0, "a", 1, LATE_MS)
    late(table)
    led = kept(table)
    assert (led.leader, led.isr) == ("b", (A, B)), "it may be gone, and the other one has all"


def test_what_was_answered_before_another_leader_was_missed_counts_for_nothing() -> None:
    table = table_of(Placement(("a", "b", "c"), (A, B, C), "a", 1, 1, 1))
    table.died(0, "a", 1, LATE_MS)
    effects(table)
    table.heard(0, "b", LATE_MS, ReplicaSeen(1, BOOT), LATE_MS + 2)
    table.heard(0, "c", LATE_MS, ReplicaSeen(1, BOOT), LATE_MS + 2)
    assert kept(table).isr == (B, C)
    table.died(0, "b", 1, LATE_MS + 3)
    table.kept(True, LATE_MS + 4)
    assert AskReplicas(0) in effects(table)
    table.heard(0, "c", LATE_MS + 3, ReplicaSeen(1, BOOT), LATE_MS + 5)
    assert effects(table) == []
    table.heard(0, "c", LATE_MS + 4, ReplicaSeen(1, BOOT), LATE_MS + 6)
    led = kept(table)
    assert (led.leader, led.isr) == ("c", (C,))


def test_a_leader_that_is_missed_is_asked_after_while_something_else_is_written() -> None:
    table = table_of()
    table.note_away({"c": 1_500}, LATE_MS)
    effects(table)
    table.died(0, "a", 1, LATE_MS + 1)
    assert effects(table) == [AskReplicas(0)]
    table.heard(0, "b", LATE_MS + 1, ReplicaSeen(1, BOOT), LATE_MS + 2)
    table.kept(True, LATE_MS + 3)
    assert kept(table).isr == (B,)


def test_who_was_replaced_changes_and_tells_nothing_more() -> None:
    table = table_of()
    table.died(0, "a", 1, LATE_MS)
    late(table)
    kept(table)
    table.kept(False, LATE_MS + 2)
    assert table.ended
    table.isr_asked(0, IsrChange(1, 1, (A,)), LATE_MS + 3)
    table.look(LATE_MS + 3)
    assert [one for one in effects(table) if isinstance(one, KeepPlacements)] == []
    assert table.placements.slots[0] == BOTH


def test_who_began_a_moment_ago_elects_nobody_and_calls_nobody_absent() -> None:
    table = SlotPlacements(Placements(slots={0: BOTH}), RULES, 0)
    table.heard(0, "b", 10, ReplicaSeen(1, BOOT), 20)
    table.look(200)
    assert effects(table) == [] and table.absent(0, 200) is None
    late(table, 251)
    assert kept(table).leader == "b"
    assert table.absent(0, 251) == frozenset({"a", "c"})
    assert table.absent(7, 251) is None


def test_an_answer_counts_from_when_it_was_asked_and_none_for_an_earlier_process() -> None:
    table = table_of()
    table.heard(0, "a", 310, ReplicaSeen(2, BOOT), 320)
    late(table, 320)
    assert kept(table).leader == "b", "that process does not lead"
    table.heard(0, "a", 305, ReplicaSeen(1, BOOT), 330)
    assert table.living(0, 330)["a"].life == 2
    table.died(0, "a", 1, 330)
    assert "a" in table.living(0, 330), "an earlier one died"
    assert "a" not in table.living(0, 310 + RULES.heard_ms + 1)


def test_what_is_asked_while_a_write_is_under_way_is_judged_by_what_stands_then() -> None:
    table = table_of()
    table.isr_asked(0, IsrChange(1, 1, (A,)), LATE_MS)
    alone = kept(table)
    assert alone.isr == (A,)
    table.isr_asked(0, IsrChange(1, 1, (A, B, C)), LATE_MS)
    table.kept(True, LATE_MS)
    assert TellReplicas(0, alone) in effects(table)
    assert table.placements.slots[0] == alone, "it was asked of another version"
    table.isr_asked(0, IsrChange(1, 2, (A, C), (("c", 1),)), LATE_MS)
    assert kept(table).isr == (A, C)


def test_who_is_refused_is_told_what_stands() -> None:
    table = table_of()
    table.isr_asked(0, IsrChange(1, 9, (A,)), LATE_MS)
    assert effects(table) == [TellReplicas(0, BOTH)]


def test_a_slot_leaves_a_disk_once_that_does_not_lead_and_only_as_it_was_seen() -> None:
    table = table_of()
    table.change_disks(0, 1, ("d", "b", "c"), LATE_MS)
    assert effects(table) == []
    table.died(0, "a", 1, LATE_MS)
    late(table)
    kept(table)
    table.kept(True, LATE_MS)
    effects(table)
    table.change_disks(0, 1, ("d", "b", "c"), LATE_MS)
    table.change_disks(0, 2, ("b", "c", "c"), LATE_MS)
    assert effects(table) == [], "it was seen of another version; one disk twice is none more"
    table.change_disks(0, 2, ("d", "b", "c"), LATE_MS)
    placed = kept(table)
    assert (placed.replicas, placed.isr) == (("d", "b", "c"), (B,))


def test_leadership_is_handed_over_to_one_in_sync_that_lives_and_to_no_other() -> None:
    table = table_of(BOTH, "a", "b")
    for disk in ("a", "c", "x"):
        table.hand_over(0, disk, LATE_MS)
        assert effects(table) == [], disk
    table.hand_over(0, "b", LATE_MS)
    led = kept(table)
    assert (led.leader, led.life, led.epoch, led.isr) == ("b", 1, 2, (A, B))
    table.kept(True, LATE_MS)
    assert effects(table) == [TellReplicas(0, led)], "and it stays with that"


def test_a_boot_that_may_have_lost_something_is_handed_nothing() -> None:
    table = table_of(BOTH, "a")
    table.heard(0, "b", LATE_MS, ReplicaSeen(1, "boot 2"), LATE_MS)
    table.hand_over(0, "b", LATE_MS)
    assert effects(table) == []


def test_what_a_process_answered_before_it_was_dismissed_does_not_count() -> None:
    table = table_of()
    table.dismissed(0, "c", LATE_MS)
    assert "c" not in table.living(0, LATE_MS)
    table.heard(0, "c", LATE_MS, ReplicaSeen(1, BOOT), LATE_MS + 5)
    assert "c" not in table.living(0, LATE_MS + 5), "it was asked before that"
    table.heard(0, "c", LATE_MS + 1, ReplicaSeen(1, BOOT), LATE_MS + 6)
    assert "c" in table.living(0, LATE_MS + 6)


def test_for_how_long_disks_were_away_is_kept_beside_the_placements() -> None:
    table = table_of()
    table.note_away({"c": 1_500}, LATE_MS)
    [effect] = effects(table)
    assert isinstance(effect, KeepPlacements) and effect.placements.away_ms == {"c": 1_500}
    assert placements_from(PLACEMENTS.encode_text(effect.placements)) == effect.placements
    table.kept(True, LATE_MS)
    assert effects(table) == [], "no replica has to hear of it"


def test_why_nobody_leads_is_told() -> None:
    table = table_of(BOTH, "c")
    assert table.waits(0, LATE_MS) == {"a": "is away", "b": "is away"}
    table.heard(0, "b", LATE_MS, ReplicaSeen(2, "boot 2"), LATE_MS)
    assert "started again" in table.waits(0, LATE_MS)["b"]
    table.heard(0, "b", LATE_MS, ReplicaSeen(2, BOOT), LATE_MS)
    assert table.waits(0, LATE_MS) == {} == table.waits(7, LATE_MS)


def test_an_operator_chooses_among_the_living_only() -> None:
    table = table_of(BOTH, "c")
    table.look(LATE_MS)
    assert effects(table) == [], "it is not in sync"
    for disk in ("a", "x"):
        with pytest.raises(UsageError, match="no living replica"):
            table.accept_loss(0, disk, LATE_MS)
    table.accept_loss(0, "c", LATE_MS)
    placed = kept(table)
    assert (placed.leader, placed.isr, placed.epoch) == ("c", (C,), 2)


def test_a_slot_goes_on_with_one_that_is_in_sync_before_any_other() -> None:
    waits = Placement(("a", "b", "c"), (A, B), "", 1, 1, 1)
    table = SlotPlacements(Placements(slots={0: waits}), PlacementRules(250), 0)
    with pytest.raises(UsageError, match="no replica of buffer 0 lives"):
        table.heir(0, LATE_MS)
    table.heard(0, "c", LATE_MS, ReplicaSeen(1, BOOT), LATE_MS)
    assert table.heir(0, LATE_MS) == "c", "it is all that is left"
    table.heard(0, "b", LATE_MS, ReplicaSeen(2, "boot 2"), LATE_MS)
    assert table.waits(0, LATE_MS) and table.heir(0, LATE_MS) == "b"
    with pytest.raises(UsageError, match="nothing of it is to be given up"):
        table.heir(7, LATE_MS)


def test_what_is_made_must_be_on_those_that_may_lead_next() -> None:
    assert table_of().followers(0) == {"b": True, "c": False}
    assert table_of().followers(7) is None


def test_a_slot_begins_once_when_all_its_replicas_are_there() -> None:
    table = SlotPlacements(Placements(), RULES, 0)
    table.heard(4, "a", 0, ReplicaSeen(3, BOOT), 0)
    with pytest.raises(UsageError, match="while b is not there"):
        table.begin(4, ("a", "b"), 10)
    table.heard(4, "b", 0, ReplicaSeen(1, BOOT), 10)
    table.begin(4, ("a", "b"), 10)
    [effect] = effects(table)
    assert isinstance(effect, KeepPlacements)
    placed = effect.placements.slots[4]
    assert (placed.leader, placed.life, placed.isr) == ("a", 3, (A, B))
    table.kept(True, 20)
    effects(table)
    table.begin(4, ("b", "a"), 30)
    assert effects(table) == []


def test_the_document_reads_back_and_a_newer_one_is_refused() -> None:
    found = Placements(slots={3: BOTH})
    assert placements_from(PLACEMENTS.encode_text(found)) == found
    assert placements_from("") == Placements()
    with pytest.raises(StoreSchemaError, match="newer version"):
        placements_from(PLACEMENTS.encode_text(Placements(form=2)))


def test_a_coordinator_that_was_late_itself_waits_for_as_much_longer_and_no_more() -> None:
    table = table_of()
    for now_ms in range(LATE_MS, LATE_MS + 200, 50):
        table.tick(now_ms)
    woken_ms = LATE_MS + 150 + 100 + 200  # it was late by that
    table.tick(woken_ms)
    assert effects(table) == [] and "a" in table.living(0, woken_ms), "its leader may live"
    table.heard(0, "b", woken_ms, ReplicaSeen(1, BOOT), woken_ms)
    assert effects(table) == []
    table.tick(woken_ms + 1)
    assert effects(table) == [AskReplicas(0)], "and no more than that"


# --- where replicas go ----------------------------------------------------------------------------


def nodes(count: int, **more: object) -> list[NodeSeen]:
    return [NodeSeen(f"n{at}", f"10.0.0.{at}", f"disk {at}", **more) for at in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("hosts", "replicas"), [(2, 2), (3, 2), (3, 3), (5, 3)])
def test_replicas_are_on_hosts_of_their_own_and_all_have_as_much(hosts: int, replicas: int) -> None:
    placed = spread_replicas(range(2 * hosts), nodes(hosts), replicas)
    assert all(len(set(disks)) == replicas for disks in placed.values())
    has = [
        sum(disk in disks for disks in placed.values())
        for disk in map("disk {}".format, range(hosts))
    ]
    leads = [
        sum(disks[0] == disk for disks in placed.values())
        for disk in map("disk {}".format, range(hosts))
    ]
    assert leads == [2] * hosts
    assert max(has) - min(has) <= 1


def test_more_replicas_than_hosts_are_refused_with_what_to_do() -> None:
    there = [*nodes(2), NodeSeen("again", "10.0.0.1", "disk 9"), NodeSeen("none", "10.0.0.7")]
    there.append(NodeSeen("leaves", "10.0.0.8", "disk 8", draining=True))
    with pytest.raises(UsageError, match=r"there are 2 \(10.0.0.0, 10.0.0.1\).*set replicas to 2"):
        spread_replicas(range(4), there, 3)
    with pytest.raises(UsageError, match="one copy at least"):
        spread_replicas(range(4), there, 0)


def test_a_node_without_cpus_gets_replicas_only_where_no_other_is_left() -> None:
    there = [*nodes(2), NodeSeen("head", "10.0.0.9", "disk 9", cpus=0.0)]
    assert all("disk 9" not in disks for disks in spread_replicas(range(4), there, 2).values())
    assert all(disks[2] == "disk 9" for disks in spread_replicas(range(4), there, 3).values())


def test_two_disks_of_one_host_keep_no_two_replicas_of_a_slot() -> None:
    there = [*nodes(2), NodeSeen("again", "10.0.0.1", "disk 9")]
    host = {node.disk: node.host for node in there}
    zoned = [replace(node, labels={"zone": zone}) for node, zone in zip(there, "aab", strict=True)]
    for label, found in (("", there), ("zone", zoned)):
        for disks in spread_replicas(range(6), found, 2, label).values():
            assert len({host[disk] for disk in disks}) == 2


def test_a_disk_has_a_process_for_each_slot() -> None:
    both = Placements(slots={0: BOTH, 1: BOTH})
    table = SlotPlacements(both, RULES, 0)
    for slot in (0, 1):
        for disk in ("a", "b"):
            table.heard(slot, disk, LATE_MS, ReplicaSeen(1, BOOT), 0)
    table.died(1, "a", 1, LATE_MS)
    late(table, slot=1)
    [effect] = effects(table)
    assert isinstance(effect, KeepPlacements)
    assert effect.placements.slots[0] == BOTH, "the one of slot 0 lives"
    assert effect.placements.slots[1].leader == "b"
    assert table.absent(0, LATE_MS) == {"c"} and table.absent(1, LATE_MS) == {"a", "c"}


def test_who_began_a_moment_ago_elects_once_every_replica_has_answered() -> None:
    table = SlotPlacements(Placements(slots={0: BOTH}), RULES, 0)
    for disk in ("b", "c"):
        table.heard(0, disk, 10, ReplicaSeen(1, BOOT), 20)
    assert effects(table) == [], "the one that led may be about to answer"
    table.heard(0, "a", 11, ReplicaSeen(2, BOOT), 21)
    late(table, 21)
    assert kept(table).leader == "b"
    assert table.absent(0, 21) == frozenset()


def test_a_disk_that_is_lost_is_replaced_on_a_host_that_has_no_replica_of_the_slot() -> None:
    placed = {0: ("a", "b"), 1: ("b", "c"), 2: ("c", "a")}
    nodes = [node("1", "a"), node("2", "b"), node("3", "c"), node("4", "d"), node("3", "e")]
    assert another_disk(0, placed, ["a"], nodes) == "e", "it has none, as has d"
    assert another_disk(0, placed, ["a"], [one for one in nodes if one.disk != "e"]) == "d"
    assert another_disk(2, placed, ["a"], [one for one in nodes if one.disk in "bce"]) == "b"
    assert another_disk(2, placed, ["a"], [node("3", "e"), node("3", "c")]) is None
    drained = [NodeSeen("n4", "4", "d", draining=True), NodeSeen("n5", "5", "")]
    assert another_disk(0, placed, ["a"], drained) is None


def node(host: str, disk: str) -> NodeSeen:
    return NodeSeen(f"n{disk}", host, disk)
