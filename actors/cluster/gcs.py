"""`GcsCalls`: calls to Ray's GCS, the one service of a cluster, from an event loop.

Rules of this file. Ray's calls for nodes, named actors, kills and new actors block until the GCS
answers: a minute where it is away. An event loop that made one would stall with everything on it.
So each call is made here, on one of a few threads that do nothing else; the caller waits until its
deadline at most, and the loop never waits. One call of each kind is under way at a time: a call
that hangs holds up its own kind alone, and no other thread. How calls end shows how long the GCS
has been away. Running actors go on meanwhile, and so do their callers. A tidy test refuses these
calls on event loops everywhere else.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from pxrs_ray.actors.cluster.named_actors import find_actor
from pxrs_ray.actors.cluster.thread_pool import ThreadPool
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.supervision.registry_watch import RegistryWatch
from pxrs_ray.supervision.supervisor import off_loop

T = TypeVar("T")

# It answers in milliseconds. A busy one takes a while; who waits for longer waits for one away.
ANSWER_S = 5.0
# To make an actor takes as long as it takes: until then nobody else can make one either.
MAKE_S = 600.0
NOTICE_MS = 2_000
# As many as there are kinds of calls: a thread is there for each, also when all others are stuck.
KINDS = ("find", "list", "drains", "nodes", "probe", "make", "kill", "read", "end", "cancel")


class _Threads(Executor):
    """One thread for each kind of call, all daemons: a call that never returns keeps no process
    alive."""

    def __init__(self) -> None:
        self._pool = ThreadPool("pxrs-gcs", len(KINDS))

    def submit(self, fn: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        future: Future[T] = Future()

        def make() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*arguments, **options))
            except BaseException as error:  # noqa: BLE001 - the asker's, whatever it is
                future.set_exception(error)

        self._pool.submit(make)
        return future


class GcsCalls:
    """The calls of one event loop."""

    def __init__(self) -> None:
        self._threads = _Threads()
        self._under_way: dict[str, asyncio.Future[Any]] = {}
        self._watch = RegistryWatch()

    async def ask(self, kind: str, call: Callable[[], T], wait_s: float = ANSWER_S) -> T:
        """Make `call` on a thread. Raises what it raised, or DeadlineExceeded after `wait_s`.

        A call that has begun goes on after that, and the next of its kind waits for its end.
        """
        assert kind in KINDS
        end_s = time.monotonic() + wait_s
        while (before := self._under_way.get(kind)) is not None:
            await self._wait(before, end_s, kind, wait_s)
        coming = asyncio.ensure_future(off_loop(call, threads=self._threads))
        self._under_way[kind] = coming
        self._watch.asked(monotonic_ms())
        coming.add_done_callback(partial(self._over, kind))
        await self._wait(coming, end_s, kind, wait_s)
        try:
            return coming.result()
        except RayError as error:
            if isinstance(error, RayTaskError | RayActorError):
                raise
            # As when the GCS is down and not only mute.
            self._watch.failed(monotonic_ms())
            raise DeadlineExceeded(f"Ray's GCS ({kind}): {error}") from error

    async def _wait(
        self, coming: asyncio.Future[Any], end_s: float, kind: str, wait_s: float
    ) -> None:
        # As the last round of several that waited for one: it is there to be looked at.
        done, _ = await asyncio.wait([coming], timeout=max(0.0, end_s - time.monotonic()))
        if not done:
            self._watch.failed(monotonic_ms())
            raise DeadlineExceeded(f"Ray's GCS has not answered ({kind}) in {wait_s:g} s")

    def _over(self, kind: str, coming: asyncio.Future[Any]) -> None:
        if self._under_way.get(kind) is coming:
            del self._under_way[kind]
        if not coming.cancelled():
            coming.exception()  # whoever asked may have gone
            self._watch.answered()

    def away_s(self) -> float | None:
        """For how long the GCS has been away; None while it is not known to be."""
        away_ms = self._watch.away_ms(monotonic_ms(), NOTICE_MS)
        return None if away_ms is None else away_ms / 1_000


_calls: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, GcsCalls] = weakref.WeakKeyDictionary()


def calls_here() -> GcsCalls:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _calls.get(loop)
    if found is None:
        found = _calls[loop] = GcsCalls()
    return found


async def ask(kind: str, call: Callable[[], T], wait_s: float = ANSWER_S) -> T:
    """See `GcsCalls.ask`."""
    return await calls_here().ask(kind, call, wait_s)


async def find(name: str, wait_s: float = ANSWER_S) -> Any | None:
    """The handle of a named actor of ours; None where nobody has the name."""
    return await ask("find", partial(find_actor, name), wait_s)


async def kill(handle: Any) -> None:
    """End an actor, if there is one, however long that takes: run it in the background."""
    if handle is not None:
        await ask("kill", partial(ray.kill, handle), MAKE_S)


def reports() -> list[Report]:
    """What people should know."""
    away_s = calls_here().away_s()
    if away_s is None:
        return []
    return [
        Report(
            Kind.GCS_AWAY,
            f"gcs: away for {away_s:.0f} s: what runs goes on, and what died is taken over by "
            "those that live; no process can be started, found or moved until Ray's head answers "
            "again",
        )
    ]
