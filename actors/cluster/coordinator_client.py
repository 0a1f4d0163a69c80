"""`CoordinatorClient`: calls to the coordinator that survive its restarts, from an event loop.

Rules of this file. Every coordinator method that members call is idempotent, so a call whose answer
was lost is repeated until its deadline. A `PxrsError` is an answer and is never retried. A failure
of Ray's (the actor restarts, its node is gone) is no answer, and neither is the word of a
coordinator that has been replaced: the name is looked up again. While names cannot be looked up,
the last known actor is called: it may still live.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ray.exceptions import ActorUnschedulableError, RayActorError, RayTaskError

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.backoff import Backoff
from pxrs_ray.errors import CoordinatorDeposed, DeadlineExceeded, PxrsError
from pxrs_ray.supervision.supervisor import within

FIND_S = 1.0
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 0.5


def answer_of(error: RayTaskError) -> BaseException:
    """The exception that the called method raised."""
    cause = error.cause
    return cause if isinstance(cause, BaseException) else error


class CoordinatorClient:
    """One caller's connection to the coordinator of `topology`, for an event loop."""

    def __init__(self, topology: str) -> None:
        self._name = names.coordinator(topology)
        self._handle: Any = None
        self._in_doubt = True

    async def _known(self, left_s: float) -> Any:
        if self._in_doubt:
            try:
                self._handle = await gcs.find(self._name, min(left_s, FIND_S))
            except DeadlineExceeded:
                if self._handle is None:
                    raise
            else:
                self._in_doubt = False
        return self._handle

    async def call(self, method: str, *arguments: object, timeout_s: float = 30.0) -> Any:
        """Call `method`, again after faults, until it answers.

        Raises what the method raised, or DeadlineExceeded after `timeout_s`.
        """
        end_s = time.monotonic() + timeout_s
        backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        last: BaseException | None = None
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                handle = await self._known(left_s)
                reference = getattr(handle, method).remote(*arguments)
                left_s = max(0.0, end_s - time.monotonic())
                return await within(left_s, reference)
            except RayTaskError as error:
                answer = answer_of(error)
                if isinstance(answer, CoordinatorDeposed):
                    last, self._in_doubt = answer, True
                elif isinstance(answer, PxrsError):
                    raise answer from None
                else:
                    raise
            except (RayActorError, ActorUnschedulableError, ValueError) as error:
                # ValueError is what get_actor raises while no actor has the name.
                last, self._in_doubt = error, True
            except DeadlineExceeded as error:  # Ray's own: nobody knows the name now
                last = error
            except TimeoutError as error:
                last = error
                break
            await asyncio.sleep(min(backoff.failed(), max(0.0, left_s)))
        raise DeadlineExceeded(
            f"the coordinator ({self._name}) did not answer {method} within {timeout_s:g} s: "
            f"{last!r}; see `pxrs doctor`"
        ) from last
