"""Ways into a Ray cluster that is there, that is gone, and that left a note of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import services

from pxrs_ray.actors.joining import join, join_or_start
from pxrs_ray.errors import UsageError
from tests.servers import free_port

Joined = list[dict[str, Any]]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Joined]:
    """What `ray.init` is called with, in a process without Ray, on a machine of `tmp_path`."""
    calls: Joined = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda address, **_: calls.append({"address": address}))
    monkeypatch.setattr(services, "find_gcs_addresses", set)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "")
    yield calls


@pytest.fixture
def gone(tmp_path: Path) -> str:
    """A cluster that was killed: its note is left."""
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text(address)
    return address


def test_a_cluster_that_is_gone_is_told_at_once(joined: Joined, gone: str) -> None:
    with pytest.raises(UsageError, match=f"is gone, nobody listens at {gone}.*ray start --head"):
        join()
    assert joined == []


def test_another_cluster_is_taken_where_the_noted_one_is_gone(
    joined: Joined, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"10.0.0.1:6379"})
    join()
    assert joined == [{"address": "10.0.0.1:6379"}]


def test_who_may_start_ray_does_so_where_the_noted_one_is_gone(joined: Joined, gone: str) -> None:
    join_or_start()
    assert joined == [{"address": "local"}]


def test_without_a_note_ray_looks_for_itself(joined: Joined) -> None:
    join()
    assert joined == [{"address": "auto"}]


def test_a_named_cluster_that_is_gone_is_not_replaced(
    joined: Joined, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", gone)
    for way in (join, join_or_start):
        with pytest.raises(UsageError, match=f"no Ray cluster runs at {gone}"):
            way()
    assert joined == []


def test_no_test_joins_what_another_one_left(tmp_path: Path, gone: str) -> None:
    """What `ray.init()` without an address would do here (None: start a Ray of its own)."""
    assert services.canonicalize_bootstrap_address(None, str(tmp_path / "ray")) is None
