"""`CoordinatorClient`: requests to the coordinator that survive its restarts.

Rules of this file. `RequestTries` says whom to ask, when again, and when to give up; this carries
it, and tells what Ray's errors mean. A `PxrsError` is an answer and is never retried. Where one
side cannot understand the other, for it runs other code, that is UnsupportedVersion, which names
the remedy. A failure of Ray's (the actor restarts, its node is gone) is no answer. This is the
same for event loops and for callers that block: how to wait is the transport's.
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
from pxrs_ray.errors import CoordinatorDeposed, DeadlineExceeded, PxrsError, UnsupportedVersion
from pxrs_ray.supervision.request_tries import (
    AliveCheck,
    KnownCoordinator,
    LookUp,
    Make,
    Pause,
    RequestTries,
    Unheard,
)
from pxrs_ray.supervision.restart_rules import last_line
from pxrs_ray.supervision.supervisor import within

A = TypeVar("A")

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


# What a try has led to where it was not answered.
_NO_ANSWER = object()


class CoordinatorClient:
    """One caller's connection to the coordinator of `topology`."""

    def __init__(self, topology: str, transport: Transport | None = None) -> None:
        self.topology = topology
        self._name = names.coordinator(topology)
        self._transport = LoopTransport() if transport is None else transport
        self._known = KnownCoordinator()

    async def call(self, request: Request[A], wait_s: float | None = None) -> A:
        """Make a request, again after faults, until it is answered.

        Raises what the coordinator raised, or DeadlineExceeded after `wait_s` (the request's own
        deadline where none is given).
        """
        wait_s = request.wait_s if wait_s is None else wait_s
        tries = RequestTries(self._known, time.monotonic(), wait_s)
        while True:
            found = tries.next(time.monotonic())
            if isinstance(found, Unheard):
                why = found.why
                cause = why if isinstance(why, BaseException) else None
                raise self._too_late(request, wait_s, why) from cause
            if isinstance(found, Pause):
                await self._transport.pause(found.wait_s)
                continue
            answer = await self._try(tries, found, lambda actor: actor.answer.remote(request))
            if answer is not _NO_ANSWER:
                heard: A = answer
                return heard

    async def check_alive(self, wait_s: float) -> None:
        """Return when the coordinator's process answers, whatever it is at.

        One that is being started anew is waited for. Raises DeadlineExceeded that names a process
        which lives and does not answer.
        """
        check = AliveCheck(time.monotonic(), wait_s, ALIVE_WAIT_S)
        while True:
            unanswered = await self._look(check.look_s)
            if unanswered is None:
                return
            place = self._transport.whereabouts(self._name)
            lives = place is not None and place.state == ALIVE
            after = check.after(unanswered, lives, time.monotonic())
            if isinstance(after, Unheard):
                raise DeadlineExceeded(self._told_mute(place, check.look_s))
            await self._transport.pause(after.wait_s)

    async def _look(self, wait_s: float) -> Unheard | None:
        """Ask once whether the process is alive; what kept it from answering, if anything did."""
        tries = RequestTries(self._known, time.monotonic(), wait_s)
        while True:
            found = tries.next(time.monotonic())
            if isinstance(found, Unheard):
                return found
            if isinstance(found, Pause):
                return Unheard("not reached", late=False)
            if await self._try(tries, found, lambda actor: actor.alive.remote()) is not _NO_ANSWER:
                return None

    async def _try(self, tries: RequestTries, do: LookUp | Make, make: Callable[[Any], Any]) -> Any:
        """Look the name up, or make the call; the answer, or _NO_ANSWER where `tries` goes on.

        Raises what the method raised.
        """
        try:
            if isinstance(do, LookUp):
                found = await self._transport.find(self._name, do.wait_s)
                error = self._transport.absent(self.topology) if found is None else None
                if error is not None:
                    raise error
                tries.found(found)
                return _NO_ANSWER
            return await self._transport.answer(make(do.actor), do.wait_s)
        except RayTaskError as error:
            answer = answer_of(error)
            if isinstance(answer, CoordinatorDeposed):
                tries.deposed(answer)
            elif isinstance(answer, PxrsError):
                raise answer from None
            else:
                self._check_code(error)
                raise
        except (RayActorError, ActorUnschedulableError) as error:
            tries.unreached(error)
        except DeadlineExceeded as error:
            if isinstance(do, LookUp):  # Ray's own: nobody knows the name now
                tries.names_away(error)
            else:
                tries.unreached(error)
        except TimeoutError:
            tries.late()
        except (RaySystemError, AttributeError) as error:
            self._check_code(error)
            raise
        return _NO_ANSWER

    def _check_code(self, error: RayError | AttributeError) -> None:
        """Raise UnsupportedVersion where the coordinator's code is not ours."""
        if (shown := other_code(error)) is not None:
            raise UnsupportedVersion(
                f"the coordinator of {self.topology} runs other code than this process "
                f"({type(shown).__name__}: {last_line(shown)}): run `pxrs restart coordinator "
                f"-t {self.topology}`, then try again"
            ) from error

    def _too_late(self, request: Request[Any], wait_s: float, why: object) -> DeadlineExceeded:
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
