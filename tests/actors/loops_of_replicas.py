"""Each loop and task that replicas begin, with a fault injected; for `test_every_loop`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer.replica_host import ReplicaHost
from pxrs_ray.actors.buffer.replica_peers import ReplicaPeers
from pxrs_ray.actors.coordinator import replica_controller, replica_placing
from pxrs_ray.actors.coordinator.replica_controller import ReplicaController
from pxrs_ray.replication.leader_effects import AskIsr
from pxrs_ray.replication.placement import InSync, IsrChange, ReplicaSeen
from pxrs_ray.replication.placements import KeepPlacements, Placements
from pxrs_ray.replication.replica_calls import ReplicaAnswer
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.topology.node_seen import NodeSeen
from tests.actors.loops_of_homes import answers
from tests.actors.test_supervision import Fails

DISK, LEADER = "a" * 32, "b" * 32


def _controller(*effects: object) -> Any:
    """Of one slot, led from LEADER, with a follower on DISK."""
    made: Any = object.__new__(ReplicaController)
    placement = SimpleNamespace(
        replicas=(LEADER, DISK), leader=LEADER, life=1, epoch=1, in_sync=lambda disk: None
    )
    left = list(effects)
    made._table = SimpleNamespace(
        placements=SimpleNamespace(slots={0: placement}),
        take_effect=lambda: left.pop() if left else None,
        tick=lambda now_ms: None,
        look=lambda now_ms: None,
        heard=lambda *arguments: None,
        kept=lambda *arguments: None,
        followers=lambda slot: {DISK: False},
    )
    made._supervisor, made._clients = Supervisor("replicas"), {(0, DISK): SimpleNamespace(handle=1)}
    made._lives, made._served, made._ready = {}, {}, {}
    made._opening, made._watched = set(), set()
    made._decided, made._to_keep = asyncio.Event(), ""
    made._put = answers(Fails("", 0))
    made._place_replicas = lambda: None
    return made


def _again(fails: Fails, made: Any, begin: Callable[[], None]) -> Any:
    """Begin it until it has worked: what is done once is begun again by what comes next."""

    async def begun() -> Any:
        while not fails.worked.is_set():
            begin()
            await asyncio.sleep(0.01)
        return made._supervisor.close

    return begun()


async def _placing(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    made._table.tick = lambda now_ms: fails()
    made.keep_on()
    return made._supervisor.close


async def _keeping(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    """Nothing else is decided before it stands: so it is written again."""
    made = _controller(KeepPlacements(Placements()))
    made._put = answers(fails)
    made.keep_on()
    made._carry()
    return made._supervisor.close


async def _watching(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    made._how, made._is_wanted = None, lambda *place: True
    made._node_of = lambda disk: fails()
    made._watch(0, DISK)
    return made._supervisor.close


async def _telling(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    made._look_once = answers(fails)
    return await _again(fails, made, lambda: made._tell_one(0, DISK))


async def _ending(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    patch.setattr(replica_controller.gcs, "kill", answers(fails))
    return await _again(fails, made, lambda: made._end(0, DISK))


async def _sweeping(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    del made._place_replicas
    made._homing = SimpleNamespace(nodes=[NodeSeen("n", "h", LEADER)])
    made._how = SimpleNamespace(replicas=1, replace_after_ms=1, spread_by="")
    made._away = SimpleNamespace(
        see=lambda *a: None, to_note=lambda ms: None, overdue=lambda ms: frozenset()
    )
    made._table.living, made._moves = lambda *a: {}, SimpleNamespace(step=lambda *a: None)
    made._take_step, made._watch = lambda *a: None, lambda *a: None
    made._is_wanted, made._sweep = lambda *a: False, answers(fails)
    patch.setattr(replica_placing, "left_behind", lambda *a: [(0, DISK)])

    def placing() -> None:
        made._swept = set()
        made._place_replicas()

    return await _again(fails, made, placing)


def _answer(life: int = 1, leads: int = 0, missing: tuple[str, ...] = ()) -> ReplicaAnswer:
    return ReplicaAnswer(ReplicaSeen(life, "boot", whole=True), leads, missing, None)


async def _returning(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made, lives = _controller(), iter(range(1, 1_000))
    made._returned = answers(fails)
    answered = lambda: made._answered(0, DISK, 0, _answer(next(lives)))  # noqa: E731
    return await _again(fails, made, answered)


async def _opening(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    made._lives[0, DISK], made._open_missing = 1, answers(fails)

    def answered() -> None:
        made._opening.clear()
        made._answered(0, DISK, 0, _answer(missing=("q",)))

    return await _again(fails, made, answered)


async def _serving(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    made._lives[0, LEADER], made._serve = 1, answers(fails)
    answered = lambda: made._answered(0, LEADER, 0, _answer(leads=1))  # noqa: E731
    return await _again(fails, made, answered)


async def _opening_at_a_follower(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made = _controller()
    made._try_to_open = answers(fails)
    while not fails.worked.is_set():
        await made.open_on(0, SimpleNamespace(queue="q"), make=False)
        await asyncio.sleep(0.01)
    return made._supervisor.close


async def _clock(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made: Any = object.__new__(ReplicaHost)
    made._supervisor, made._loop, made.over = Supervisor("a replica"), None, ""
    made._do = lambda action: fails()
    made.begin()
    return made._supervisor.close


async def _teaching(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made: Any = object.__new__(ReplicaHost)
    made._supervisor = Supervisor("a replica")
    led = SimpleNamespace(placement=SimpleNamespace(isr=()))
    made.replica, made._tell_and_ask = SimpleNamespace(leader=led), answers(fails)
    ask = AskIsr(IsrChange(1, 1, (InSync(DISK, "boot"),)))
    return await _again(fails, made, lambda: made._ask(ask.change))


async def _speaking(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made: Any = ReplicaPeers()
    made.are({DISK: object()}, but=LEADER)

    async def speak(to: str, peer: Any) -> None:
        peer.calls -= 1
        fails()

    made._speak = speak
    return await _again(fails, made, lambda: made.send(DISK, b"said"))


MADE = {
    "placing replicas": _placing,
    "keeping placements": _keeping,
    "a replica's watch": _watching,
    "telling a replica": _telling,
    "ending a replica": _ending,
    "logs left behind": _sweeping,
    "a replica's return": _returning,
    "a replica's logs": _opening,
    "serving from a leader": _serving,
    "a follower's logs": _opening_at_a_follower,
    "a replica's clock": _clock,
    "telling of producers": _teaching,
    "speaking to a replica": _speaking,
}
