"""Who calls a replica that does not lead looks for the one that does."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.actors.buffer import buffer_clients, replica_client
from pxrs_ray.actors.buffer.answer_poll import AnswerPoll
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.errors import BufferAway, NotLeading


def test_a_replica_that_does_not_lead_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, leads = object(), object()
    monkeypatch.setattr(buffer_clients, "find_buffer", lambda *_: leads)
    clients = BufferClients("t", {0: before}, AnswerPoll())
    clients.failed(0, BufferAway("the line to the buffer broke"))
    assert clients.of(0).handle is before, "whoever is there may be the same"
    clients.failed(0, NotLeading("another replica of buffer 0 leads"))
    assert clients.of(0).handle is leads


def test_a_buffer_of_one_home_is_found_by_its_name_and_nobody_else_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = object()

    def refuse(*_: Any) -> Any:
        raise AssertionError("no replicas are looked for")

    monkeypatch.setattr(buffer_clients, "find_actor", lambda _: one)
    monkeypatch.setattr(buffer_clients, "leading_replica", refuse)
    assert buffer_clients.find_buffer("t", 0) is one


def test_of_several_that_take_themselves_for_leaders_the_newest_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = {"a": Replica(3), "b": Replica(5), "c": Replica(0)}
    _known(monkeypatch, replicas)
    assert replica_client.leading_replica("t", 0) is replicas["b"]
    replicas["a"].epoch = replicas["b"].epoch = 0
    assert replica_client.leading_replica("t", 0) is None


def test_whoever_begins_to_lead_is_found_as_soon_as_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = {"a": Replica(0), "b": Replica(0, soon=7)}
    _known(monkeypatch, replicas)
    assert replica_client.leading_replica("t", 0) is replicas["b"]
    assert len(replicas["b"].asked_ms) == 2 and 0 < replicas["b"].asked_ms[1] <= 250


class Replica:
    """As Ray's handle: it leads under `epoch`, or `soon`, to who waits for that."""

    def __init__(self, epoch: int, soon: int = 0) -> None:
        self.leads = self
        self.epoch, self.soon = epoch, soon
        self.asked_ms: list[int] = []

    def remote(self, wait_ms: int = 0) -> tuple[Replica, int]:
        self.asked_ms.append(wait_ms)
        return self, self.soon if wait_ms else self.epoch


def _known(monkeypatch: pytest.MonkeyPatch, replicas: dict[str, Replica]) -> None:
    monkeypatch.setattr(replica_client, "actors_named", lambda _: list(replicas))
    monkeypatch.setattr(replica_client, "find_actor", replicas.get)
    monkeypatch.setattr(replica_client.ray, "wait", lambda asked, timeout: (asked, []))
    monkeypatch.setattr(replica_client.ray, "get", lambda answer: answer[1])
