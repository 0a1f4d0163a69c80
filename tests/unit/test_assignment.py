"""Assignors: the documents' examples, fairness, and the proof that sticky moves least."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.errors import UsageError
from pxrs_ray.group.assignors import ASSIGNORS, TargetAssignment, assign, shares
from pxrs_ray.model import Member
from tests.simulation.checkers.movement import minimum_movement

FAIR = ("sticky", "range", "round_robin", "tenant")


def members(ids: str) -> list[Member]:
    return [Member(one, 1) for one in ids]


def held(target: Mapping[int, str], ids: str) -> list[list[int]]:
    return [[p for p, owner in target.items() if owner == one] for one in ids]


def taken_away(before: Mapping[int, str], after: Mapping[int, str]) -> int:
    return sum(after.get(partition) != owner for partition, owner in before.items())


# The documents' examples


@pytest.mark.parametrize("assignor", FAIR)
@pytest.mark.parametrize(
    ("partitions", "consumers", "counts"),
    [
        (8, 1, [8]),
        (8, 2, [4, 4]),
        (8, 3, [3, 3, 2]),
        (8, 4, [2, 2, 2, 2]),
        (8, 5, [2, 2, 2, 1, 1]),
        (4, 1, [4]),
        (4, 2, [2, 2]),
        (4, 4, [1, 1, 1, 1]),
        (4, 5, [1, 1, 1, 1, 0]),
    ],
)
def test_counts_of_the_documents(
    assignor: str, partitions: int, consumers: int, counts: list[int]
) -> None:
    ids = "ABCDE"[:consumers]
    target = assign(assignor, members(ids), partitions, {})
    found = [len(some) for some in held(target, ids)]
    assert sorted(found, reverse=True) == counts
    if assignor != "tenant":  # a tenant starts elsewhere in the circle of members
        assert found == counts


@pytest.mark.parametrize("assignor", ["sticky", "range"])
def test_three_consumers_on_eight_are_contiguous(assignor: str) -> None:
    target = assign(assignor, members("CAB"), 8, {})
    assert held(target, "ABC") == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_when_a_leaves_range_gives_contiguous_halves() -> None:
    before = assign("range", members("ABC"), 8, {})
    assert held(assign("range", members("BC"), 8, before), "BC") == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_when_a_leaves_sticky_moves_only_what_a_held() -> None:
    before = assign("sticky", members("ABC"), 8, {})
    after = assign("sticky", members("BC"), 8, before)
    assert held(after, "BC") == [[0, 3, 4, 5], [1, 2, 6, 7]]
    assert [p for p in range(8) if before[p] != after[p]] == [0, 1, 2]


def test_when_b_crashes_the_others_share_four_and_four() -> None:
    before = assign("sticky", members("ABC"), 8, {})
    after = assign("sticky", members("AC"), 8, before)
    assert held(after, "AC") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert {before[p] for p in range(8) if before[p] != after[p]} == {"B"}


def test_a_second_consumer_takes_half_and_the_first_keeps_its_half() -> None:
    before = assign("sticky", members("A"), 8, {})
    assert held(assign("sticky", members("AB"), 8, before), "AB") == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_fifth_consumer_on_four_stays_a_warm_spare_and_disturbs_nobody() -> None:
    before = assign("sticky", members("BCDE"), 4, {})
    assert assign("sticky", members("ABCDE"), 4, before) == before


@pytest.mark.parametrize(("assignor", "moved"), [("range", 118), ("sticky", 28)])
def test_eight_to_nine_on_256(assignor: str, moved: int) -> None:
    before = assign(assignor, members("ABCDEFGH"), 256, {})
    after = assign(assignor, members("ABCDEFGHI"), 256, before)
    assert taken_away(before, after) == moved
    assert minimum_movement(members("ABCDEFGHI"), 256, before) == 28


def test_round_robin_is_the_members_in_turn() -> None:
    target = assign("round_robin", members("CAB"), 8, {})
    assert list(target.values()) == list("ABCABCAB")


def test_tenants_start_at_different_members_and_go_round() -> None:
    ids = "ABCDEFG"
    starts = set()
    for tenant in ("acme", "globex", "initech", "umbrella", "hooli", "stark"):
        owners = "".join(assign("tenant", members(ids), 14, {}, tenant=tenant).values())
        assert owners[:7] == owners[7:] and owners[:7] in ids + ids
        starts.add(owners[0])
    assert len(starts) > 1


def test_static_follows_the_map_and_leaves_out_who_is_not_there() -> None:
    static_map = {0: "A", 1: "A", 2: "gone", 3: "B"}
    target = assign("static", members("AB"), 4, {}, static_map=static_map)
    assert target == {0: "A", 1: "A", 3: "B"}


def test_no_members_no_assignment() -> None:
    for assignor in ASSIGNORS:
        assert assign(assignor, [], 4, {0: "A"}, static_map={0: "A"}) == {}
    assert minimum_movement([], 4, {0: "A"}) == 1


# Weights


@pytest.mark.parametrize("assignor", FAIR)
def test_shares_follow_the_weights(assignor: str) -> None:
    some = [Member("A", 1, 3.0), Member("B", 1, 1.0)]
    assert Counter(assign(assignor, some, 8, {}).values()) == {"A": 6, "B": 2}


def test_the_largest_remainder_gets_the_last_partition() -> None:
    # 10 partitions by 5 : 3 : 1 are 5.56, 3.33 and 1.11.
    some = [Member("A", 1, 5.0), Member("B", 1, 3.0), Member("C", 1, 1.0)]
    assert Counter(assign("sticky", some, 10, {}).values()) == {"A": 6, "B": 3, "C": 1}


@given(st.floats(1e-3, 1e6), st.integers(1, 12), st.integers(1, 64))
def test_equal_weights_are_the_fair_rule(weight: float, consumers: int, partitions: int) -> None:
    some = [Member(f"m{i:02}", 1, weight) for i in range(consumers)]
    target = assign("range", some, partitions, {})
    base, extra = divmod(partitions, consumers)
    counts = Counter(target.values())
    assert [counts[one.member] for one in some] == [base + (i < extra) for i in range(consumers)]


# Properties


@st.composite
def problems(
    draw: st.DrawFn, members_max: int, partitions_max: int, weighted: bool
) -> tuple[list[Member], int, TargetAssignment]:
    """Members, partitions, and holders that need be neither fair, nor complete, nor alive."""
    weight = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.7]) if weighted else st.just(1.0)
    some = [Member(f"m{i:02}", 1, draw(weight)) for i in range(draw(st.integers(1, members_max)))]
    partitions = draw(st.integers(1, partitions_max))
    holder = st.sampled_from([*(one.member for one in some), "dead", None])
    current = {p: owner for p in range(partitions) if (owner := draw(holder)) is not None}
    return some, partitions, current


def fair_counts(some: Sequence[Member], partitions: int) -> Iterator[dict[str, int]]:
    """Every way to settle the counts that the rule allows."""
    free = shares(some, partitions)
    for chosen in itertools.combinations(free.contenders, free.extra):
        yield {one: count + (one in chosen) for one, count in free.base.items()}


@settings(max_examples=150)
@given(problems(members_max=4, partitions_max=6, weighted=True))
def test_no_assignment_with_fair_counts_moves_fewer_than_sticky(
    problem: tuple[list[Member], int, TargetAssignment],
) -> None:
    some, partitions, current = problem
    allowed = list(fair_counts(some, partitions))
    ids = [one.member for one in some]
    best = min(
        sum(owners[p] != owner for p, owner in current.items())
        for owners in itertools.product(ids, repeat=partitions)
        if {one: owners.count(one) for one in ids} in allowed
    )
    target = assign("sticky", some, partitions, current)
    assert {one: list(target.values()).count(one) for one in ids} in allowed
    assert taken_away(current, target) == best == minimum_movement(some, partitions, current)


@given(problems(members_max=40, partitions_max=300, weighted=False))
def test_sticky_meets_the_counting_bound(
    problem: tuple[list[Member], int, TargetAssignment],
) -> None:
    some, partitions, current = problem
    base, extra = divmod(partitions, len(some))
    counts = Counter(current.values())
    live = [counts[one.member] for one in some]
    # Nobody can keep more than base, except `extra` of those that hold more: one more each.
    kept_max = sum(min(count, base) for count in live) + min(
        extra, sum(count > base for count in live)
    )
    target = assign("sticky", some, partitions, current)
    assert taken_away(current, target) == len(current) - kept_max


@given(problems(members_max=12, partitions_max=64, weighted=True), st.randoms(), st.text())
def test_every_assignor_is_complete_fair_and_blind_to_the_order_of_its_input(
    problem: tuple[list[Member], int, TargetAssignment], random: Random, tenant: str
) -> None:
    some, partitions, current = problem
    tenant = tenant.encode("utf-8", "replace").decode()
    shuffled = sorted(some, key=lambda _: random.random())
    turned = dict(reversed(current.items()))
    allowed = shares(some, partitions)
    for assignor in FAIR:
        target = assign(assignor, some, partitions, current, tenant=tenant)
        assert list(target) == list(range(partitions))
        assert target == assign(assignor, shuffled, partitions, turned, tenant=tenant)
        counts = Counter(target.values())
        more = [one for one, base in allowed.base.items() if counts[one] == base + 1]
        assert len(more) == allowed.extra and set(more) <= set(allowed.contenders)
        assert all(counts[one] - base in (0, 1) for one, base in allowed.base.items())


@given(problems(members_max=12, partitions_max=64, weighted=True))
def test_sticky_comes_to_rest(problem: tuple[list[Member], int, TargetAssignment]) -> None:
    some, partitions, current = problem
    target = assign("sticky", some, partitions, current)
    assert assign("sticky", some, partitions, target) == target
    assert assign("sticky", some, partitions, {}) == assign("range", some, partitions, {})


# Refusals


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: assign("stiky", [], 4, {}), "unknown assignor 'stiky': did you mean 'sticky'"),
        (lambda: assign("sticky", members("ABA"), 4, {}), "doubled: A"),
        (lambda: assign("sticky", members("A"), 0, {}), "at least 1"),
        (lambda: assign("sticky", members("A"), 4, {4: "A"}), "current names partition 4"),
        (lambda: assign("static", members("A"), 4, {}), "needs static_map"),
        (
            lambda: assign("static", members("A"), 4, {}, static_map={-1: "A"}),
            "static_map names partition -1",
        ),
        (lambda: assign("range", [Member("A", 1, float("inf"))], 4, {}), "weight of A is inf"),
    ],
)
def test_nonsense_is_refused_in_words(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()
