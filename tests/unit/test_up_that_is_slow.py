"""`pxrs up` on a machine where a process starts slowly: it never says that runs what cannot."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.actors.client import deployment as module
from pxrs_ray.actors.client.deployment import Deployment
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.errors import HandlerError
from pxrs_ray.status.answers import ConsumerStatus, GroupStatus


class SlowTopology:
    """Its consumer is in one state after the other; the start of its group waited for none."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)
        self.noted: list[Any] = []

    def group(self, name: str) -> SlowTopology:
        return self

    def start(self, handler: object, consumers: int) -> None:
        """As on a busy machine: over before the process has imported anything."""

    def status(self) -> SlowTopology:
        return self

    @property
    def groups(self) -> list[GroupStatus]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        consumer = ConsumerStatus("g-0", 1, state, (), 0, None, None, "", "No module named 'x'")
        return [GroupStatus("t", "g", "q", 1, 1, "", False, 1, (), (consumer,))]

    def note_deployed(self, note: Any) -> None:
        self.noted.append(note)


def carried_out(topology: SlowTopology, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(module, "deploy", lambda config, anew: topology)
    monkeypatch.setattr(module, "STARTS_LOOK_S", 0.001)
    groups = {"g": GroupConfig(queue="q", handler="x:handle")}
    config = PxrsConfig(name="t", queues={"q": QueueConfig()}, groups=groups)
    deployment = Deployment(config, "t.toml", "", "")
    deployment.carry_out()
    return deployment


def test_a_handler_that_is_found_missing_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = SlowTopology("starting", "pending", "failed")
    with pytest.raises(HandlerError, match="g-0 cannot start: No module named 'x'"):
        carried_out(topology, monkeypatch)
    assert not topology.noted, "the next `up` starts it again"


def test_who_starts_late_is_waited_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not carried_out(SlowTopology("starting", "running"), monkeypatch).late
    monkeypatch.setattr(module, "STARTS_WAIT_S", 0.01)
    (late,) = carried_out(SlowTopology("pending"), monkeypatch).late
    assert late.startswith("group g: g-0 is pending")
