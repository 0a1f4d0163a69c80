"""What becomes of a request whose answer does not come: one policy, however its caller waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    RaySystemError,
    RayTaskError,
)

from pxrs_ray.actors.cluster import blocking_client, coordinator_client, gcs
from pxrs_ray.actors.cluster.actor_process import ALIVE, Whereabouts
from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.coordinator.topology_requests import GetDeployed
from pxrs_ray.errors import (
    CoordinatorDeposed,
    DeadlineExceeded,
    NotFound,
    UnsupportedVersion,
    UsageError,
)

BLIP = ActorUnavailableError("a blip", b"x" * 16)
PLACE = Whereabouts(ALIVE, 7, "n" * 56, "CoordinatorActor")
NEVER = object()


def raised(error: BaseException) -> BaseException:
    """What a call gives whose method raised that."""
    task_error = RayTaskError("answer", "", error, proctitle="t", pid=1, ip="n")
    return task_error.as_instanceof_cause()


class Actor:
    """Answers each call with the next of `script`: a value, an error, or NEVER."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked: list[Any] = []
        self.found = 0
        self.names: list[Any] = []  # what the next lookups give; then the actor

    @property
    def answer(self) -> Actor:
        return self

    @property
    def alive(self) -> Actor:
        return self

    def remote(self, *request: Any) -> Any:
        self.asked.append(request)
        return self.script.pop(0)

    def look_up(self) -> Any:
        self.found += 1
        return self.names.pop(0) if self.names else self


Call = Callable[[Actor, float], Any]


@pytest.fixture(params=["loop", "blocking"])
def call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Makes a request of an actor, from an event loop or blocking."""
    actors: list[Actor] = []

    async def find(name: str, wait_s: float) -> Any:
        return actors[0].look_up()

    async def within(wait_s: float, coming: Any) -> Any:
        if coming is NEVER:
            await asyncio.sleep(wait_s)
            raise TimeoutError
        if isinstance(coming, BaseException):
            raise coming
        return coming

    def get(coming: Any, timeout: float) -> Any:
        if coming is NEVER:
            time.sleep(timeout)
            raise GetTimeoutError
        if isinstance(coming, BaseException):
            raise coming
        return coming

    monkeypatch.setattr(gcs, "find", find)
    monkeypatch.setattr(coordinator_client, "within", within)
    monkeypatch.setattr(blocking_client.ray, "get", get)
    monkeypatch.setattr(blocking_client, "join", lambda: None)
    monkeypatch.setattr(blocking_client, "find_actor", lambda _: actors[0].look_up())
    monkeypatch.setattr(blocking_client, "whereabouts", lambda _: PLACE)
    monkeypatch.setattr(blocking_client, "not_running", lambda name: NotFound(f"no {name!r} runs"))

    def made(actor: Actor, wait_s: float) -> Any:
        actors[:] = [actor]
        if request.param == "blocking":
            return BlockingCoordinatorClient("shop").call(GetDeployed(), wait_s)
        return asyncio.run(CoordinatorClient("shop").call(GetDeployed(), wait_s))

    return made


@pytest.mark.parametrize(
    "fault",
    [
        BLIP,
        ActorDiedError(),
        ActorUnschedulableError("no node"),
        raised(CoordinatorDeposed("a newer one leads")),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_what_is_no_answer_is_asked_again_of_whoever_has_the_name_then(
    call: Call, fault: Exception
) -> None:
    actor = Actor(fault, fault, "heard")
    assert call(actor, 5.0) == "heard"
    assert actor.found == 3
    assert actor.asked == [(GetDeployed(),)] * 3


def test_an_answer_that_is_an_error_is_raised_as_it_is(call: Call) -> None:
    actor = Actor(raised(UsageError("not so")))
    with pytest.raises(UsageError, match=r"^not so$"):
        call(actor, 5.0)
    actor = Actor(raised(DeadlineExceeded("a log is slow to open")))
    with pytest.raises(DeadlineExceeded, match=r"^a log is slow to open$"):
        call(actor, 5.0)
    assert len(actor.asked) == 1


class Older(Actor):
    """A coordinator whose actor has no such method yet."""

    @property
    def answer(self) -> Actor:
        raise AttributeError("'ActorHandle' object has no attribute 'answer'")


MOVED = ModuleNotFoundError("No module named 'pxrs_ray.elsewhere'")


@pytest.mark.parametrize(
    ("actor", "says"),
    [
        (Actor(raised(RaySystemError(MOVED, "Traceback\n...\n"))), "No module named"),
        (Actor(RaySystemError(MOVED, "Traceback\n...\n")), "No module named"),
        (Actor(raised(AttributeError("'Scale' object has no attribute 'count'"))), "'count'"),
        (Actor(raised(TypeError("scale() takes 2 arguments, 3 were given"))), "takes 2 arguments"),
        (Older(), "'ActorHandle' object has no attribute 'answer'"),
    ],
    ids=["request unknown there", "answer unknown here", "field", "values", "method"],
)
def test_a_coordinator_of_other_code_is_named_with_the_remedy_in_one_line(
    call: Call, actor: Actor, says: str
) -> None:
    actor.script = list(actor.script) * 2  # for each way to wait
    with pytest.raises(UnsupportedVersion) as refused:
        call(actor, 5.0)
    told = str(refused.value)
    assert says in told and "run `pxrs restart coordinator -t shop`" in told and "\n" not in told


def test_a_failure_of_ray_itself_is_no_sign_of_other_code(call: Call) -> None:
    with pytest.raises(RaySystemError):
        call(Actor(RaySystemError("the disk of the object store is full")), 5.0)


def test_an_error_that_nobody_raised_on_purpose_is_no_reason_to_ask_again(call: Call) -> None:
    actor = Actor(raised(ZeroDivisionError("a fault of ours")))
    with pytest.raises(ZeroDivisionError):
        call(actor, 5.0)
    assert len(actor.asked) == 1


def test_who_does_not_answer_is_told_at_the_deadline(call: Call) -> None:
    actor = Actor(NEVER)
    began_s = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"did not answer 'get deployed' in 0.2 s"):
        call(actor, 0.2)
    assert 0.15 < time.monotonic() - began_s < 2.0
    assert len(actor.asked) == 1


def test_who_stays_away_is_told_at_the_deadline_with_the_last_fault(call: Call) -> None:
    actor = Actor(*[BLIP] * 100)
    with pytest.raises(DeadlineExceeded, match="a blip"):
        call(actor, 0.3)
    assert 3 < len(actor.asked) < 20, "the pauses grow"


def test_a_member_waits_for_a_coordinator_that_is_not_there_and_a_driver_is_told(
    call: Call, request: pytest.FixtureRequest
) -> None:
    actor = Actor("heard")
    actor.names = [None, None]
    if "blocking" in request.node.callspec.id:
        with pytest.raises(NotFound, match="no 'shop' runs"):
            call(actor, 5.0)
    else:
        assert call(actor, 5.0) == "heard"


def alive(monkeypatch: pytest.MonkeyPatch, actor: Actor, wait_s: float) -> None:
    def get(coming: Any, timeout: float) -> Any:
        if coming is NEVER:
            time.sleep(timeout)
            raise GetTimeoutError
        if isinstance(coming, BaseException):
            raise coming
        return coming

    monkeypatch.setattr(coordinator_client, "ALIVE_WAIT_S", 0.1)
    monkeypatch.setattr(blocking_client.ray, "get", get)
    monkeypatch.setattr(blocking_client, "join", lambda: None)
    monkeypatch.setattr(blocking_client, "find_actor", lambda _: actor.look_up())
    monkeypatch.setattr(blocking_client, "whereabouts", lambda _: PLACE)
    BlockingCoordinatorClient("shop").check_alive(wait_s)


def test_a_process_that_lives_and_is_mute_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    began_s = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"has not answered for 0.1 s: its process \(pid 7"):
        alive(monkeypatch, Actor(NEVER), 5.0)
    assert time.monotonic() - began_s < 2.0


def test_one_that_is_being_started_anew_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = Actor(BLIP, ActorDiedError(), 7)
    alive(monkeypatch, actor, 5.0)
    assert len(actor.asked) == 3
