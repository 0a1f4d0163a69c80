"""Configurations of every shape, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import ConfigError

_TIMES = st.integers(1, 100_000)
_QUEUE = st.fixed_dictionaries(
    {},
    optional={
        "partitions": st.sampled_from([1, 4, 16, 32]),
        "durability": st.sampled_from(["memory", "interval", "always"]),
        "hash": st.sampled_from(["xxh64", "crc32"]),
        "retention_ms": st.none() | _TIMES,
        "retention_passed": st.booleans(),
        "segment_bytes_max": st.sampled_from([1 << 20, 128 << 20]),
        "source": st.sampled_from([None, "file:///data/orders.jsonl?key=account"]),
    },
)
_LABELLED = st.permutations([("gpu", 4), ("cpu", 10), ("é", 2)]).map(
    lambda pairs: {"partitions": 16, "strategy": "label", "labels": dict(pairs)}
)
_MODES = st.one_of(
    st.sampled_from(["ordered", "by_key", "packs", {"mode": "ordered", "commit_mode": "batch"}]),
    st.fixed_dictionaries(
        {"mode": st.just("by_key")},
        optional={
            "parallelism": st.integers(1, 64),
            "handler_timeout_ms": st.none() | _TIMES,
            "tenant_weights": st.sampled_from([{}, {"acme": 2.0, "other": 0.5}]),
        },
    ),
    st.fixed_dictionaries(
        {"mode": st.just("packs")},
        optional={
            "submit_strategy": st.sampled_from(["burst", "sequential"]),
            "parallelism": st.integers(1, 64),
            "retries": st.integers(0, 9),
        },
    ),
)
_GROUP = st.fixed_dictionaries(
    {"queue": st.sampled_from("ab")},
    optional={
        "handler": st.sampled_from([None, "shop.handlers:charge"]),
        "consumers": st.integers(0, 9),
        "lease_ttl_seconds": st.sampled_from([1.0, 2.5, 10.0]),
        "failure_policy": st.sampled_from(["stop", "skip", "dead_letter", "quarantine"]),
        "prepare_ms": _TIMES,
        "processing": _MODES,
        "ray_options": st.sampled_from([{}, {"num_cpus": 0.5}, {"resources": {"gpu": 1}}]),
        "scaling": st.none() | st.just({"consumers_max": 4, "gain_min": 0.1}),
    },
)
_TABLES = st.fixed_dictionaries(
    {"queues": st.fixed_dictionaries({"a": _QUEUE, "b": _QUEUE | _LABELLED})},
    optional={
        "groups": st.dictionaries(st.sampled_from(["g", "h.1"]), _GROUP, max_size=2),
        "name": st.sampled_from(["pxrs", "shop-1"]),
        "prefix": st.sampled_from(["", "eu"]),
        "num_partitions": st.sampled_from([4, 16, 32]),
        "durability": st.sampled_from(["memory", "interval", "always"]),
        "etcd_endpoints": st.just("http://a:1,http://b:2"),
        "store": st.sampled_from(["", "sqlite:///data/registry.db"]),
        "buffers": st.none() | st.integers(1, 8),
        "lease_ttl_seconds": st.sampled_from([1.0, 10.0]),
        "linger_ms": st.integers(0, 50),
        "history_keep": st.integers(1, 50),
    },
)


def _made(options: dict[str, Any]) -> PxrsConfig | None:
    try:
        return PxrsConfig.of(options)
    except ConfigError:
        return None


def _all(tables: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[PxrsConfig]:
    return tables.map(_made).filter(lambda config: config is not None)  # type: ignore[return-value]


CONFIGURATIONS = _all(_TABLES)
# The URL of the store is not written down: it comes from who reads.
WRITTEN = _all(_TABLES.map(lambda tables: {n: v for n, v in tables.items() if n != "store"}))
