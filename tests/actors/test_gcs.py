"""A GCS that hangs: nobody's loop waits for it, and no thread that others need."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RpcError

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.cluster.gcs import GcsCalls
from pxrs_ray.actors.coordinator import drain_watch
from pxrs_ray.actors.coordinator.topology_requests import GetDeployed
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.supervision import request_tries
from pxrs_ray.supervision.supervisor import off_loop
from tests.actors.in_process import until
from tests.actors.programs import told_by


class Hanging:
    """What answers when it is let go."""

    def __init__(self) -> None:
        self.thawed = threading.Event()
        self.calls = 0

    def __call__(self, *arguments: Any, **options: Any) -> str:
        self.calls += 1
        self.thawed.wait(20)
        return "answered"


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


@pytest.mark.ray
@pytest.mark.slow
def test_everything_but_new_processes_goes_on_while_the_gcs_stands_still() -> None:
    told = told_by("frozen_gcs")
    assert told["takeover_s"] < 3.0, "a killed consumer is taken over from within its lease"
    assert told["committed"] > 100 and told["status_longest_s"] < 3
    assert told["problem"].startswith("gcs: away for ")
    assert told["healed"] and told["processed"] == told["sent"] and told["epochs_of_two"] == 0


def test_one_stuck_call_of_a_kind_holds_up_its_kind_alone() -> None:
    async def main() -> None:
        calls, hanging = GcsCalls(), Hanging()
        began_s = time.monotonic()
        asking = [calls.ask("find", hanging, 0.3) for _ in range(50)]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(answer, DeadlineExceeded) for answer in answers)
        assert hanging.calls == 1 and time.monotonic() - began_s < 2
        # Nobody else's threads are used up, nor those of other kinds.
        assert await calls.ask("list", lambda: 7, 5.0) == 7
        await asyncio.gather(*(off_loop(time.sleep, 0.01) for _ in range(50)))
        hanging.thawed.set()
        assert await calls.ask("find", hanging, 5.0) == "answered"
        assert calls.away_s() is None

    run(main())


def test_it_tells_for_how_long_the_gcs_has_been_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        hanging = Hanging()
        assert gcs.reports() == []
        with pytest.raises(DeadlineExceeded):
            await gcs.ask("drains", hanging, 0.1)
        await asyncio.sleep(1.0)
        (problem,) = gcs.reports()
        assert problem.text.startswith("gcs: away for 1 s")
        hanging.thawed.set()
        await until(lambda: gcs.reports() == [])

    run(main())


def test_what_ray_says_of_a_gcs_that_is_down_is_no_answer() -> None:
    def down() -> None:
        raise RpcError("unavailable", rpc_code=14)

    def nobody() -> None:
        raise ValueError("no actor of that name")

    async def main() -> None:
        calls = GcsCalls()
        with pytest.raises(DeadlineExceeded):
            await calls.ask("find", down)
        with pytest.raises(ValueError):
            await calls.ask("find", nobody)
        assert calls.away_s() is None

    run(main())


def test_a_link_calls_who_it_knew_while_nobody_can_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.exceptions import ActorUnavailableError

    hanging, fails = Hanging(), [True]

    class Reply:
        def __await__(self) -> Any:
            if fails.pop():
                raise ActorUnavailableError("a blip", b"x" * 16)
            return "heard"
            yield

    known = SimpleNamespace(answer=SimpleNamespace(remote=lambda *_: _awaits(Reply())))

    async def main() -> None:
        there = CoordinatorClient("t")
        there._known.actor, there._known.in_doubt = known, False
        fails.append(False)
        fails.reverse()
        monkeypatch.setattr(request_tries, "FIND_S", 0.1)
        monkeypatch.setattr(gcs.ray, "get_actor", hanging)
        assert await there.call(GetDeployed(), 5.0) == "heard"
        assert hanging.calls == 1
        hanging.thawed.set()

    run(main())


async def _awaits(reply: Any) -> Any:
    return await reply


def test_the_watch_for_drained_nodes_freezes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging()
    monkeypatch.setattr(drain_watch, "draining_nodes", partial(hanging))
    monkeypatch.setattr(drain_watch, "LOOK_PAUSE_S", 0.01)

    async def main() -> None:
        watch = drain_watch.DrainWatch(list)
        await until(lambda: hanging.calls)
        began_s = time.monotonic()
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert time.monotonic() - began_s < 2
        watch.close()
        hanging.thawed.set()

    run(main())
