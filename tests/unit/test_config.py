"""Configuration: what is refused and how it is told, what is inherited, what differs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.config import ByKey, GroupConfig, Ordered, Packs, PxrsConfig, QueueConfig
from pxrs_ray.config.declare import Effect, Options
from pxrs_ray.config.diff import declared
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.config.redact import without_secrets
from pxrs_ray.errors import ConfigError, NotFound
from pxrs_ray.partitioning import PartitioningSpec


def refused(**options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        PxrsConfig(**options)
    return str(caught.value)


def test_the_defaults_are_those_of_the_documents() -> None:
    config = PxrsConfig()
    assert config.num_partitions == 16
    assert config.lease_ttl_seconds == 10
    assert config.rebalance_interval_ms == 10_000
    assert config.etcd_endpoints == "http://localhost:2379"
    assert config.key_prefix == "/pxrs/"
    assert (config.strategy, config.hash, config.hash_seed) == ("modulo", "xxh64", 42)
    assert (config.durability, config.fsync_interval_ms) == ("interval", 50)
    assert config.message_bytes_max == 16 << 20
    assert config.store_url == f"sqlite:///{Path('~/.pxrs/pxrs/registry.db').expanduser()}"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_partitions": 0}, "num_partitions = 0: must be a whole number from 1 to 65536"),
        ({"num_partitions": "8"}, "num_partitions = '8': must be a whole number from 1 to 65536"),
        ({"num_partitions": True}, "num_partitions = True: must be a whole number from 1 to 65536"),
        ({"lease_ttl_seconds": 0.5}, "lease_ttl_seconds = 0.5: must be a number from 1 to 3600"),
        ({"lease_ttl_seconds": float("nan")}, "lease_ttl_seconds = nan: must be a number from 1"),
        (
            {"durability": "ram"},
            "durability = 'ram': must be one of 'memory', 'interval', 'always'",
        ),
        ({"buffers": 0}, "buffers = 0: must be a whole number from 1 to 1024 or left out"),
        ({"num_partitons": 8}, "num_partitons: unknown option; did you mean 'num_partitions'?"),
        ({"consumers": 2}, "consumers: unknown option; it is an option of one of the groups"),
        ({"etcd_endpoints": "http://a:1,b"}, "etcd_endpoints = 'b': must be like http://host:2379"),
        ({"key_prefix": "pxrs"}, "key_prefix = 'pxrs': must be a text like '/pxrs/'"),
        ({"queues": {"a": 3}}, "queues.a = 3: must be a table of options"),
        ({"queues": {"a b": {}}}, "queues: the name 'a b' must begin with a letter or digit"),
        ({"groups": {"g": {}}}, "groups.g.queue: is missing; must be a text like 'payments'"),
        (
            {"queues": {"orders": {}}, "groups": {"g": {"queue": "order"}}},
            "groups.g.queue = 'order': no such queue; did you mean 'orders'?",
        ),
        (
            {"queues": {"q": {}}, "groups": {"g": {"queue": "q", "handler": "mod.fn"}}},
            "groups.g.handler = 'mod.fn': must be a text like 'shop.handlers:charge' or left out",
        ),
        (
            {"queues": {"q": {}}, "groups": {"g": {"queue": "q", "backoff_ms": 60_000}}},
            "groups.g: backoff_ms = 60000: must be at most backoff_ms_max, which is 10000",
        ),
        (
            {"queues": {"q": {}}, "groups": {"g": {"queue": "q", "assignor": "static"}}},
            "groups.g: assignor = 'static' and static_map are only of use together",
        ),
        (
            {"queues": {"q": {"segment_bytes_max": 100, "partition_bytes_max": 50}}},
            "queues.q.segment_bytes_max = 100: must be at most partition_bytes_max, which is 50",
        ),
    ],
)
def test_a_wrong_option_is_told_with_its_value_and_what_is_allowed(
    options: dict[str, Any], told: str
) -> None:
    assert told in refused(**options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"strategy": "label"}, "only of use together"),
        ({"labels": {"gpu": 16}}, "only of use together"),
        ({"strategy": "label", "labels": {"gpu": 4, "cpu": 4}}, "exactly 16 partitions"),
        ({"strategy": "label", "labels": {"gpu": 16, "cpu": 0}}, "at least 1 each"),
        ({"tenant_span": 2}, "strategy = 'tenant'"),
        ({"strategy": "tenant", "tenant_span": 17}, "at most partitions"),
    ],
)
def test_how_a_queue_spreads_must_make_sense(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        PxrsConfig(name="t", queues={"q": options})


def test_how_a_queue_spreads_reaches_its_producers() -> None:
    queue = QueueConfig(partitions=8, strategy="label", labels={"gpu": 2, "cpu": 6})
    assert queue.spread() == PartitioningSpec(8, "label", labels=(("gpu", 2), ("cpu", 6)))
    assert queue.spread().partitioner().window("cpu") == (2, 6)
    group = GroupConfig(queue="q", failure_policy="dead_letter")
    config = PxrsConfig(name="t", queues={"q": queue}, groups={"g": group})
    assert config.queues["q.dead"].spread() == PartitioningSpec(8)
    with pytest.raises(ConfigError, match="dead letters have none"):
        config.changed(groups={"g": {"queue": "q", "dead_letter_queue": "q"}})


def test_a_static_map_is_checked_against_the_partitions() -> None:
    queues = {"q": {"partitions": 2}}
    static = {"queue": "q", "assignor": "static"}
    assert "static_map: partition 2 is not in 0 to 1" in refused(
        queues=queues, groups={"g": {**static, "static_map": {"a": [0], "b": [2]}}}
    )
    assert "names a partition twice" in refused(
        queues=queues, groups={"g": {**static, "static_map": {"a": [0], "b": [0]}}}
    )
    config = PxrsConfig(queues=queues, groups={"g": {**static, "static_map": {"a": [1], "b": [0]}}})
    assert config.groups["g"].static_owners == {1: "a", 0: "b"}


def test_all_problems_are_told_at_once() -> None:
    told = refused(num_partitions=0, linger=3, queues={"a": {"hash": "md5"}})
    assert told.startswith("3 wrong options:\n")
    assert "num_partitions = 0" in told
    assert "linger: unknown option; did you mean 'linger_ms'?" in told
    assert "queues.a.hash = 'md5': must be one of 'xxh64'" in told


def test_parts_are_refused_alone_as_well() -> None:
    with pytest.raises(ConfigError, match="partitions = 0: must be a whole number from 1"):
        QueueConfig(partitions=0)
    with pytest.raises(ConfigError, match="did you mean 'consumers'"):
        GroupConfig(queue="q", consumer=1)  # type: ignore[call-arg]


def test_a_password_is_never_told() -> None:
    url = "postgresql://user:hun:ter@2@db/registry?password=hunter2"
    config = PxrsConfig(store=url)
    assert config.store_url == url
    assert "hun" not in repr(config) + str(config) + config.fingerprint()
    told = "".join(str(difference) for difference in config.diff(PxrsConfig()))
    assert "store" in told and "hun" not in told
    assert config.fingerprint() == PxrsConfig(store=url.replace("hun", "other")).fingerprint()
    assert "hun" not in refused(store=url.replace("postgresql://", "://"))


@given(st.text(alphabet="abc:@/?&=%#", min_size=1, max_size=12))
def test_no_password_survives_hiding(inner: str) -> None:
    password = f"S3{inner}3S"
    assert password not in without_secrets(f"redis://user:{password}@host:1/0")
    if "&" not in password:
        assert password not in without_secrets(f"oracle://host/db?password={password}&pool=2")


def test_queues_and_groups_take_over_what_they_did_not_say() -> None:
    config = PxrsConfig(
        num_partitions=8,
        durability="always",
        lease_ttl_seconds=2,
        queues={"a": QueueConfig(), "b": {"partitions": 4, "durability": "interval"}},
        groups={"g": GroupConfig(queue="a"), "h": {"queue": "b", "lease_ttl_seconds": 30}},
    )
    a, b = config.resolved_queue("a"), config.resolved_queue("b")
    assert (a.partitions, a.durability) == (8, "always")
    # saying what happens to be the default is saying it
    assert (b.partitions, b.durability) == (4, "interval")
    assert config.resolved_group("g").lease_ms == 2_000
    assert config.resolved_group("h").lease_ms == 30_000
    with pytest.raises(NotFound, match="no queue 'c'; known are a, b"):
        config.resolved_queue("c")
    with pytest.raises(NotFound, match="did you mean 'gh'"):
        PxrsConfig(queues={"q": {}}, groups={"gh": {"queue": "q"}}).resolved_group("ghh")


def test_a_changed_configuration_is_resolved_anew() -> None:
    before = PxrsConfig(num_partitions=8, queues={"a": {}, "b": {"partitions": 4}})
    after = before.changed(num_partitions=32, queues={"b": {"retention_passed": True}})
    assert after.queues["a"].partitions == 32
    assert after.queues["b"].partitions == 4 and after.queues["b"].retention_passed
    assert before.queues["a"].partitions == 8
    with pytest.raises(ConfigError):
        before.changed(num_partitions=0)


def test_dead_letters_get_a_queue_like_their_source() -> None:
    config = PxrsConfig(
        queues={"q": {"partitions": 3}},
        groups={"g": {"queue": "q", "failure_policy": "dead_letter"}},
    )
    assert config.groups["g"].dead_letter_queue == "q.dead"
    assert config.queues["q.dead"] == config.queues["q"]
    assert "dead_letter_queue = 'x': no such queue" in refused(
        queues={"q": {}}, groups={"g": {"queue": "q", "dead_letter_queue": "x"}}
    )


def test_diff_tells_what_can_change_live() -> None:
    before = PxrsConfig(
        queues={"a": {}, "b": {}},
        groups={"g": {"queue": "a", "handler": "m:f"}, "old": {"queue": "b"}},
    )
    after = PxrsConfig(
        linger_ms=9,
        queues={"a": {"partitions": 32}, "c": {}},
        groups={"g": {"queue": "a", "handler": "m:g", "consumers": 4}},
    )
    told = {found.option: found.changes for found in before.diff(after)}
    assert told == {
        "linger_ms": (Effect.PRODUCERS,),
        "queues.a.partitions": (Effect.FIXED,),
        "queues.b": (Effect.FIXED,),
        "queues.c": (Effect.BUFFERS,),
        "groups.g.handler": (Effect.START,),
        "groups.g.consumers": (Effect.COORDINATOR,),
        "groups.old": (Effect.COORDINATOR,),
    }
    assert [found.option for found in before.diff(after) if not found.allowed] == [
        "queues.a.partitions",
        "queues.b",
    ]
    assert str(before.diff(after)[0]) == "linger_ms: 0 -> 9 (for producers that begin)"


def every_option() -> list[tuple[type[Options], str]]:
    return [
        (kind, name)
        for kind in (PxrsConfig, QueueConfig, GroupConfig, ScalingConfig, Ordered, ByKey, Packs)
        for name in kind.model_fields
    ]


@pytest.mark.parametrize(("kind", "name"), every_option())
def test_every_option_is_described_and_says_how_it_changes(kind: type[Options], name: str) -> None:
    field = kind.model_fields[name]
    assert field.description and field.description.endswith(".")
    assert declared(field)


@given(
    st.builds(
        dict,
        num_partitions=st.integers(1, 64),
        durability=st.sampled_from(["memory", "interval", "always"]),
        linger_ms=st.integers(0, 100),
        queues=st.dictionaries(
            st.sampled_from(["a", "b.c", "D-1"]),
            st.fixed_dictionaries({}, optional={"partitions": st.integers(1, 64)}),
        ),
    )
)
def test_a_configuration_travels_and_compares(options: dict[str, Any]) -> None:
    config = PxrsConfig(**options)
    again = PxrsConfig(**options)
    assert pickle.loads(pickle.dumps(config)) == config == again
    assert config.fingerprint() == again.fingerprint()
    assert config.diff(again) == ()
    assert config.changed() == config
    other = config.changed(linger_ms=config.linger_ms + 1)
    assert other.fingerprint() != config.fingerprint()
    assert [found.option for found in config.diff(other)] == ["linger_ms"]


def test_the_fingerprint_stays_the_same_over_versions() -> None:
    config = PxrsConfig(name="payments", num_partitions=8, queues={"payments": {}})
    assert config.fingerprint() == "af9802ba349ec96f"


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        PxrsConfig().linger_ms = 3  # type: ignore[misc]


def test_store_urls_and_names() -> None:
    assert PxrsConfig(store="memory:").store_url == "memory:"
    etcd = PxrsConfig(etcd_endpoints="http://a:1, http://b:2/", key_prefix="/team/")
    assert etcd.store_url == "etcd://a:1,b:2/team/"
    assert PxrsConfig(etcd_endpoints="https://a:1").store_url == "etcds://a:1/pxrs/"
    assert PxrsConfig(data_dir="/data", name="x").topology_dir == Path("/data/x")
    assert PxrsConfig(prefix="test").full_name("payments") == "test.payments"
    assert PxrsConfig().full_name("payments") == "payments"


def test_the_logs_get_the_queue_s_limits() -> None:
    queue = PxrsConfig(
        durability="always", tail_bytes_max=5, queues={"q": {"lost_log_policy": "continue"}}
    ).queues["q"]
    limits = queue.log_limits()
    assert (limits.durability, limits.lost_log_policy) == ("always", "continue")
    assert (limits.tail_bytes_max, limits.fsync_interval_ms) == (5, 50)


def test_labels_in_another_order_are_another_spread_and_are_refused() -> None:
    def ordered(*labels: str, **more: Any) -> PxrsConfig:
        sizes = {"gpu": 4, "cpu": 10, "tpu": 2}
        queue = {"strategy": "label", "labels": {label: sizes[label] for label in labels}}
        return PxrsConfig(queues={"q": queue}, **more)

    before = ordered("gpu", "cpu", "tpu")
    after = ordered("cpu", "tpu", "gpu", linger_ms=9)
    assert before.queues["q"].spread() != after.queues["q"].spread()
    told = {found.option: found.changes for found in before.diff(after)}
    assert told == {"linger_ms": (Effect.PRODUCERS,), "queues.q.labels": (Effect.FIXED,)}
    assert ordered("cpu", "gpu", "tpu").fingerprint() != before.fingerprint()
    assert ordered("gpu", "cpu", "tpu").fingerprint() == before.fingerprint()


SPREADS = st.one_of(
    st.permutations([("gpu", 4), ("cpu", 10), ("tpu", 2)]).map(
        lambda pairs: {"strategy": "label", "labels": dict(pairs)}
    ),
    st.fixed_dictionaries(
        {"strategy": st.just("tenant"), "tenant_span": st.sampled_from([1, 2, 16])}
    ),
    st.fixed_dictionaries(
        {
            "strategy": st.sampled_from(["modulo", "jump"]),
            "hash": st.sampled_from(["xxh64", "crc32"]),
            "hash_seed": st.sampled_from([1, 42]),
        }
    ),
)


@given(SPREADS, SPREADS)
def test_whatever_moves_a_key_is_a_difference_that_no_running_topology_takes(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    before, after = PxrsConfig(queues={"q": one}), PxrsConfig(queues={"q": other})
    refused = [found for found in before.diff(after) if not found.allowed]
    assert bool(refused) == (before.queues["q"].spread() != after.queues["q"].spread())


@pytest.mark.parametrize("other", ["interval", "always"])
def test_no_queue_goes_from_memory_to_disk_or_back_while_it_runs(other: str) -> None:
    memory, disk = (PxrsConfig(queues={"q": {"durability": d}}) for d in ("memory", other))
    for before, after in ((memory, disk), (disk, memory)):
        assert [found.changes for found in before.diff(after)] == [(Effect.FIXED,)]
    interval, always = (PxrsConfig(queues={"q": {"durability": d}}) for d in ("interval", "always"))
    assert [found.changes for found in interval.diff(always)] == [(Effect.BUFFERS,)]


@pytest.mark.parametrize("ports", ["any", "off", "1024-65535", "20000-20000"])
def test_ports_of_links(ports: str) -> None:
    assert PxrsConfig(name="t", link_ports=ports).link_ports == ports


@pytest.mark.parametrize(
    "ports", ["", "on", "20000", "20100-20000", "80-90", "1-2-3", "0-99999", "any "]
)
def test_ports_of_links_that_are_none_are_refused(ports: str) -> None:
    with pytest.raises(ConfigError, match="link_ports"):
        PxrsConfig(name="t", link_ports=ports)
