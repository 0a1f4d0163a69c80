"""Ways into a Ray cluster that is there, that is gone, and that left a note of itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import services

from pxrs_ray.actors.cluster import join as joining
from pxrs_ray.actors.cluster.join import join, join_or_start
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
    monkeypatch.setattr(joining, "_check_let_in", lambda _: None)
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


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch, joined: Joined) -> Iterator[socket.socket]:
    """Somebody who listens at the address that RAY_ADDRESS names."""
    monkeypatch.undo()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(joining, "LISTEN_WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listening.getsockname()[1]}")
        yield listening


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:8265", "address of a Ray dashboard.*HOST:6379"),
        ("https://ray.example", "address of a Ray dashboard"),
        ("foo", "'foo' is not the address of a Ray cluster: that is HOST:6379"),
        ("127.0.0.1:99999", "is not the address of a Ray cluster"),
        ("ray://nowhere", "is not the address of a Ray cluster"),
    ],
)
def test_an_address_of_another_form_is_told_at_once(
    joined: Joined, address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=words):
        join()
    assert joined == []


def test_a_client_port_where_nobody_listens_is_told_at_once(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"ray://127.0.0.1:{free_port()}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=f"no Ray cluster runs at {address}"):
        join()
    assert joined == []


def test_a_head_that_is_frozen_is_told_at_once(listener: socket.socket) -> None:
    with pytest.raises(UsageError, match=r"says nothing for 0\.2 s.*does it run"):
        join()


def test_a_port_that_is_not_the_heads_is_told_at_once(listener: socket.socket) -> None:
    def answer() -> None:
        asked = b""
        while not asked:  # the first one only looks whether somebody listens
            connection, _ = listener.accept()
            with connection:
                asked = connection.recv(100)
                if asked:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    answering = threading.Thread(target=answer)
    answering.start()
    with pytest.raises(UsageError, match=r"is not the head of a Ray cluster.*not the dashboard's"):
        join()
    answering.join(10)


def test_the_token_that_is_here_is_taken_along(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a process of its own, for Ray reads the mode once."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("a" * 64)
    code = (
        "import os; from pxrs_ray.actors.cluster.join import take_the_token as take\n"
        "take(); print(os.environ.get('RAY_AUTH_MODE'))"
    )
    without = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}

    def told(**variables: str) -> str:
        command = [sys.executable, "-c", code]
        ended = subprocess.run(
            command, env={**without, **variables}, capture_output=True, text=True, timeout=60
        )
        assert ended.stderr == ""
        return ended.stdout.strip()

    assert told(HOME=str(tmp_path)) == "token"
    assert told(HOME=str(tmp_path), RAY_AUTH_MODE="disabled") == "disabled"
    assert told(HOME=str(tmp_path / "nobody")) == "None"
