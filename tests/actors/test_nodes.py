"""A node that goes takes nothing with it."""

from __future__ import annotations

import pytest

from tests.actors.programs import told_by

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_lost_node_loses_nothing_and_a_drained_one_hands_over() -> None:
    told = told_by("two_nodes")
    assert told["processed"] == told["sent"]
    # A consumer's lease is two seconds here; the logs that were there open elsewhere meanwhile.
    assert told["node_loss_takeover_s"] < 15
    assert told["repeated_in_drain"] == 0
    assert told["drain_causes"] and all("released by" in cause for cause in told["drain_causes"])


def test_buffers_bring_back_a_coordinator_whose_node_is_gone() -> None:
    told = told_by("two_homes")
    assert told["coordinator_on_second"] and told["buffers_on"] == 2
    assert told["buffers_back"]
    assert told["kept"] == told["kept_again"] == 800
    assert told["gaps"] == 0 and told["problems"] == []


def test_a_node_is_drained_by_command_and_nothing_is_on_it_afterwards() -> None:
    told = told_by("drained_node")
    assert told["buffers_there"] and told["plan"] == [0, told["buffers_there"], []]
    assert told["consumers_hand_over"] > 0
    for refused, words in (
        ("head", "is the head of this Ray cluster"),
        ("unknown", "no node has that name or address either"),
        ("both", "go with a GROUP"),
    ):
        status, _, err = told[refused]
        assert status == 1 and words in err and len(err.splitlines()) == 1, told[refused]
    status, out, err = told["drained"]
    assert status == 0 and "has no consumer and no log any more" in out and err == ""
    assert told["left"] == [] and told["consumers_left"] == []
    assert told["processed"] == told["sent"]
