"""Where replicas are to be, and the steps that bring them there."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import UsageError
from pxrs_ray.replication.placement import InSync, Placement, ReplicaSeen
from pxrs_ray.replication.retirement import Retirement, may_drop_damaged
from pxrs_ray.topology.away_disks import AwayDisks
from pxrs_ray.topology.move_plan import Kept, plan_replicas
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.replica_moves import (
    BeginOn,
    BeOn,
    LeadFrom,
    ReplicaMoves,
    ReplicaStep,
    Wanted,
    left_behind,
)


def node(disk: str, **more: object) -> NodeSeen:
    return NodeSeen(f"n{disk}", f"host {disk}", disk, **more)  # type: ignore[arg-type]


def placed(replicas: str, isr: str, leader: str = "a", version: int = 7) -> Placement:
    sync = tuple(InSync(disk, "boot") for disk in isr)
    return Placement(tuple(replicas), sync, leader, 1, 3, version)


def step(
    placement: Placement,
    nodes: str,
    living: str = "",
    *,
    replicas: int = 2,
    draining: str = "",
    overdue: str = "",
    moves: ReplicaMoves | None = None,
) -> ReplicaStep | None:
    seen = {disk: ReplicaSeen(1, "boot") for disk in living or placement.replicas}
    there = [node(disk, draining=disk in draining) for disk in nodes]
    wanted = Wanted(replicas, there, frozenset(overdue))
    return (moves or ReplicaMoves()).step(0, {0: placement}, seen, wanted)


def test_nothing_is_done_while_all_are_where_they_are_to_be_or_nobody_leads() -> None:
    assert step(placed("ab", "ab"), "abc") is None
    assert step(placed("ab", "ab"), "abc", "b", draining="a") is None, "the leader is not heard"
    later = {"a": ReplicaSeen(2, "boot"), "b": ReplicaSeen(1, "boot")}
    wanted = Wanted(2, [node("a", draining=True), node("b"), node("c")])
    assert ReplicaMoves().step(0, {0: placed("ab", "ab")}, later, wanted) is None, "another life"


def test_a_drained_leader_is_followed_by_another_before_anything_is_copied() -> None:
    assert step(placed("ab", "ab"), "abc", draining="a") == LeadFrom("b")
    assert step(placed("ab", "a"), "abc", draining="a") == BeginOn("c"), "b is not in sync"
    assert step(placed("ab", "ab"), "abc", "a", draining="a") == BeginOn("c"), "b does not live"


def test_a_drained_replica_stays_until_the_new_one_is_in_sync() -> None:
    led = placed("ab", "ab", leader="b")
    assert step(led, "abc", draining="a") == BeginOn("c")
    assert step(led, "abc", "abc", draining="a") == BeOn(7, ("a", "b", "c"))
    assert step(placed("abc", "ab", leader="b"), "abc", draining="a") is None
    assert step(placed("abc", "abc", leader="b"), "abc", draining="a") == BeOn(7, ("b", "c"))


def test_one_that_is_lost_is_waited_for_by_nobody() -> None:
    led = placed("ab", "b", leader="b")
    assert step(led, "bc", "b", overdue="a") == BeginOn("c")
    assert step(led, "bc", "bc", overdue="a") == BeOn(7, ("b", "c"))
    assert step(led, "abc", "ab", overdue="a") is None, "it answers: it is not lost"
    left = placed("abc", "bc", leader="b")
    assert step(left, "bc", "bc", overdue="a") == BeOn(7, ("b", "c"))


def test_the_emptiest_host_that_stays_and_has_none_takes_it() -> None:
    led = placed("ab", "ab", leader="b")
    assert step(led, "abcd", draining="ac") == BeginOn("d")
    assert step(led, "abcd", "abd", draining="a") == BeOn(7, ("a", "b", "d")), "one has begun"
    moves = ReplicaMoves()
    assert step(led, "ab", draining="a", moves=moves) is None
    assert "has 1 of 2 replicas on hosts that stay" in moves.stuck[0]
    assert step(led, "abc", draining="a", moves=moves) == BeginOn("c") and not moves.stuck


def test_a_disk_that_a_node_that_stays_has_too_is_left_by_nobody() -> None:
    both = [node("a", draining=True), NodeSeen("other", "host x", "a"), node("b"), node("c")]
    assert Wanted(2, both).drained() == frozenset()


def test_more_are_added_one_by_one_and_fewer_are_left() -> None:
    assert step(placed("a", "a"), "abc", replicas=3) == BeginOn("b")
    assert step(placed("a", "a"), "abc", "ab", replicas=3) == BeOn(7, ("a", "b"))
    assert step(placed("ab", "a"), "abc", "abc", replicas=3) == BeOn(7, ("a", "b", "c"))
    assert step(placed("abc", "abc"), "abc", replicas=2) == BeOn(7, ("a", "c"))
    assert step(placed("abc", "ab"), "abc", replicas=2) == BeOn(7, ("a", "b")), "c is behind"
    assert step(placed("abc", "a"), "abc", replicas=2) is None, "then one alone would have all"
    assert step(placed("abc", "a"), "abc", "ab", replicas=2) == BeOn(7, ("a", "b")), "c is away"
    assert step(placed("abc", "abc"), "abc", replicas=1) == BeOn(7, ("a", "c"))


def test_an_operator_moves_one_replica_of_a_slot_at_a_time() -> None:
    moves, led = ReplicaMoves(), placed("ab", "ab")
    for source, target, why in (
        ("x", node("c"), "no replica on disk x"),
        ("a", node("b"), "a replica on host host b already"),
        ("a", node("c", draining=True), "no disk that stays"),
    ):
        with pytest.raises(UsageError, match=why):
            moves.ask(0, led, source, target)
    moves.ask(0, led, "a", node("d"))
    with pytest.raises(UsageError, match="is being moved already"):
        moves.ask(0, led, "b", node("c"))
    assert step(led, "abcd", moves=moves) == LeadFrom("b")
    led = placed("ab", "ab", leader="b")
    assert step(led, "abcd", moves=moves) == BeginOn("d")
    assert step(led, "abcd", "abd", moves=moves) == BeOn(7, ("a", "b", "d"))
    assert step(placed("abd", "abd", leader="b"), "abcd", moves=moves) == BeOn(7, ("b", "d"))
    assert step(placed("bd", "bd", leader="b"), "abcd", moves=moves) is None
    assert not moves.asked
    moves.ask(0, led, "a", node("d"))
    assert step(led, "abc", moves=moves) is None and not moves.asked, "the host has gone"


def test_a_process_that_was_looked_at_since_it_was_dismissed_stays() -> None:
    process = Retirement()
    assert process.may_go(1, 0)
    process.looked_at(2, 500)
    process.looked_at(1, 900)
    assert not process.may_go(2, 500) and not process.may_go(1, 9_000)
    assert process.may_go(2, 501) and process.may_go(3, 0)


def test_a_disk_is_given_up_after_it_was_seen_away_for_so_long_by_steady_clocks() -> None:
    away = AwayDisks({})
    away.see({"a", "b"}, 1_000)
    away.see({"a"}, 9_000)
    away.see({"a", "b"}, 10_999)
    assert away.overdue(10_000) == frozenset(), "b came back between"
    away.see({"a", "b"}, 11_000)
    assert away.overdue(10_000) == {"a"}


def test_what_was_counted_is_noted_in_steps_and_counted_on_by_the_next() -> None:
    away = AwayDisks({"gone": 3_000})
    away.see({"a"}, 0)
    assert away.to_note(20_000) == {}, "it has come back, or is no replica any more"
    away.see({"a"}, 1_999)
    assert away.to_note(20_000) is None
    away.see({"a"}, 2_000)
    noted = away.to_note(20_000)
    assert noted == {"a": 2_000} and away.to_note(20_000) is None
    later = AwayDisks(noted)
    later.see({"a"}, 700_000)
    later.see({"a"}, 708_000)
    assert later.overdue(10_000) == {"a"}, "no coordinator's clock is another's"


def test_what_leaves_a_host_is_planned_and_nobody_waits_for_the_copy() -> None:
    kept = {0: Kept(200 * 10**6, 0.0), 1: Kept(10, 0.0)}
    roomy, full = node("c", free_bytes=1 << 40), node("d", free_bytes=1)
    found = plan_replicas("t", [(0, "a", roomy), (1, "a", full), (2, "a", None)], kept, 50e6, 2.0)
    assert [(m.buffer, m.target) for m in found.moves] == [(0, "host c"), (1, "host d"), (2, "")]
    assert found.moves[0].estimate is not None and found.moves[0].estimate.pause_ms < 1_000
    room, nowhere, late = found.cannot
    assert "free it, or add a node" in room and "buffer 2 has no other host" in nowhere
    assert "the deadline is 2 s" in late


def test_of_replicas_that_are_too_many_one_goes_whose_zone_has_another() -> None:
    zones = {"a": "east", "b": "west", "c": "west", "d": "north"}
    there = [node(disk, labels={"zone": zone}) for disk, zone in zones.items()]
    seen = {disk: ReplicaSeen(1, "boot") for disk in "abcd"}
    many = {0: placed("abcd", "abcd"), 1: placed("db", "db", "d"), 2: placed("da", "da", "d")}
    by_zone = Wanted(3, there, spread_by="zone")
    assert ReplicaMoves().step(0, many, seen, by_zone) == BeOn(7, ("a", "c", "d"))
    by_host = Wanted(3, there)
    assert ReplicaMoves().step(0, many, seen, by_host) == BeOn(7, ("a", "b", "c"))


def test_a_damaged_log_is_dropped_by_none_that_leads_is_in_sync_or_taken_for_whole() -> None:
    out, all_of_it = placed("ab", "a"), placed("ab", "ab")
    assert may_drop_damaged("b", out, {"b"})
    assert not may_drop_damaged("b", out, set()), "the coordinator takes it for whole"
    assert not may_drop_damaged("b", out, None) and not may_drop_damaged("b", None, {"b"})
    assert not may_drop_damaged("b", all_of_it, {"b"}), "it may be all that is left"
    assert not may_drop_damaged("a", placed("ab", "b"), {"a"}), "it leads"


def test_what_a_disk_has_that_was_replaced_is_left_behind_once_all_replicas_are_in_sync() -> None:
    there = [
        node("a"),
        node("b"),
        node("c", slots={0: (1, 1), 1: (1, 1)}),
        node("", slots={0: (1, 1)}),
    ]
    assert left_behind({0: placed("ab", "ab"), 1: placed("ac", "ac")}, there, 2) == [(0, "c")]
    assert left_behind({0: placed("ab", "a")}, there, 2) == [], "one is behind"
    assert left_behind({0: placed("ab", "ab")}, there, 3) == [], "one more is to come"
