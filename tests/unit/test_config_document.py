"""A configuration in the registry is whole: no variable and no new default changes a topology."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.config import PxrsConfig
from pxrs_ray.config.document import decode, encode
from tests.unit.configurations import CONFIGURATIONS

VARIABLES = {
    "PXRS_NUM_PARTITIONS": "64",
    "PXRS_DURABILITY": "always",
    "PXRS_PREFIX": "other",
    "PXRS_KEY_PREFIX": "/other/",
    "PXRS_GROUPS__G__CONSUMERS": "7",
    "PXRS_QUEUES__A__PARTITIONS": "5",
    "PXRS_DRUABILITY": "typo",
    "PXRS_LEASE_TTL_SECONDS": "not a number",
}


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_variables_of_the_node_that_reads_change_nothing(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PxrsConfig(name="shop", queues={"a": {}}, groups={"g": {"queue": "a"}})
    text = encode(config)
    monkeypatch.setenv(variable, VARIABLES[variable])
    assert decode(text) == config
    # Nor when something is added while running.
    added = decode(text).changed(groups={"h": {"queue": "a"}})
    assert added.groups["g"] == config.groups["g"] and added.queues == config.queues


@given(CONFIGURATIONS, st.booleans())
def test_what_is_read_resolves_and_changes_as_before(config: PxrsConfig, twice: bool) -> None:
    again = decode(encode(config), config.store)
    assert again == config and again.diff(config) == () and again.store_url == config.store_url
    assert again.fingerprint() == config.fingerprint()
    changes: dict[str, Any] = {"linger_ms": 9, "retention_ms": 77, "lease_ttl_seconds": 33.0}
    assert again.changed(**changes) == config.changed(**changes)


def test_what_was_said_like_a_default_stays_said() -> None:
    config = PxrsConfig(num_partitions=32, queues={"a": {"partitions": 16}, "b": {}})
    again = decode(encode(config))
    assert (again.queues["a"].partitions, again.queues["b"].partitions) == (16, 32)
    assert again.changed(num_partitions=8).queues["a"].partitions == 16


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        ("topology", "num_partitions", 3),
        ("topology", "linger_ms", 77),
        ("queues", "segment_bytes_max", 5_000_000),
        ("groups", "attempts_max", 11),
        ("groups", "commit_interval_ms", 4_321),
    ],
)
def test_a_default_that_later_code_has_changed_is_not_taken(
    model: str, field: str, value: int
) -> None:
    """As if the code that wrote had another default: the values say so, `said` does not."""
    import json

    config = PxrsConfig(queues={"a": {"partitions": 8}}, groups={"g": {"queue": "a"}})
    document = json.loads(encode(config))
    owner = document["values"]
    if model != "topology":
        owner = owner[model]["a" if model == "queues" else "g"]
    owner[field] = value
    again = decode(json.dumps(document).encode())
    found: Any = again
    if model != "topology":
        found = again.queues["a"] if model == "queues" else again.groups["g"]
    assert getattr(found, field) == value
    # And it stays when something else changes.
    changed = again.changed(history_keep=5)
    found = changed
    if model != "topology":
        found = changed.queues["a"] if model == "queues" else changed.groups["g"]
    assert getattr(found, field) == value


def test_the_order_of_labels_comes_back() -> None:
    for labels in ({"gpu": 4, "cpu": 12}, {"cpu": 12, "gpu": 4}):
        config = PxrsConfig(queues={"a": {"strategy": "label", "labels": labels}})
        assert decode(encode(config)).queues["a"].spread() == config.queues["a"].spread()


def test_no_url_of_a_store_is_written() -> None:
    config = PxrsConfig(store="postgresql://me:secret@host/db", queues={"a": {}})
    assert b"secret" not in encode(config) and b"postgresql" not in encode(config)
    assert decode(encode(config), config.store) == config


@pytest.mark.parametrize("rubbish", [b"{}", b"[]", b'{"said": 3, "values": {}}', b'{"said": {}}'])
def test_what_is_no_configuration_is_refused(rubbish: bytes) -> None:
    with pytest.raises(ValueError):
        decode(rubbish)
