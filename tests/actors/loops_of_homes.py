"""Each loop and task that homes begin, with a fault injected; for `test_every_loop`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.cluster import node_watch
from pxrs_ray.actors.coordinator import buffer_moves, home_controller, leadership
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.topology.disk_survey import Asked, Looked
from pxrs_ray.topology.homes import Home, Homes
from pxrs_ray.topology.node_seen import NodeSeen
from tests.actors.test_supervision import Fails


def answers(fails: Fails) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A method that fails as it is told, and then answers None."""

    async def call(*arguments: Any, **named: Any) -> Any:
        fails()

    return call


async def _rounds(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made: Any = object.__new__(home_controller.HomeController)
    made._supervisor, made.round = Supervisor("homes"), answers(fails)
    made._kept_on = False
    made.rounds = SimpleNamespace(is_due=lambda: True)
    made.keep_on()
    return made._supervisor.close


async def _placing(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made: Any = object.__new__(home_controller.HomeController)
    made._supervisor, made._placing = Supervisor("homes"), {}
    made.rounds = SimpleNamespace(troubles={}, placed=lambda slot: None)
    made._pool = SimpleNamespace(place=answers(fails))
    while not fails.worked.is_set():
        if not made._placing:
            made._begin_placing(0, None)
        await asyncio.sleep(0)
    return made._supervisor.close


async def _writing_down(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made: Any = object.__new__(home_controller.HomeController)
    made._supervisor, made._writing = Supervisor("homes"), asyncio.Lock()
    made.rounds = SimpleNamespace(homes=Homes(), kept=lambda homes: None)
    made._put = answers(fails)
    while not fails.worked.is_set():
        await made.led(0, Home("disk", "node", "host"))
        await asyncio.sleep(0.01)
    return made._supervisor.close


def _leading(patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(leadership.Leadership, "__abstractmethods__", frozenset())
    made: Any = object.__new__(leadership.Leadership)
    made._config = SimpleNamespace(name="t", lease_ttl_seconds=0.01)
    made._pool = SimpleNamespace(known_ends=SimpleNamespace(keep_for_ever=answers(Fails("", 0))))
    made._put_document, made._queue_ids = None, None
    made._confirm_leading = answers(Fails("", 0))
    return made


async def _confirming(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _leading(patch)
    made._confirm_leading = answers(fails)
    return _all_cancelled(made._keep_up())


async def _known_ends(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _leading(patch)
    made._pool.known_ends.keep_for_ever = answers(fails)
    return _all_cancelled(made._keep_up())


def _all_cancelled(tasks: list[asyncio.Task[None]]) -> Callable[[], None]:
    def end() -> None:
        for task in tasks:
            task.cancel()

    return end


def _moving() -> Any:
    pool: Any = SimpleNamespace(count=1)
    return buffer_moves.BufferMoves(SimpleNamespace(at_home_on=lambda nodes: [0]), pool, "")  # type: ignore[arg-type]


async def _bringing_away(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _moving()
    made.move = answers(fails)
    while not fails.worked.is_set():
        made.leave_nodes(["n"])
        await asyncio.sleep(0)
    return made.close


async def _after_a_move(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made, done = _moving(), answers(Fails("", 0))
    patch.setattr(buffer_moves, "forget_on", lambda *arguments: fails() or done())
    home = Home("d", "n", "10.0.0.1")
    while not fails.worked.is_set():
        await asyncio.wait({made._supervisor.once("emptying 10.0.0.1", made._forget(0, home, []))})
    return made.close


async def _looking_at_a_node(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(node_watch, "node_here", lambda: "here")
    patch.setattr(node_watch, "look_here", lambda asked: fails() or Looked("d"))
    patch.setattr(node_watch, "AGAIN_S", 0.0)
    watch = node_watch.NodeWatch(Asked("t", "", "", "", False))
    while not fails.worked.is_set():
        await watch.looked([NodeSeen("here", "10.0.0.1")])
    return lambda: watch.close()


MADE = {
    "rounds of homes": _rounds,
    "placing a buffer": _placing,
    "the homes of leaders": _writing_down,
    "buffers' leases": _confirming,
    "known ends": _known_ends,
    "leaving drained nodes": _bringing_away,
    "after a move": _after_a_move,
    "a look at a node": _looking_at_a_node,
}
