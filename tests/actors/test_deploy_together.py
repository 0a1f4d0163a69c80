"""Several who deploy a new topology at once: none of them takes it from the others."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.actors.client import topology
from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.actors.cluster import coordinator_placement, named_actors
from pxrs_ray.actors.coordinator import buffer_pool, coordinator_actor
from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import DeadlineExceeded, StoreCorrupted


@pytest.mark.parametrize(
    ("made", "error", "kills"),
    [
        (True, StoreCorrupted("it went back"), True),
        (False, StoreCorrupted("it went back"), False),
        (True, DeadlineExceeded("it waits for a log"), False),
        (True, KeyboardInterrupt(), False),
        (False, KeyboardInterrupt(), False),
        (True, SystemExit(1), False),
    ],
    ids=repr,
)
def test_only_its_maker_ends_what_cannot_start(
    made: bool, error: BaseException, kills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = []

    def fails(*arguments: Any) -> Any:
        raise error

    monkeypatch.setattr(topology, "join", lambda: None)
    monkeypatch.setattr(topology, "runs", lambda _: False)
    monkeypatch.setattr(coordinator_placement, "place_of_coordinator", lambda *_, **__: None)
    monkeypatch.setattr(buffer_pool, "buffer_count", lambda *_: 1)
    monkeypatch.setattr(coordinator_actor, "make_coordinator", lambda *_: made)
    monkeypatch.setattr(topology.BlockingCoordinatorClient, "call", fails)
    monkeypatch.setattr(Topology, "kill", lambda self: killed.append(self.name))
    with pytest.raises(type(error)):
        deploy(PxrsConfig(name="shop"))
    assert bool(killed) == kills


def test_of_several_makers_one_alone_has_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[str] = set()

    class Remote:
        def options(self, **options: Any) -> Any:
            self.name = options["name"]
            return self

        def remote(self, *_: Any) -> None:
            if self.name in taken:
                raise ValueError(f"Actor with name {self.name!r} already exists")
            taken.add(self.name)

    monkeypatch.setattr(named_actors.ray, "remote", lambda _: Remote())
    monkeypatch.setattr(named_actors.ray, "get_actor", lambda *_, **__: "it")
    config = PxrsConfig(name="shop")
    assert [coordinator_actor.make_coordinator(config, 1) for _ in range(3)] == [True, False, False]


def test_an_actor_keeps_its_name_and_lifetime_whatever_its_options_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}

    class Remote:
        def options(self, **options: Any) -> Any:
            asked.update(options)
            return self

        def remote(self, *_: Any) -> None:
            """Nothing is made."""

    monkeypatch.setattr(named_actors.ray, "remote", lambda _: Remote())
    named_actors.make_actor(
        object,
        "pxrs/shop/x",
        {"name": "mine", "lifetime": "none", "num_cpus": 2, "max_restarts": 1},
    )
    assert asked == {
        "name": "pxrs/shop/x",
        "lifetime": "detached",
        "namespace": named_actors.names.NAMESPACE,
        "num_cpus": 2,
        "max_restarts": 1,
    }
