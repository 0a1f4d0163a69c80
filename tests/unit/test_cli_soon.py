"""`pxrs status` of a coordinator that is mute: told at once where it is frozen, waited for where it
is being started anew."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pxrs_ray.cli import _ray
from pxrs_ray.errors import DeadlineExceeded

FROZEN = DeadlineExceeded("its process lives and is frozen")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who was asked; the process of the coordinator never answers."""
    found: list[str] = []

    def mute(self: object, wait_s: float) -> None:
        assert wait_s <= 2.5, "half of it is for its process, and a second for all the rest"
        found.append("process")
        raise FROZEN

    client = "pxrs_ray.actors.cluster.blocking_client.BlockingCoordinatorClient"
    monkeypatch.setattr(f"{client}.check_alive", mute)
    monkeypatch.setattr(_ray, "connect", lambda: None)
    attach = "pxrs_ray.actors.client.topology.attach"
    monkeypatch.setattr(attach, lambda name, timeout_s: found.append(f"attach {name}") or "shop")
    return found


def is_there(monkeypatch: pytest.MonkeyPatch, state: str | None) -> None:
    place = None if state is None else SimpleNamespace(state=state)
    monkeypatch.setattr("pxrs_ray.actors.cluster.actor_process.whereabouts", lambda _: place)


@pytest.mark.parametrize("state", ["ALIVE", None])
def test_one_that_is_frozen_is_told_at_once(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    is_there(monkeypatch, state)
    with pytest.raises(DeadlineExceeded, match="is frozen"):
        _ray.soon("shop")
    assert asked == ["process"]


def test_one_that_is_started_anew_is_waited_for(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there(monkeypatch, "RESTARTING")
    assert _ray.soon("shop") == "shop"  # type: ignore[comparison-overlap]
    assert asked == ["process", "attach shop"]
