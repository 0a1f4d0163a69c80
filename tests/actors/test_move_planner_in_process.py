"""Plans of moves and drains, as a coordinator makes them from what everybody says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pxrs_ray.actors.cluster import node_watch
from pxrs_ray.actors.coordinator import coordinator as coordinator_module
from pxrs_ray.actors.coordinator import move_planner
from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.topology.move_plan import COPY_BYTES_PER_S
from tests.actors.test_homes_in_process import Cluster, cluster, coordinator, run
from tests.actors.test_placement_in_process import end_of
from tests.cli.pictures import buffer_stats

__all__ = ["cluster"]
GB = 1_000_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_planner, "LOOK_S", 0.05)
    monkeypatch.setattr(node_watch, "ANEW_WAIT_S", 0.5)


def test_a_drain_is_planned_with_sizes_rates_room_and_consumers(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        looks = iter([replace(buffer_stats(), bytes_kept=2 * GB, bytes_in=n) for n in (0, 10**6)])
        answer = cluster.fakes[1].answer

        async def answered(method: str, *arguments: object) -> object:
            return next(looks) if method == "stats" else await answer(method, *arguments)

        cluster.fakes[1].answer = answered  # type: ignore[method-assign]
        plan = await found.plan_drain("10.0.0.2", 60.0, COPY_BYTES_PER_S)
        (move,) = plan.moves
        assert (plan.host, plan.node, plan.topology) == ("10.0.0.2", "there", "shop")
        assert (move.buffer, move.source, move.target) == (1, "10.0.0.2", "10.0.0.1")
        assert move.bytes == 2 * GB and move.free_bytes is not None and move.free_bytes > 0
        # A million bytes in the twentieth of a second or more that was between the looks.
        assert move.written_per_s is not None and 1e5 < move.written_per_s <= 2e7
        assert move.estimate is not None and move.estimate.copy_s >= 40.0
        assert plan.notes == ()
        await found.shutdown()

    run(scene())


def test_what_cannot_be_is_refused_by_name(cluster: Cluster, tmp_path: Path) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        with pytest.raises(NotFound, match=r"no living node is called '10\.0\.0\.9'"):
            await found.plan_drain("10.0.0.9", 60.0, COPY_BYTES_PER_S)
        with pytest.raises(UsageError, match=r"registry of shop is a file on host 10\.0\.0\.1"):
            await found.plan_drain("10.0.0.1", 60.0, COPY_BYTES_PER_S)
        with pytest.raises(NotFound, match="there is no buffer 7"):
            await found.plan_move(7, None, COPY_BYTES_PER_S)
        cluster.nodes.pop(0)
        with pytest.raises(UsageError, match="last node that stays"):
            await found.plan_drain("10.0.0.2", 60.0, COPY_BYTES_PER_S)
        await found.shutdown()

    run(scene())


def test_a_move_is_planned_and_tells_what_is_in_memory(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a Ray it would be in an actor of its own.
    monkeypatch.setattr(coordinator_module, "open_store_for", lambda _: MemoryStore())

    async def scene() -> None:
        found = coordinator(tmp_path, durability="memory", store="memory:")
        await found.ping()
        cluster.fakes[1].answers["stats"] = buffer_stats()
        cluster.fakes[1].answers["ends"] = {1: end_of(30)}
        plan = await found.plan_move(1, "10.0.0.1", COPY_BYTES_PER_S)
        assert plan.host == "" and [move.target for move in plan.moves] == ["10.0.0.1"]
        assert len([told for told in plan.cannot if "the 30 of buffer 1 are lost" in told]) == 2
        here = await found.plan_drain("10.0.0.1", 60.0, COPY_BYTES_PER_S)
        assert "in the memory of its coordinator" in here.cannot[0]
        await found.shutdown()

    run(scene())


def test_a_node_that_does_not_tell_now_is_as_it_was(cluster: Cluster, tmp_path: Path) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        cluster.disks.clear()
        plan = await found.plan_move(0, "10.0.0.2", COPY_BYTES_PER_S)
        assert plan.moves[0].target == "10.0.0.2"
        assert found._nodes.has_looked("there")
        await found.shutdown()

    run(scene())
