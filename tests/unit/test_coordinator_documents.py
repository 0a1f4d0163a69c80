"""The scenarios of the five documents, by name, on the real coordinator."""

from __future__ import annotations

import pytest

from pxrs_ray.group.events import Commit, Died, Leave, PartitionProgress
from pxrs_ray.model import Outcome, Progress
from tests.settings import group_settings
from tests.unit.driven_group import DrivenGroup

RANGE = group_settings(assignor="range")


def test_join_flow_hands_over_at_12_8_5_3() -> None:
    """S0.11: A has all eight; B joins; A flushes P4..P7; B resumes at their checkpoints."""
    group = DrivenGroup(8)
    group.join("A")
    assert group.held("A") == dict.fromkeys(range(8), 0)
    group.commit("A", {0: 1})
    assert group.row(0).checkpoint == 1

    group.join("B")
    assert group.sessions["A"].holdings.keys() == set(range(8)), "A works on until it is done"
    assert group.held("B") == {}
    group.hand_back("A", checkpoints={4: 12, 5: 8, 6: 5, 7: 3})

    assert group.owners() == {"A": [0, 1, 2, 3], "B": [4, 5, 6, 7]}
    assert group.held("B") == {4: 12, 5: 8, 6: 5, 7: 3}
    assert group.checkpoints(range(4)) == [1, 0, 0, 0]


def test_crash_keeps_what_live_owners_have_and_shares_the_rest_fairly() -> None:
    """S0.18 as DESIGN 9.5 settles it: 4 and 4, A and C lose nothing, nothing is reprocessed."""
    group = DrivenGroup(8)
    group.join("A", "B", "C")
    assert group.owners() == {"A": [0, 1, 2], "B": [3, 4, 5], "C": [6, 7]}
    group.commit("A", {2: 210})
    group.commit("B", {3: 180, 4: 95, 5: 140})

    group.do(Died("B", 1, "crash"))

    owners = group.owners()
    assert set(owners) == {"A", "C"} and group.counts() == [4, 4]
    assert {0, 1, 2} <= set(owners["A"]) and {6, 7} <= set(owners["C"])
    resumed = {**group.held("A"), **group.held("C")}
    assert {p: resumed[p] for p in (2, 3, 4, 5)} == {2: 0, 3: 180, 4: 95, 5: 140}
    assert group.row(2).checkpoint == 210, "A goes on from where it is; nobody asked it to stop"
    assert group.row(2).epoch == 1


def test_three_consumers_on_eight_partitions_and_one_leaves() -> None:
    """S1.15: contiguous in sorted order; after A leaves, B has 0 to 3 and C 4 to 7."""
    group = DrivenGroup(8, RANGE)
    group.join("C", "A", "B")
    assert group.owners() == {"A": [0, 1, 2], "B": [3, 4, 5], "C": [6, 7]}
    group.do(Leave("A", 1))
    group.hand_back()
    assert group.owners() == {"B": [0, 1, 2, 3], "C": [4, 5, 6, 7]}


def test_fencing_example_epochs_5_6_7_and_checkpoint_10_kept() -> None:
    """S1.18: A at epoch 5 commits 10; released (6); claimed by B (7); A's late write is refused."""
    group = DrivenGroup(1)
    group.join("A", incarnation=1)
    for incarnation in (2, 3):
        group.join("A", incarnation=incarnation)
    assert group.row(0).epoch == 5
    assert group.commit("A", {0: 10}) == (Outcome.APPLIED,)

    group.do(Leave("A", 3))
    group.hand_back("A")
    assert (group.row(0).epoch, group.row(0).owner) == (6, None)
    group.join("B")
    assert (group.row(0).epoch, group.row(0).owner) == (7, "B")
    assert group.held("B") == {0: 10}

    group.join("A", incarnation=4)
    late = Commit("A", 4, (PartitionProgress(0, 5, Progress(11)),))
    reply = group.do(late).reply
    assert reply is not None and reply.outcomes == (Outcome.FENCED,)
    assert group.row(0).checkpoint == 10
    assert group.commit("B", {0: 11}) == (Outcome.APPLIED,)
    assert group.row(0).checkpoint == 11


# --- S1.27: the twelve tests of the partition manager ---------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "members", "counts"),
    [
        pytest.param(8, 1, [8], id="single-consumer"),
        pytest.param(8, 2, [4, 4], id="even-split"),
        pytest.param(8, 3, [3, 3, 2], id="uneven-split"),
        pytest.param(8, 4, [2, 2, 2, 2], id="four"),
        pytest.param(8, 5, [2, 2, 2, 1, 1], id="five"),
        pytest.param(4, 1, [4], id="S3-one-on-four"),
        pytest.param(4, 2, [2, 2], id="S3-two-on-four"),
        pytest.param(4, 4, [1, 1, 1, 1], id="S3-four-on-four"),
        pytest.param(4, 5, [1, 1, 1, 1], id="S3-fifth-idle"),
        pytest.param(3, 9, [1, 1, 1], id="more-consumers-than-partitions"),
    ],
)
def test_fair_share(partitions: int, members: int, counts: list[int]) -> None:
    group = DrivenGroup(partitions)
    group.join(*(f"m{number}" for number in range(members)))
    assert group.counts() == counts
    assert sum(counts) == partitions, "every partition is covered, none twice"


def test_rebalance_initial() -> None:
    group = DrivenGroup(8)
    group.join("A", "B")
    assert group.owners() == {"A": [0, 1, 2, 3], "B": [4, 5, 6, 7]}
    assert {row.epoch for row in group.core.state.rows} == {1}


def test_rebalance_after_a_consumer_leaves() -> None:
    group = DrivenGroup(8)
    group.join("A", "B")
    group.do(Leave("B", 1))
    assert group.counts() == [4, 4], "it keeps what it has until it has handed it back"
    group.hand_back("B")
    assert group.owners() == {"A": list(range(8))}
    assert [d.clean for d in group.dismissed] == [True]
    assert list(group.core.state.members) == ["A"]


def test_rebalance_after_a_consumer_joins() -> None:
    group = DrivenGroup(8)
    group.join("A")
    group.join("B")
    assert group.owners() == {"A": list(range(8))}
    group.hand_back("A")
    assert group.counts() == [4, 4]
    assert [group.row(p).epoch for p in group.owners()["A"]] == [1] * 4, "these never paused"
    assert [group.row(p).epoch for p in group.owners()["B"]] == [3] * 4


def test_expired_consumers_are_reclaimed() -> None:
    group = DrivenGroup(8)
    group.join("A", "B")
    for _ in range(12):
        group.pass_time(1_000)
        group.commit("A", {0: group.row(0).checkpoint + 1})
    assert group.owners() == {"A": list(range(8))}
    assert [(d.member, d.clean) for d in group.dismissed] == [("B", False)]


def test_checkpoints_are_kept_over_different_owners() -> None:
    group = DrivenGroup(4)
    group.join("A")
    group.commit("A", {0: 5, 1: 6, 2: 7, 3: 8})
    group.do(Died("A", 1, "killed"))
    assert group.owners() == {}
    group.join("B")
    assert group.held("B") == {0: 5, 1: 6, 2: 7, 3: 8}
    group.commit("B", {0: 50})
    group.join("C")
    group.hand_back("B")
    group.do(Died("B", 1, "killed"))
    assert group.held("C") == {0: 50, 1: 6, 2: 7, 3: 8}


def test_two_to_four_consumers_without_anything_else() -> None:
    """S0.8: scaling is members that join; nothing is redeployed, migrated or configured."""
    group = DrivenGroup(8)
    group.join("A", "B")
    group.join("C", "D")
    group.hand_back()
    assert group.counts() == [2, 2, 2, 2]


def test_nothing_moves_while_membership_stays() -> None:
    """S0.13: a rebalance is caused by a change, never by a timer."""
    group = DrivenGroup(8)
    group.join("A", "B")
    before = list(group.core.state.rows)
    for _ in range(60):
        group.pass_time(1_000)
        group.commit("A", {})
        group.commit("B", {})
    assert group.core.state.rows == before
