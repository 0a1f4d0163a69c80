"""Where buffers are: what spreads them, and what is told of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.status.places import SpreadStep, by_host, steps_to_spread
from pxrs_ray.topology.homes import Home, Homes, moved_to
from pxrs_ray.topology.node_seen import NodeSeen
from tests.cli.pictures import buffer_place


def node(number: int, **options: object) -> NodeSeen:
    seen = NodeSeen(f"n{number}", f"10.0.0.{number}", f"d{number}")
    return replace(seen, **options)  # type: ignore[arg-type]


def homes(*numbers: int) -> Homes:
    """Slot i is at home on the node of the i-th number."""
    found = Homes()
    for slot, n in enumerate(numbers):
        found = found.with_slot(slot, Home(f"d{n}", f"n{n}", f"10.0.0.{n}"))
    return found


def test_two_on_one_node_while_another_has_none_are_told_with_the_move() -> None:
    found = steps_to_spread(homes(1, 1), [node(1), node(2)])
    assert found == (SpreadStep(1, "10.0.0.1", "10.0.0.2", "n2"),)


@pytest.mark.parametrize("numbers", [(1, 2, 3), (1, 2), (1, 1, 2), (1,), (1, 2, 1, 2, 3)])
def test_what_is_as_even_as_can_be_is_left_alone(numbers: tuple[int, ...]) -> None:
    assert steps_to_spread(homes(*numbers), [node(1), node(2), node(3)][: max(numbers)]) == ()


def test_a_node_that_can_have_none_is_not_named() -> None:
    others = [node(2, cpus=0.0), node(3, draining=True), node(4, disk="")]
    assert steps_to_spread(homes(1, 1, 1), [node(1), *others]) == ()
    # One that nobody has looked at may well have a disk: the move finds out.
    (step, *_) = steps_to_spread(homes(1, 1), [node(1), node(4, disk="", unknown=True)])
    assert step.target == "10.0.0.4"


def test_who_waits_for_its_host_or_moves_is_left_out() -> None:
    away = homes(1, 1, 2).with_slot(1, Home("d1", "n1", "10.0.0.1", away_since_ms=5))
    assert steps_to_spread(away, [node(1), node(2)]) == ()
    assert steps_to_spread(homes(1, 1), [node(1), node(2)], but=(0, 1)) == ()
    assert steps_to_spread(homes(1, 1), [node(1), node(2)], but=(1,))[0].buffer == 0


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 5))
def test_carried_out_the_moves_spread_them_and_are_no_more_than_needed(
    numbers: list[int], count: int
) -> None:
    nodes = [node(n) for n in range(1, max(count, *numbers) + 1)]
    before = homes(*numbers)
    steps, after = steps_to_spread(before, nodes), before
    by_id = {n.node: n for n in nodes}
    for step in steps:
        after = moved_to(after, step.buffer, by_id[step.target_node])
    loads = Counter({n.node: 0 for n in nodes})
    loads.update(home.node for home in after.slots.values())
    assert max(loads.values()) - min(loads.values()) <= 1
    assert len({step.buffer for step in steps}) == len(steps)
    share = -(-len(numbers) // len(nodes))
    too_many = sum(max(0, n - share) for n in Counter(numbers).values())
    assert len(steps) <= max(too_many, len(nodes) - 1) + too_many
    assert steps_to_spread(after, nodes) == ()


def test_hosts_are_told_with_what_they_have_and_not_with_what_they_miss() -> None:
    places = (buffer_place(0), buffer_place(1, host="10.0.0.1"), buffer_place(2, state="waits"))
    assert by_host(places) == {"10.0.0.1": [0, 1]}
