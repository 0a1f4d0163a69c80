"""Loads what a user calls a handler, and makes it one thing that a worker thread can call.

A handler is a function of one message, a function of one batch, either of them `async`, or a class
with a method `handle` (or `handle_batch`) and, where it wants them, `on_assigned(partition,
checkpoint)`, `on_revoked(partition)` and `close()`. It is given by object (pickled by value) or by
import path ('package.module:name'). It takes batches where its one parameter is annotated
`DeliveredBatch`, the method is called `handle_batch`, or `mode="batch"` says so.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

from ray import cloudpickle

from pxrs_ray.consumer.handler_shape import (
    check_fits,
    check_mode,
    check_shape,
    import_handler,
    shape_of,
)
from pxrs_ray.errors import HandlerError, NotHeld
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.supervisor import LoopThread

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.call_gate import CallGate
    from pxrs_ray.config import GroupConfig

T = TypeVar("T")

HANDLER_BYTES_MAX = 512 * 1024


@dataclass(frozen=True, slots=True)
class HandlerRef:
    """A handler that can be sent: exactly one of `path` and `pickled` is set."""

    path: str | None
    pickled: bytes | None
    mode: str
    name: str


def handler_ref(handler: object, mode: str = "auto") -> HandlerRef:
    """Make `handler` travel; everything that is wrong with it is found now.

    Raises HandlerError when it is not callable, cannot be imported or pickled, or is too large.
    """
    check_mode(mode)
    if isinstance(handler, HandlerRef):
        return handler
    if isinstance(handler, str):
        return HandlerRef(handler, None, mode, handler)
    check_shape(handler)
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    try:
        pickled: bytes = cloudpickle.dumps(handler)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise HandlerError(
            f"handler {name} cannot be pickled ({error}): give it by import path "
            "('package.module:name'), or create inside the handler what it uses from outside"
        ) from error
    if len(pickled) > HANDLER_BYTES_MAX:
        raise HandlerError(
            f"handler {name} is {len(pickled)} bytes when pickled, at most {HANDLER_BYTES_MAX} "
            "are allowed: load large objects inside it, or give it by import path"
        )
    return HandlerRef(None, pickled, mode, name)


class Handler:
    """A loaded handler: workers call it, from their own threads."""

    def __init__(self, ref: HandlerRef, settings: Mapping[str, Any] | None = None) -> None:
        found = (
            import_handler(ref.path)
            if ref.path is not None
            else cloudpickle.loads(ref.pickled or b"")
        )
        shape = shape_of(found, ref.mode, settings)
        self.name = ref.name
        self._target = shape.target
        self.wants_batch = shape.wants_batch
        function = shape.function
        self._one_at_a_time = False
        self._check: Callable[[Any], None] | None = None
        # Where the group has limits: each call waits here for its turn.
        self.gate: CallGate | None = None
        self._loop = LoopThread("pxrs-async-handler") if shape.is_async else None
        self.call: Callable[[Any], object] = self._run_async if self._loop else function
        self.function: Callable[[Any], Coroutine[Any, Any, object]] = function

    def _run_async(self, argument: Any) -> object:
        return self.on_loop(self.function(argument))

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the event loop of an async handler, and wait for it there."""
        assert self._loop is not None
        return self._loop.begin(work).result()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of an async handler."""
        return self._loop.loop if self._loop is not None else None

    @property
    def runs_on_loop(self) -> bool:
        """Whether `function`, awaited on the loop, is all that there is to a call."""
        return self.is_async and self._check is None

    @property
    def is_async(self) -> bool:
        """Whether calls run on an event loop, and can be ended before they are over."""
        return self._loop is not None and not self._one_at_a_time

    def check_fits(self, config: GroupConfig, group: str) -> None:
        """Raise HandlerError for options of a group that this handler cannot serve."""
        check_fits(self.name, self.wants_batch, config.processing.mode, group)

    def check_first(self, check: Callable[[Any], None]) -> None:
        """Call `check` with each argument before the handler: what it raises fails the message."""
        call = self.call

        def checked(argument: Any) -> object:
            check(argument)
            return call(argument)

        self.call, self._check = checked, check

    def one_at_a_time(self) -> None:
        """Never make two calls at once, whichever threads ask for them."""
        lock, call = threading.Lock(), self.call

        def alone(argument: Any) -> object:
            waits = not lock.acquire(blocking=False)
            if waits:
                lock.acquire()
            try:
                # Another partition's call may have taken longer than our lease lasts.
                if waits and not argument.context.holds():
                    raise NotHeld("the lease ended before this call could begin")
                return call(argument)
            finally:
                lock.release()

        self.call, self._one_at_a_time = alone, True

    def begin(
        self, argument: Any, done: Callable[[BaseException | None], None]
    ) -> Callable[[], object]:
        """Call an async handler without waiting; answers how to cancel. `done` gets the outcome."""
        assert self._loop is not None
        if self._check is not None:
            self._check(argument)
        future = self._loop.begin(self.function(argument))

        def tell(ended: Future[object]) -> None:
            done(CancelledError() if ended.cancelled() else ended.exception())

        future.add_done_callback(tell)
        return future.cancel

    async def checked(self, argument: Any) -> object:
        """Call an async handler where this runs, on its loop."""
        if self._check is not None:
            self._check(argument)
        return await self.function(argument)

    def begin_on_loop(self, work: Coroutine[Any, Any, object]) -> None:
        """Run it on the event loop of an async handler; does not wait."""
        assert self._loop is not None
        self._loop.begin(work)

    def soon_on_loop(self, call: Callable[[], object]) -> None:
        """Make the call on the event loop of an async handler; does not wait."""
        assert self._loop is not None
        self._loop.loop.call_soon_threadsafe(call)

    def on_prepare(self, partition: PartitionId, checkpoint: Offset) -> None:
        """Let the handler load what a coming partition needs; its owner works on meanwhile."""
        self._notify("on_prepare", partition, checkpoint)

    @property
    def hears_of_partitions(self) -> bool:
        """Whether the handler asks to be told when partitions come and go."""
        return any(hasattr(self._target, name) for name in ("on_assigned", "on_revoked"))

    def on_assigned(self, partition: PartitionId, checkpoint: Offset) -> None:
        """Tell the handler, if it asks for it, that a partition begins at `checkpoint`."""
        self._notify("on_assigned", partition, checkpoint)

    def on_revoked(self, partition: PartitionId) -> None:
        """Tell the handler, if it asks for it, that nothing more of a partition will come."""
        self._notify("on_revoked", partition)

    def problems(self) -> tuple[str, ...]:
        """What of its event loop went wrong lately."""
        return self._loop.problems() if self._loop is not None else ()

    def close(self) -> None:
        """Let the handler give back what it holds."""
        try:
            self._notify("close")
        finally:
            if self._loop is not None:
                self._loop.close()

    def _notify(self, name: str, *arguments: object) -> None:
        method = getattr(self._target, name, None)
        if method is None:
            return
        try:
            if inspect.iscoroutinefunction(method) and self._loop is not None:
                self._loop.begin(method(*arguments)).result()
            else:
                method(*arguments)
        except BaseException as error:
            leave_if_child(error)
            raise
        leave_if_child()
