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
    class Replica:
        def __init__(self, epoch: int) -> None:
            self.leads = self
            self.epoch = epoch

        def remote(self) -> int:
            return self.epoch

    replicas = {"a": Replica(3), "b": Replica(5), "c": Replica(0)}
    monkeypatch.setattr(replica_client, "actors_named", lambda _: list(replicas))
    monkeypatch.setattr(replica_client, "find_actor", replicas.get)
    monkeypatch.setattr(replica_client.ray, "wait", lambda asked, timeout: (asked, []))
    monkeypatch.setattr(replica_client.ray, "get", lambda answer: answer)
    assert replica_client.leading_replica("t", 0) is replicas["b"]
    replicas["a"].epoch = replicas["b"].epoch = 0
    del replicas["b"], replicas["c"]
    assert replica_client.leading_replica("t", 0) is None
