"""A registry that knows less than the disks of its slots, and one that was lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pxrs_ray.data.protocol import BufferInfo
from pxrs_ray.log.identity import Identity, Terms
from pxrs_ray.topology.away_time import AwayTime
from pxrs_ray.topology.home_rounds import (
    CALM_BEATS,
    HomeRounds,
    KeepHomes,
    LivingNodes,
    LookAtDisks,
)
from pxrs_ray.topology.homes import HOMES as CODEC
from pxrs_ray.topology.homes import Home, Homes, SlotSeen, homes_from, leaving, settle
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.older_registry import above_terms, later_homes
from pxrs_ray.topology.slot_table import SlotTable


def told(terms: Terms) -> Any:
    """What a disk tells of slot 1, of this topology and of all."""
    return {"terms": {1: terms}, "own_terms": {1: terms}}


HOME = Home("d1", "n1", "h1", term=4, since=3)
OURS = Identity("t", 4, "me", term=4, disk="d1")
HOMES = Homes(slots={1: HOME})
FIRST = NodeSeen("n1", "h1", "d1", slots={1: (4, 7)}, **told(Terms(4, 4)))
OTHER = NodeSeen("n2", "h2", "d2")


@pytest.mark.parametrize(
    ("copy", "terms"),
    [
        ({1: (5, 7)}, Terms(5, 5)),  # at home there since
        ({1: (4, 7)}, Terms(0, 6)),  # on its way to yet another home
        ({}, Terms(0, 6)),  # and gone: a note is left
        ({1: (3, 9)}, Terms(3, 3)),  # at home there since, by a term that is skipped here
    ],
)
def test_a_later_home_that_a_disk_tells_of_is_noticed(
    copy: dict[int, tuple[int, int]], terms: Terms
) -> None:
    found = later_homes(HOMES, [FIRST, replace(OTHER, slots=copy, **told(terms))])
    assert (found[1].node, found[1].host, found[1].disk) == ("n2", "h2", "d2" if copy else "")


@pytest.mark.parametrize(
    "terms",
    [
        Terms(2, 2),  # at home there before
        Terms(2, 4),  # and left for a home that is known
        Terms(0, 4),  # a copy of a move that was given up
    ],
)
def test_what_is_left_of_earlier_homes_is_no_evidence(terms: Terms) -> None:
    assert later_homes(HOMES, [FIRST, replace(OTHER, slots={1: (2, 2)}, **told(terms))]) == {}


def test_logs_that_were_removed_from_their_home_have_left_it() -> None:
    """They are, once the registry has their next home; it has settled since, above that term."""
    home = replace(HOME, term=9)
    removed = replace(FIRST, slots={}, **told(Terms(4, 5, left=5)))
    assert later_homes(Homes(slots={1: home}), [removed])[1].disk == ""
    before = replace(FIRST, **told(Terms(4, 4, left=2)))
    assert later_homes(Homes(slots={1: home}), [before]) == {}, "they came back since"


def test_logs_of_a_former_topology_of_this_name_are_no_evidence() -> None:
    """It was deleted while their host was away."""
    foreign = replace(OTHER, slots={1: (9, 9)}, terms={1: Terms(9, 9)})
    accepted = above_terms(HOMES, [FIRST, foreign]).slots[1]
    assert (accepted.disk, accepted.term) == ("d1", 10)


def test_a_move_notes_its_term_before_the_registry_and_nobody_serves_by_it() -> None:
    moving = leaving(HOMES, 1)
    copy = replace(OTHER, slots={1: (4, 7)}, **told(Terms(0, 5)))
    assert later_homes(moving, [replace(FIRST, **told(Terms(4, 5))), copy]) == {}
    served = replace(OTHER, slots={1: (5, 7)}, **told(Terms(5, 5)))
    assert later_homes(moving, [FIRST, served])[1].disk == "d2"


def test_who_goes_on_with_it_has_the_last_home_that_is_told_of() -> None:
    served = replace(OTHER, slots={1: (5, 7)}, **told(Terms(5, 5)))
    home = above_terms(HOMES, [FIRST, served]).slots[1]
    assert (home.disk, home.node, home.host) == ("d2", "n2", "h2")
    assert home.term == home.since == 6


def test_what_was_noticed_is_known_when_that_host_is_away_again() -> None:
    served = replace(OTHER, slots={1: (5, 7)}, **told(Terms(5, 5)))
    behind = HOMES.with_behind(later_homes(HOMES, [FIRST, served]))
    kept = homes_from(CODEC.encode_text(behind))
    accepted = above_terms(kept, [FIRST])
    assert accepted.slots[1].disk == "d2", "it is waited for"
    assert accepted.behind == {}
    assert "waits for host h2" in settle(accepted, {1: SlotSeen()}, [FIRST], 0).waits[1]


def test_a_slot_that_returns_to_a_disk_begins_a_stay_there() -> None:
    away = {1: SlotSeen(lease_over=True)}
    given_up = HOMES.with_given_up(1)
    there = settle(given_up, away, [OTHER], 0).homes.slots[1]
    assert (there.disk, there.term, there.since) == ("d2", 5, 5)
    again = settle(Homes(slots={1: there}).with_given_up(1), away, [FIRST], 0).homes.slots[1]
    assert (again.disk, again.term, again.since) == ("d1", 6, 6)
    stays = leaving(Homes(slots={1: again}), 1)
    assert settle(stays, {1: SlotSeen()}, [FIRST], 0).homes.slots[1].since == 6


def test_a_lost_registry_waits_for_the_newest_logs() -> None:
    """A copy that has left for another home is served only when its target is here too, unserved,
    or when somebody says that it is enough."""
    lost = Homes(slots={1: Home("", "", "", away_since_ms=0)})
    left = replace(FIRST, **told(Terms(4, 5)))
    seen = {1: SlotSeen(lease_over=True)}
    waits = settle(lost, seen, [left, OTHER], 1_000)
    assert "registry that knew it was lost" in waits.waits[1]
    unserved = replace(OTHER, slots={1: (4, 7)}, **told(Terms(0, 5)))
    assert settle(lost, seen, [left, unserved], 1_000).homes.slots[1].term == 6
    served = replace(OTHER, slots={1: (5, 7)}, **told(Terms(5, 5)))
    assert settle(lost, seen, [left, served], 1_000).homes.slots[1].disk == "d2"
    given_up = lost.with_given_up(1)
    assert settle(given_up, seen, [left, OTHER], 1_000).homes.slots[1].disk == "d1"
    assert settle(lost, seen, [left, OTHER], 1_000, {1}).homes.slots[1].disk == "d1"


def test_notes_of_logs_that_left_tell_that_a_lost_registry_had_some() -> None:
    noted = replace(OTHER, **told(Terms(0, 2)))
    assert "registry that knew it was lost" in settle(Homes(), {1: SlotSeen()}, [noted], 0).waits[1]
    assert settle(Homes(), {1: SlotSeen()}, [OTHER], 0).starts == (1,)
    lost = settle(Homes(), {1: SlotSeen()}, [OTHER], 0, lost=True)
    assert "registry that knew it was lost" in lost.waits[1], "no host that has logs may be here"


def carried(rounds: HomeRounds, nodes: list[NodeSeen], looks: list[LookAtDisks]) -> None:
    """One round, in which these nodes live."""
    steps, answer = rounds.round(), None
    with suppress(StopIteration):
        while True:
            step = steps.send(answer)
            answer = None
            match step:
                case LivingNodes():
                    answer = nodes
                case LookAtDisks():
                    looks.append(step)
                    answer = nodes
                case KeepHomes(change):
                    rounds.kept(change(rounds.homes))


def test_fewer_rounds_are_due_while_all_is_where_it_belongs() -> None:
    table = SlotTable(2, 1_000, 0)
    for slot in range(2):
        table.begins_at(slot, HOME)
        table.placed(slot, HOME, "buffer")
        table.heard(slot, BufferInfo("t", slot, "life", 1, "n1", ()), 0)
    kept = replace(HOMES, slots={0: HOME, 1: HOME})
    serves = SlotSeen(answers=True, runs=True)
    rounds = HomeRounds(kept, table, lambda _: serves, lambda: 0, AwayTime(lambda: 0, lambda: None))
    assert [rounds.is_due() for _ in range(2)] == [True] * 2, "nothing is known yet"
    calm = [False] * (CALM_BEATS - 1) + [True]

    def due() -> list[bool]:
        return [rounds.is_due() for _ in range(2 * CALM_BEATS)]

    carried(rounds, [FIRST], [])
    assert due() == calm * 2
    table.look_failed(1, "it does not answer", is_gone=False)
    assert all(due()), "a buffer is missed"
    table.is_back(1)
    assert due() == calm * 2
    table.look_failed(1, "it is gone", is_gone=True)
    table.is_back(1)
    assert all(due()), "nobody serves its slot"
    table.placed(1, HOME, "another")
    rounds.hold(1)
    assert all(due()), "it moves"
    rounds.release(1)
    carried(rounds, [FIRST, replace(OTHER, draining=True)], [])
    assert all(due()), "a host is about to go"
    carried(rounds, [FIRST], [])
    assert due() == calm * 2
    rounds.troubles[0] = "it cannot be started"
    assert all(due())


def test_a_host_that_comes_later_tells_too_and_its_word_stands() -> None:
    """Nobody waits for the look at a host that is new; what it brings is compared."""
    table = SlotTable(2, 1_000, 0)
    table.begins_at(1, HOME)
    table.placed(1, HOME, "buffer")
    table.heard(1, BufferInfo("t", 1, "life", 1, "n1", ()), 0)
    table.belongs(1, OURS, OURS, adopt=False)
    kept = replace(HOMES, slots={0: HOME, 1: HOME})
    serves = SlotSeen(answers=True, runs=True)
    rounds = HomeRounds(kept, table, lambda _: serves, lambda: 0, AwayTime(lambda: 0, lambda: None))
    looks: list[LookAtDisks] = []
    carried(rounds, [FIRST], looks)
    carried(rounds, [FIRST, replace(OTHER, unknown=True)], looks)
    assert [look.wait for look in looks] == [True, False]
    assert table.is_claimed(1)
    later = replace(OTHER, slots={1: (5, 7)}, **told(Terms(5, 5)))
    waiting = rounds.round()
    assert isinstance(next(waiting), LivingNodes)
    assert isinstance(waiting.send([FIRST, later]), KeepHomes)
    assert table.is_foreign(1), "it is served by nobody, however long the registry is away"
    waiting.close()
    carried(rounds, [FIRST, later], looks)
    for nodes in ([FIRST, later], [FIRST]):
        carried(rounds, nodes, looks)
        assert rounds.homes.behind[1].host == "h2"
        assert table.is_foreign(1)
        assert not table.is_claimed(1)
        assert not table.belongs(1, OURS, OURS, adopt=False), "whoever asks once more"
    assert not table.is_foreign(0)
