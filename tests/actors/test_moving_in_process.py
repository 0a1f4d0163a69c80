"""Moves of buffers beside rounds of homes, and beside drains that come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pxrs_ray.actors.coordinator import coordinator as coordinator_module
from pxrs_ray.actors.coordinator import drain_watch
from pxrs_ray.errors import AlreadyExists, UsageError
from pxrs_ray.topology.node_seen import NodeSeen
from tests.actors.fake_buffers import until
from tests.actors.test_homes_in_process import Cluster, cluster, coordinator, run

__all__ = ["cluster"]


def test_who_moves_a_slot_waits_for_the_round_that_decides_about_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        homing = found._homing
        deciding, may_write, put = asyncio.Event(), asyncio.Event(), homing._put

        async def slow_put(name: str, text: str) -> None:
            deciding.set()
            await may_write.wait()
            await put(name, text)

        homing._put = slow_put
        # Its host is back under another id: a round begins to decide that, and to place it there.
        cluster.nodes[1] = NodeSeen("there-again", "10.0.0.2")
        cluster.fakes[1].faults["ping"] = [ConnectionError("gone")] * 1_000
        await asyncio.wait_for(deciding.wait(), 10)
        cluster.placed.clear()
        holding = asyncio.ensure_future(homing.hold(1))
        await asyncio.sleep(0.05)
        may_write.set()
        try:
            await holding
        except AlreadyExists:
            pass  # the round has it, and alone
        else:
            held = homing.homes.slots[1]
            await asyncio.sleep(0.2)
            assert (homing.homes.slots[1], cluster.placed) == (held, []), "both decide about it"
        cluster.fakes[1].faults.clear()
        await found.shutdown()

    run(scene())


def test_a_drain_that_is_called_off_is_told_no_more(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: set[str] = {"there"}
    monkeypatch.setattr(coordinator_module, "DrainWatch", drain_watch.DrainWatch)
    monkeypatch.setattr(drain_watch, "LOOK_PAUSE_S", 0.02)
    monkeypatch.setattr(drain_watch, "draining_nodes", lambda: set(drained))

    async def scene() -> None:
        found = coordinator(tmp_path)

        async def nowhere(slot: int, wanted: str | None) -> NodeSeen:
            raise UsageError("no other node has room for it")

        await found.ping()
        found._homing.place_for = nowhere  # type: ignore[method-assign]
        await until(lambda: any("cannot leave" in r.text for r in found._moving.reports()))
        drained.clear()
        await until(lambda: not found._moving.reports())
        # Drained again, it is tried again at once, and not after the pause of the former drain.
        drained.add("there")
        await until(lambda: any("cannot leave" in r.text for r in found._moving.reports()))
        await found.shutdown()

    run(scene())
