"""`CoordinatorClient`: requests to the coordinator that survive its restarts.

Rules of this file. Every request is idempotent, so one whose answer was lost is repeated until its
deadline. A `PxrsError` is an answer and is never retried. Where one side cannot understand the
other, for it runs other code, that is UnsupportedVersion, which names the remedy. A failure of
Ray's (the actor restarts, its node is gone) is no answer, and neither is the word of a coordinator
that has been replaced: the name is looked up again. While names cannot be looked up, the last known
actor is called: it may still live. This is the only place that decides so, for event loops and for
callers that block: how to wait is the transport's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ray.exceptions import (
    ActorUnschedulableError,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
)

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.actor_process import ALIVE, Whereabouts
from pxrs_ray.actors.cluster.coordinator_request import Request
from pxrs_ray.backoff import Backoff
from pxrs_ray.errors import CoordinatorDeposed, DeadlineExceeded, PxrsError, UnsupportedVersion
from pxrs_ray.supervision.restart_rules import last_line
from pxrs_ray.supervision.supervisor import within

A = TypeVar("A")

FIND_S = 1.0
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 0.5
# Whoever lives answers that it does in milliseconds. Who waits little gives half of it to that:
# `pxrs doctor` names a frozen coordinator within 3 s, with all that it asks besides.
ALIVE_WAIT_S = 2.0
# What a coordinator's code raises for a request whose form it does not know: it looks for a field
# or a class that it has not, or calls with too many values.
_OTHER_FORM = (AttributeError, ImportError, TypeError)


def answer_of(error: RayTaskError) -> BaseException:
    """The exception that the called method raised."""
    cause = error.cause
    return cause if isinstance(cause, BaseException) else error


def other_code(error: BaseException) -> BaseException | None:
    """What shows that a coordinator and its caller run different code; None where nothing does.

    Either the request or the answer was of a class that the other side has not, or the request has
    not the form that the coordinator expects.
    """
    cause = answer_of(error) if isinstance(error, RayTaskError) else error
    if isinstance(cause, RaySystemError):
        unread = getattr(cause, "client_exc", None)
        return unread if isinstance(unread, Exception) else None
    return cause if isinstance(cause, _OTHER_FORM) else None


class Transport(Protocol):
    """How a client finds an actor, hears it, and waits."""

    def find(self, name: str, wait_s: float) -> Awaitable[Any | None]:
        """The actor of that name; None where there is none. Raises DeadlineExceeded."""

    def answer(self, coming: Any, wait_s: float) -> Awaitable[Any]:
        """What a call gives. Raises TimeoutError after `wait_s`."""

    def pause(self, seconds: float) -> Awaitable[None]:
        """Wait for so long."""

    def absent(self, topology: str) -> PxrsError | None:
        """What to raise when there is no coordinator; None: one is on its way, wait for it."""

    def whereabouts(self, name: str) -> Whereabouts | None:
        """Where the actor is, to tell people; None where Ray is not to be asked."""


class LoopTransport:
    """For members, on an event loop. They outlast any coordinator, so they wait for the next."""

    async def find(self, name: str, wait_s: float) -> Any | None:
        """See `Transport`."""
        return await gcs.find(name, wait_s)

    async def answer(self, coming: Any, wait_s: float) -> Any:
        """See `Transport`."""
        return await within(wait_s, coming)

    async def pause(self, seconds: float) -> None:
        """See `Transport`."""
        await asyncio.sleep(seconds)

    def absent(self, topology: str) -> PxrsError | None:
        """A coordinator that is not there is made again."""

    def whereabouts(self, name: str) -> Whereabouts | None:
        """Nobody looks, and a member has no time to ask."""


class _Unanswered(Exception):
    """A call was not answered; `late` when it was made and its time is over."""

    def __init__(self, late: bool, why: object) -> None:
        super().__init__(why)
        self.late = late


class CoordinatorClient:
    """One caller's connection to the coordinator of `topology`."""

    def __init__(self, topology: str, transport: Transport | None = None) -> None:
        self.topology = topology
        self._name = names.coordinator(topology)
        self._transport = LoopTransport() if transport is None else transport
        self._handle: Any = None
        self._in_doubt = True

    async def call(self, request: Request[A], wait_s: float | None = None) -> A:
        """Make a request, again after faults, until it is answered.

        Raises what the coordinator raised, or DeadlineExceeded after `wait_s` (the request's own
        deadline where none is given).
        """
        wait_s = request.wait_s if wait_s is None else wait_s
        end_s = time.monotonic() + wait_s
        backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            try:
                answer: A = await self._ask(lambda actor: actor.answer.remote(request), end_s)
            except _Unanswered as fault:
                left_s = end_s - time.monotonic()
                if fault.late or left_s <= 0:
                    raise self._too_late(request, wait_s, fault) from fault.__cause__
                await self._transport.pause(min(backoff.failed(), left_s))
            else:
                return answer

    async def check_alive(self, wait_s: float) -> None:
        """Return when the coordinator's process answers, whatever it is at.

        One that is being started anew is waited for. Raises DeadlineExceeded that names a process
        which lives and does not answer.
        """
        end_s = time.monotonic() + wait_s
        look_s = min(wait_s / 2, ALIVE_WAIT_S)
        while True:
            try:
                await self._ask(lambda actor: actor.alive.remote(), time.monotonic() + look_s)
            except _Unanswered as fault:
                place = self._transport.whereabouts(self._name)
                lives = place is not None and place.state == ALIVE
                if (lives and fault.late) or time.monotonic() >= end_s:
                    raise DeadlineExceeded(self._told_mute(place, look_s)) from None
                await self._transport.pause(RETRY_FIRST_S)
            else:
                return

    async def _ask(self, make: Callable[[Any], Any], end_s: float) -> Any:
        """Make a call once. Raises what the method raised, or _Unanswered."""
        try:
            actor = await self._known(end_s - time.monotonic())
            coming = make(actor)
            return await self._transport.answer(coming, max(0.0, end_s - time.monotonic()))
        except RayTaskError as error:
            answer = answer_of(error)
            if isinstance(answer, CoordinatorDeposed):
                self._in_doubt = True
                raise _Unanswered(False, answer) from answer
            if isinstance(answer, PxrsError):
                raise answer from None
            self._check_code(error)
            raise
        except (RayActorError, ActorUnschedulableError) as error:
            self._in_doubt = True
            raise _Unanswered(False, error) from error
        except DeadlineExceeded as error:  # Ray's own: nobody knows the name now
            raise _Unanswered(False, error) from error
        except TimeoutError as error:
            raise _Unanswered(True, "it was asked") from error
        except (RaySystemError, AttributeError) as error:
            self._check_code(error)
            raise

    def _check_code(self, error: RayError | AttributeError) -> None:
        """Raise UnsupportedVersion where the coordinator's code is not ours."""
        if (shown := other_code(error)) is not None:
            raise UnsupportedVersion(
                f"the coordinator of {self.topology} runs other code than this process "
                f"({type(shown).__name__}: {last_line(shown)}): run `pxrs restart coordinator "
                f"-t {self.topology}`, then try again"
            ) from error

    async def _known(self, left_s: float) -> Any:
        if self._in_doubt:
            try:
                found = await self._transport.find(self._name, max(0.0, min(left_s, FIND_S)))
            except DeadlineExceeded:
                if self._handle is None:
                    raise
                return self._handle
            if found is None:
                error = self._transport.absent(self.topology)
                raise error if error is not None else _Unanswered(False, "no actor has its name")
            self._handle, self._in_doubt = found, False
        return self._handle

    def _too_late(self, request: Request[Any], wait_s: float, why: _Unanswered) -> DeadlineExceeded:
        place = self._transport.whereabouts(self._name)
        where = "" if place is None else f" ({place})"
        return DeadlineExceeded(
            f"the coordinator of {self.topology}{where} did not answer {request.told()!r} in "
            f"{wait_s:g} s: {why}; `pxrs doctor` says whether it is frozen, away or waits"
        )

    def _told_mute(self, place: Whereabouts | None, wait_s: float) -> str:
        where = "its process" if place is None else f"its process (pid {place.pid}"
        where += "" if place is None else f" on node {place.node[:8]}, {place.state.lower()})"
        return (
            f"the coordinator of {self.topology} has not answered for {wait_s:g} s: {where} lives "
            "and is frozen, or is being started; work goes on, commits and takeovers wait; a "
            "frozen one is ended and started anew by its node within half a lease, and at once "
            f"by `pxrs restart coordinator -t {self.topology}`"
        )
