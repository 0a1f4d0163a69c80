"""Strategies: every key has its partition, a column has the same, and the spread is even."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.errors import UsageError
from pxrs_ray.partitioning import (
    STRATEGIES,
    Partitioner,
    group_by_partition,
    hash_key,
    quality,
)
from pxrs_ray.partitioning.strategies import jump, jump_many, modulo, modulo_many

SINGLE = [name for name in STRATEGIES if name != "broadcast"]
KEYED = ["modulo", "jump", "tenant"]


def partitioner(strategy: str, partitions: int, **options: object) -> Partitioner:
    if strategy == "label":
        first = max(1, partitions // 3)
        rest = {"us": partitions - first} if partitions > first else {}
        options["labels"] = {"eu": first, **rest}
    return Partitioner(partitions, strategy, **options)  # type: ignore[arg-type]


def scope_of(strategy: str) -> str | None:
    return "eu" if strategy == "label" else None


# The five strategy tests of the documents


@pytest.mark.parametrize("strategy", SINGLE)
@pytest.mark.parametrize("name", ["xxh64", "java"])
def test_every_partition_is_in_range(strategy: str, name: str) -> None:
    some = partitioner(strategy, 8, hash_name=name)
    # The last one hashes to the smallest integer in Java, where abs() overflows.
    for key in ["", "a", "account-17", "ключ", "\U0001f600", "polygenelubricants"]:
        assert 0 <= some.partition(key, scope_of(strategy)) < 8


@pytest.mark.parametrize("strategy", KEYED)
def test_the_same_key_always_goes_to_the_same_partition(strategy: str) -> None:
    for key in ("account-1", "account-2", b"\x00\xff"):
        assert len({partitioner(strategy, 16).partition(key) for _ in range(20)}) == 1
    assert Partitioner(16).partition("text") == Partitioner(16).partition(b"text")


@pytest.mark.parametrize("name", ["xxh64", "murmur3_128", "murmur3_32", "sha256", "crc32", "java"])
@pytest.mark.parametrize("strategy", KEYED)
def test_a_thousand_keys_use_every_partition_by_more_than_five_percent(
    strategy: str, name: str
) -> None:
    some = Partitioner(8, strategy, name)
    counts = Counter(some.partition(f"key-{i}") for i in range(1_000))
    assert set(counts) == set(range(8))
    assert min(counts.values()) > 50


@pytest.mark.parametrize("strategy", SINGLE)
def test_one_partition_takes_everything(strategy: str) -> None:
    some = partitioner(strategy, 1)
    assert {some.partition(f"key-{i}", scope_of(strategy)) for i in range(50)} == {0}


@pytest.mark.parametrize("strategy", SINGLE)
def test_one_to_a_hundred_partitions(strategy: str) -> None:
    for count in range(1, 101):
        some = partitioner(strategy, count)
        found = {some.partition(f"key-{i}", scope_of(strategy)) for i in range(20)}
        assert found <= set(range(count))


# What each strategy promises


def test_modulo_is_the_floor_modulo_of_the_signed_hash() -> None:
    assert modulo(-(2**63), 12) == -(2**63) % 12 == 4
    for key in ("a", "b", "c", "d"):
        assert Partitioner(12).partition(key) == hash_key(key) % 12


def test_jump_gives_the_published_buckets() -> None:
    # Guava's HashingTest for the linear congruential generator of the paper.
    golden = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    assert [jump(i, 100) for i in range(20)] == golden
    assert jump(10863919174838991, 11) == 6
    assert jump(2016238256797177309, 11) == 3
    assert jump(1673758223894951030, 11) == 5
    assert [jump(i, 100_001) for i in (2, 2201, 2202)] == [80343, 22152, 15018]


def test_jump_moves_keys_only_to_the_new_partition_and_few_of_them() -> None:
    before, after = Partitioner(8, "jump"), Partitioner(9, "jump")
    both = [(before.partition(f"k{i}"), after.partition(f"k{i}")) for i in range(9_000)]
    moved = [new for old, new in both if old != new]
    assert set(moved) == {8}
    assert 850 < len(moved) < 1_150


hashes = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(hashes, min_size=1), st.integers(1, 1 << 20))
def test_the_arithmetic_is_the_same_for_arrays(some: list[int], size: int) -> None:
    array = np.array([*some, -(2**63), 2**63 - 1], np.int64)
    each = np.resize([size, 1, max(size - 1, 1)], len(array))
    for one, many in ((modulo, modulo_many), (jump, jump_many)):
        assert many(array, size).tolist() == [one(value, size) for value in array.tolist()]
        pairs = zip(array.tolist(), each.tolist(), strict=True)
        assert many(array, each).tolist() == [one(*pair) for pair in pairs]


def test_a_tenant_keeps_to_its_window_and_tenants_start_at_different_partitions() -> None:
    some = Partitioner(16, "tenant", tenant_span=3)
    starts = set()
    for tenant in ("acme", "globex", "initech", "umbrella"):
        start = hash_key(tenant) % 16
        starts.add(start)
        found = {some.partition(f"device-{i}", tenant) for i in range(200)}
        assert found == {start, (start + 1) % 16, (start + 2) % 16}
    assert len(starts) > 1


def test_a_tenant_of_span_one_is_in_order() -> None:
    some = Partitioner(16, "tenant")
    assert len({some.partition(f"device-{i}", "acme") for i in range(100)}) == 1
    assert len({some.partition(f"device-{i}") for i in range(100)}) > 1


def test_labels_have_partitions_of_their_own() -> None:
    some = Partitioner(8, "label", labels={"eu": 2, "us": 5, "apac": 1})
    found = {
        label: {some.partition(f"k{i}", label) for i in range(300)}
        for label in ("eu", "us", "apac")
    }
    assert found == {"eu": {0, 1}, "us": {2, 3, 4, 5, 6}, "apac": {7}}
    with pytest.raises(UsageError, match="unknown label 'uss': did you mean 'us'"):
        some.partition("k", "uss")
    with pytest.raises(UsageError, match="needs the label"):
        some.partition("k")


def test_round_robin_goes_round_from_its_turn_whatever_the_key() -> None:
    some = Partitioner(3, "round_robin", turn=2)
    assert [some.partition("same") for _ in range(5)] == [2, 0, 1, 2, 0]


def test_broadcast_goes_everywhere() -> None:
    some = Partitioner(3, "broadcast")
    assert some.partitions_of("k") == (0, 1, 2)
    assert Partitioner(3).partitions_of("k") == (Partitioner(3).partition("k"),)
    order, bounds = group_by_partition(pa.array(["a", "b"]), some)
    assert order.tolist() == [0, 1] * 3 and bounds.tolist() == [0, 2, 4, 6]
    for call in (lambda: some.partition("k"), lambda: some.partition_column(pa.array(["k"]))):
        with pytest.raises(UsageError, match="partitions_of"):
            call()


@pytest.mark.parametrize("strategy", SINGLE)
def test_messages_without_a_key_spread_evenly(strategy: str) -> None:
    some = partitioner(strategy, 8, **({"tenant_span": 4} if strategy == "tenant" else {}))
    scope = {"label": "us", "tenant": "acme"}.get(strategy)
    size = {"label": 6, "tenant": 4}.get(strategy, 8)
    counts = Counter(some.partition(None, scope) for _ in range(size * 10))
    assert set(counts.values()) == {10} and len(counts) == size


# Columns


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.characters(codec="utf-8"), max_size=9),
            st.sampled_from(["eu", "us"]),
            st.booleans(),
        )
    ),
    st.integers(2, 700),
    st.integers(0, 1_000),
    st.integers(0, 4),
)
def test_columns_equal_messages_one_by_one(
    rows: list[tuple[str | None, str, bool]], partitions: int, turn: int, cut: int
) -> None:
    span = max(1, partitions // 2)
    for strategy in SINGLE:
        one = partitioner(strategy, partitions, turn=turn, tenant_span=span)
        many = partitioner(strategy, partitions, turn=turn, tenant_span=span)
        scopes = [None if gone and strategy == "tenant" else scope for _, scope, gone in rows]
        keys = [key for key, _, _ in rows]
        expected = [one.partition(key, scope) for key, scope in zip(keys, scopes, strict=True)]
        for column in (
            pa.array(keys, pa.string()),
            pa.chunked_array([keys[:cut], keys[cut:]], pa.large_string()),
        ):
            many.turn = turn
            found = many.partition_column(column, pa.array(scopes, pa.string()))
            assert found.tolist() == expected
            assert many.turn == one.turn


@pytest.mark.parametrize(
    ("partitions", "kind"),
    [(256, np.uint8), (257, np.uint16), (65_536, np.uint16)],
)
def test_partitions_come_as_the_narrowest_integers(partitions: int, kind: type) -> None:
    assert Partitioner(partitions).partition_column(pa.array(["a"])).dtype == kind


@pytest.mark.parametrize("partitions", [1, 16, 300, 65_536])
def test_grouping_is_complete_and_keeps_the_order_of_rows(partitions: int) -> None:
    keys = [f"k{i % 97}" if i % 11 else None for i in range(2_000)]
    order, bounds = group_by_partition(pa.array(keys), Partitioner(partitions))
    expected = Partitioner(partitions).partition_column(pa.array(keys))
    assert sorted(order.tolist()) == list(range(2_000))
    assert len(bounds) == partitions + 1 and bounds[0] == 0 and bounds[-1] == 2_000
    for partition in np.unique(expected).tolist():
        rows = order[bounds[partition] : bounds[partition + 1]].tolist()
        assert rows == np.flatnonzero(expected == partition).tolist()


def test_an_empty_column_is_no_rows() -> None:
    for strategy in STRATEGIES:
        order, bounds = group_by_partition(pa.array([], pa.string()), partitioner(strategy, 4))
        assert order.tolist() == [] and bounds.tolist() == [0, 0, 0, 0, 0]


# Quality


def test_quality_of_good_hashing() -> None:
    found = quality([f"account-{i}" for i in range(20_000)], Partitioner(16))
    assert sum(found.counts) == found.keys == found.distinct_keys == 20_000
    assert 1.0 <= found.skew < 1.1 and abs(found.sigmas) < 4 and found.empty == ()


def test_quality_shows_hot_keys_and_empty_partitions() -> None:
    found = quality(["hot"] * 99 + ["cold"], Partitioner(16))
    hot = Partitioner(16).partition("hot")
    assert found.distinct_keys == 2 and found.fullest == hot and len(found.empty) == 14
    assert found.skew == pytest.approx(99 * 16 / 100) and found.sigmas > 100


def test_quality_shows_what_a_weak_hash_does() -> None:
    # Java's hash of keys that differ only in steps of its own multiplier.
    sample = [chr(65 + i) + chr(1_000 - 31 * i) for i in range(30)]
    assert len({hash_key(key, "java") for key in sample}) == 1
    assert quality(sample, Partitioner(8, "modulo", "java")).skew == 8.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"partitions": 0}, "allowed are 1 to"),
        ({"partitions": 65_537}, "allowed are 1 to 65,536"),
        ({"partitions": 8, "strategy": "modul"}, "unknown strategy 'modul': did you mean 'modulo'"),
        ({"partitions": 8, "hash_name": "md5"}, "unknown hash 'md5'"),
        ({"partitions": 8, "tenant_span": 9}, "tenant_span is 9"),
        ({"partitions": 8, "labels": {"a": 8}}, "takes no labels"),
        ({"partitions": 8, "strategy": "label"}, "share out exactly 8"),
        ({"partitions": 8, "strategy": "label", "labels": {"a": 9, "b": -1}}, "at least 1 each"),
    ],
)
def test_nonsense_is_refused_in_words(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Partitioner(**arguments)  # type: ignore[arg-type]


def test_more_nonsense_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="2 keys came with 1 scopes"):
        Partitioner(8, "tenant").partition_column(pa.array(["a", "b"]), pa.array(["t"]))
    with pytest.raises(UsageError, match="no key"):
        quality([], Partitioner(8))
