"""A consumer that cannot be asked to take options over: who is dead is not who is out of reach."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from pxrs_ray.actors.coordinator.consumer_replica import ConsumerReplica
from pxrs_ray.actors.coordinator.reconfiguration import offer
from pxrs_ray.config import GroupConfig
from pxrs_ray.group.taking_over import Offered


@pytest.mark.parametrize(
    ("answer", "offered"),
    [
        (True, Offered.TAKEN),
        (False, Offered.REFUSED),
        (ActorDiedError(), Offered.GONE),
        (ActorUnavailableError("a link is cut", b"x" * 16), Offered.SILENT),
        (TimeoutError(), Offered.SILENT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_came_of_an_offer(answer: Any, offered: Offered) -> None:
    async def asked(config: GroupConfig) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    remote = SimpleNamespace(remote=asked)
    handle = SimpleNamespace(reconfigure=remote)
    replica = ConsumerReplica("g-0", state="running", handle=handle)
    config = GroupConfig(queue="q")
    assert asyncio.run(offer(replica, config)) is offered
    assert (replica.config == config) is (offered is Offered.TAKEN)
