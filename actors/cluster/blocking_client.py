"""`BlockingCoordinatorClient`: requests to the coordinator from a driver, a job or a notebook.

Rules of this file. It is a `CoordinatorClient` whose every wait blocks the caller's thread. So its
coroutines are over as soon as they are begun: no event loop is needed, and none may run them.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

import ray

from pxrs_ray.actors.cluster.actor_process import Whereabouts, whereabouts
from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.cluster.coordinator_request import Request
from pxrs_ray.actors.cluster.join import join
from pxrs_ray.actors.cluster.named_actors import find_actor, not_running
from pxrs_ray.errors import PxrsError

A = TypeVar("A")
T = TypeVar("T")

# Even who has no time left looks at an answer that is there.
ANSWER_S_MIN = 0.01


class Waited(Generic[T]):
    """What was waited for already: awaiting it is over at once."""

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        return self._value
        yield


class BlockingTransport:
    """For callers that block. An error says at once that a topology does not run."""

    def find(self, name: str, wait_s: float) -> Waited[Any | None]:
        """See `Transport`."""
        join()
        return Waited(find_actor(name))

    def answer(self, coming: Any, wait_s: float) -> Waited[Any]:
        """See `Transport`."""
        return Waited(ray.get(coming, timeout=max(ANSWER_S_MIN, wait_s)))

    def pause(self, seconds: float) -> Waited[None]:
        """See `Transport`."""
        time.sleep(seconds)
        return Waited(None)

    def absent(self, topology: str) -> PxrsError | None:
        """Nobody makes one while the caller waits."""
        return not_running(topology)

    def whereabouts(self, name: str) -> Whereabouts | None:
        """See `Transport`."""
        return whereabouts(name)


class BlockingCoordinatorClient:
    """Makes requests of one topology's coordinator, through its restarts, with a deadline."""

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self._client = CoordinatorClient(topology, BlockingTransport())

    def call(self, request: Request[A], wait_s: float | None = None) -> A:
        """See `CoordinatorClient.call`. Raises NotFound, too, when no such topology runs."""
        return _over(self._client.call(request, wait_s))

    def check_alive(self, wait_s: float) -> None:
        """See `CoordinatorClient.check_alive`. Raises NotFound, too."""
        _over(self._client.check_alive(wait_s))


def _over(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a blocking client has waited for an event loop")
