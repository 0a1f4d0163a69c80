"""A number that an operator sets while the load's own change waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.coordinator.autoscaler import Autoscaler
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.scaling import Advice, Scaler

ADVISED = 3
RUNNING = 1


class WaitingReplicas:
    """A group of one consumer, where another change is on; notes how many are wanted after it."""

    def __init__(self) -> None:
        self.spec = SimpleNamespace(queue="q", partitions=0)
        self.supervisor = None
        self.replicas = {"c1": SimpleNamespace(state="running")}
        self.turn = asyncio.Event()
        self.wanted: list[int] = []

    async def scale(self, choose: Callable[[], int]) -> None:
        await self.turn.wait()
        self.wanted.append(choose())


@pytest.mark.parametrize(("pinned", "wanted"), [(None, ADVISED), (5, RUNNING)])
def test_what_the_load_said_before_does_not_undo_a_scale_by_hand(
    pinned: int | None, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scaler, "advise", lambda *_: Advice(ADVISED, "the load grows"))

    async def ends(queue: str) -> dict[int, Any]:
        return {}

    async def scene() -> None:
        replicas = WaitingReplicas()
        host = SimpleNamespace(group="g", core=SimpleNamespace(state=SimpleNamespace(rows=())))
        pool = SimpleNamespace(ends=ends)
        scaler: Any = Autoscaler(replicas, host, pool)  # type: ignore[arg-type]
        scaler.configure(ScalingConfig(consumers_max=8))
        look = asyncio.ensure_future(scaler._look())
        await asyncio.sleep(0.01)
        assert not look.done()
        if pinned is not None:
            scaler.pin(pinned)
        replicas.turn.set()
        await look
        assert replicas.wanted == [wanted]
        scaler.close()

    asyncio.run(scene())
