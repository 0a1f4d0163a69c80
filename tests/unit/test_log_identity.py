"""What a slot's folder notes of its owner, and how an older registry is noticed by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pxrs_ray.data.protocol import BufferInfo
from pxrs_ray.errors import UsageError
from pxrs_ray.files import Files
from pxrs_ray.log.identity import Identity, Terms, belong, note_left, read_left, step_back
from pxrs_ray.log.log_copy import remove_slot, slot_files
from pxrs_ray.topology.away_time import AwayTime
from pxrs_ray.topology.home_rounds import HomeRounds
from pxrs_ray.topology.homes import Home, Homes, SlotSeen, leaving, settle
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.older_registry import above_terms
from pxrs_ray.topology.openings import out_of_sight, with_ids
from pxrs_ray.topology.slot_table import SlotTable

FILES = Files()
OURS = Identity("t", 4, "me", term=2, moves=1, disk="d1")
HOME = Home("d1", "n1", "h1", term=2, boot="b1", moves=1)
SERVES = SlotSeen(answers=True, runs=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".buffers" / "1"


def claimed(folder: Path) -> Path:
    assert belong(FILES, folder, OURS, adopt=False) == OURS
    return folder


def test_a_claim_that_goes_on_is_noted(folder: Path) -> None:
    later = replace(OURS, generation=5, leader="you", term=3)
    assert belong(FILES, claimed(folder), later, adopt=False) == OURS
    assert belong(FILES, folder, later, adopt=False) == later


@pytest.mark.parametrize(
    "older",
    [
        replace(OURS, generation=3),
        replace(OURS, leader="another of this number"),
        replace(OURS, generation=5, term=1),
        replace(OURS, generation=5, term=9, moves=0),
        replace(OURS, topology_id="another"),
    ],
)
def test_who_knows_less_changes_nothing_unless_it_is_accepted(
    folder: Path, older: Identity
) -> None:
    claimed(folder)
    assert belong(FILES, folder, older, adopt=False) == OURS
    assert belong(FILES, folder, OURS, adopt=False) == OURS, "nothing was written"
    assert belong(FILES, folder, older, adopt=True) == OURS
    assert belong(FILES, folder, older, adopt=False) == older


def test_logs_that_left_are_served_by_nobody_who_does_not_know_of_it(folder: Path) -> None:
    """A registry that is restored looks for them where they were."""
    step_back(FILES, claimed(folder), 4, left_for=3, moves=2)
    before = replace(OURS, generation=6, leader="you", term=5)
    assert before.is_behind(belong(FILES, folder, before, adopt=False))
    stayed = replace(before, moves=2)
    assert not stayed.is_behind(belong(FILES, folder, stayed, adopt=False))
    assert belong(FILES, folder, stayed, adopt=False) == stayed


def test_what_was_removed_is_still_known_to_have_left(folder: Path, tmp_path: Path) -> None:
    step_back(FILES, claimed(folder), 4, left_for=3, moves=2)
    remove_slot(FILES, tmp_path, 1, 2, slot_files(FILES, tmp_path, 1, 2))
    assert not folder.exists()
    left = read_left(FILES, folder)
    assert left is not None
    assert left.terms_on("d1") == (2, 3, 0)
    assert left.terms_on("d2") == (0, 3, 0)
    older = replace(OURS, generation=6, term=7)
    assert older.is_behind(belong(FILES, folder, older, adopt=False))
    again = replace(older, moves=3)
    assert belong(FILES, folder, again, adopt=False) == again, "it came back by another move"


def test_a_topology_that_is_made_anew_finds_nothing_of_the_former_one(folder: Path) -> None:
    step_back(FILES, claimed(folder), 4, left_for=3, moves=2)
    note_left(FILES, folder)
    FILES.remove_folder(folder)
    new = Identity("another", 1, "you", term=1)
    assert belong(FILES, folder, new, adopt=False) == new


def test_a_move_that_was_cut_off_goes_on_above_the_term_of_its_target() -> None:
    homes = leaving(Homes(slots={1: HOME}), 1)
    assert homes.slots[1] == replace(HOME, moves=2, leaving=True)
    found = settle(homes, {1: SERVES}, [NodeSeen("n1", "h1", "d1", "b1")], 0)
    assert found.homes.slots[1] == replace(HOME, term=4, moves=2)
    assert found.starts == (1,)


def test_an_accepted_registry_gives_no_term_a_second_time() -> None:
    seen = [
        NodeSeen("n1", "h1", "d1", terms={1: Terms(2, 2)}),
        NodeSeen("n2", "h2", "d2", terms={1: Terms(0, 7), 3: Terms(9, 9)}),
    ]
    homes = above_terms(Homes(slots={1: HOME, 2: HOME}), seen)
    assert {slot: home.term for slot, home in homes.slots.items()} == {1: 8, 2: 2}
    nothing = settle(Homes(), {1: SlotSeen()}, seen, 0).homes.with_given_up(1)
    assert settle(nothing, {1: SlotSeen(lease_over=True)}, seen, 0).homes.slots[1].term == 8


@pytest.mark.parametrize(
    ("generation", "term", "ours"), [(4, 2, True), (4, 3, False), (5, 1, False)]
)
def test_a_process_that_goes_by_a_later_grant_speaks_against_who_claims_it(
    generation: int, term: int, ours: bool
) -> None:
    table = SlotTable(3, 1_000, 0)
    table.begins_at(1, HOME)
    table.placed(1, HOME, "buffer")
    info = BufferInfo("t", 1, "life", 1, "n1", (), generation=generation, term=term)
    table.heard(1, info, 0)
    assert table.belongs(1, OURS, OURS, adopt=False) is ours
    assert table.newest_heard() == generation


def test_logs_that_are_nowhere_are_waited_for_when_the_registry_was_lost() -> None:
    """They are not new: another slot's logs tell that the topology had some."""
    first, other = (NodeSeen(f"n{n}", f"h{n}", f"d{n}", f"b{n}") for n in (1, 2))
    first = replace(first, slots={0: (1, 4)}, terms={0: Terms(1, 1)})
    found = settle(Homes(), {0: SlotSeen(), 1: SlotSeen()}, [first], 5_000)
    assert found.starts == (0,)
    assert "registry that knew it was lost" in found.waits[1]
    again = settle(found.homes, {1: SlotSeen(lease_over=True)}, [first, NodeSeen("n3", "h3")], 0)
    assert again.homes.slots[1] == found.homes.slots[1], "no disk is its disk"
    back = replace(other, slots={1: (6, 3)}, terms={1: Terms(6, 6)})
    home = settle(found.homes, {1: SlotSeen()}, [first, back], 6_000).homes.slots[1]
    assert (home.disk, home.term, home.away_since_ms) == ("d2", 7, None)
    given_up = found.homes.with_given_up(1)
    over = SlotSeen(lease_over=True)
    assert settle(given_up, {1: over}, [first], 7_000).homes.slots[1].disk == "d1"
    assert settle(Homes(), {1: SlotSeen(in_memory=True)}, [first], 0).starts == (1,)


def test_a_queue_that_nobody_knows_is_made_nowhere_where_its_logs_may_be() -> None:
    homes = Homes(slots={0: HOME, 1: Home("", "", "", away_since_ms=0)})
    away = out_of_sight(homes, {"d1"})
    assert with_ids(homes, {"q": "new"}, {}, 2, away).queues["q"].made == (1,)
    assert with_ids(homes, {"q": "new"}, {}, 2, out_of_sight(homes, {})).queues["q"].made == (0, 1)
    assert with_ids(homes, {"q": "new"}, {}, 2).queues["q"].made == (1,), "it may come from there"
    assert with_ids(homes, {"q": "known"}, {"q": "known"}, 2).queues["q"].made == (0, 1)


def test_logs_that_know_more_than_the_registry_are_not_moved() -> None:
    """A move would give them a home that it knows of, and what it has lost would be forgotten."""
    table = SlotTable(3, 1_000, 0)
    table.begins_at(1, HOME)
    table.placed(1, HOME, "buffer")
    table.heard(1, BufferInfo("t", 1, "life", 1, "n1", ()), 0)
    rounds = HomeRounds(
        Homes(), table, lambda _: SERVES, lambda: 0, AwayTime(lambda: 0, lambda: None)
    )
    table.belongs(1, replace(OURS, term=3), OURS, adopt=False)
    with pytest.raises(UsageError, match="newer state of it"):
        rounds.hold(1)
    table.belongs(1, replace(OURS, term=3), OURS, adopt=True)
    rounds.hold(1)
