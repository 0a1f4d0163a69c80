"""A consumer that cannot be asked to take options over: who is dead is not who is out of reach."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from pxrs_ray.actors.coordinator.consumer_replica import ConsumerReplica
from pxrs_ray.actors.coordinator.reconfiguration import take_over
from pxrs_ray.config import GroupConfig


@pytest.mark.parametrize(
    ("answer", "replaced"),
    [
        (True, []),
        (False, ["g-0"]),
        (ActorDiedError(), []),
        (ActorUnavailableError("a link is cut", b"x" * 16), ["g-0"]),
        (TimeoutError(), ["g-0"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_who_does_not_take_it_and_may_live_is_replaced(answer: Any, replaced: list[str]) -> None:
    async def asked(config: GroupConfig) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    remote = SimpleNamespace(remote=asked)
    handle = SimpleNamespace(reconfigure=remote)
    replica = ConsumerReplica("g-0", state="running", handle=handle)
    assert asyncio.run(take_over([replica], GroupConfig(queue="q"))) == replaced
