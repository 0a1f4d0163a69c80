"""Loads what a user calls a handler, and makes it one thing that a worker thread can call.

A handler is a function of one message, a function of one batch, either of them `async`, or a class
with a method `handle` (or `handle_batch`) and, where it wants them, `on_assigned(partition,
checkpoint)`, `on_revoked(partition)` and `close()`. It is given by object (pickled by value) or by
import path ('package.module:name'). It takes batches where its one parameter is annotated
`DeliveredBatch`, the method is called `handle_batch`, or `mode="batch"` says so.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

from ray import cloudpickle

from pxrs_ray.errors import HandlerError, NotHeld
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.supervisor import LoopThread

MODES = ("auto", "message", "batch")
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
    if mode not in MODES:
        raise HandlerError(f"handler mode must be one of {', '.join(MODES)}, not {mode!r}")
    if isinstance(handler, HandlerRef):
        return handler
    if isinstance(handler, str):
        return HandlerRef(handler, None, mode, handler)
    _check_shape(handler)
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    try:
        pickled: bytes = cloudpickle.dumps(handler)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise HandlerError(
            f"handler {name} cannot be pickled ({error}): give it by import path "
            "('package.module:name'), or make what it closes over inside the handler"
        ) from error
    if len(pickled) > HANDLER_BYTES_MAX:
        raise HandlerError(
            f"handler {name} is {len(pickled)} bytes when pickled, at most {HANDLER_BYTES_MAX} "
            "are allowed: load large objects inside it, or give it by import path"
        )
    return HandlerRef(None, pickled, mode, name)


def _check_shape(handler: object) -> None:
    if inspect.isclass(handler):
        if not hasattr(handler, "handle") and not hasattr(handler, "handle_batch"):
            raise HandlerError(
                f"handler class {handler.__qualname__} needs a method handle(message) or "
                "handle_batch(batch)"
            )
    elif not callable(handler) and not hasattr(handler, "handle"):
        raise HandlerError(f"a handler must be callable or an import path, not {handler!r}")


def _import(path: str) -> object:
    module_name, separator, name = path.partition(":")
    if not separator:
        raise HandlerError(f"handler path {path!r} must look like 'package.module:name'")
    try:
        found: object = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise HandlerError(
            f"handler {path!r} cannot be imported here ({error}): is its package installed on this "
            "node, or part of the job's working_dir?"
        ) from error
    return found


class Handler:
    """A loaded handler: workers call it, from their own threads."""

    def __init__(self, ref: HandlerRef) -> None:
        target = (
            _import(ref.path) if ref.path is not None else cloudpickle.loads(ref.pickled or b"")
        )
        _check_shape(target)
        self.name = ref.name
        self._target: Any = target() if inspect.isclass(target) else target
        function: Any = self._target
        self.wants_batch = ref.mode == "batch"
        if hasattr(self._target, "handle_batch"):
            function, self.wants_batch = self._target.handle_batch, True
        elif hasattr(self._target, "handle"):
            function = self._target.handle
        if ref.mode == "auto" and not self.wants_batch:
            self.wants_batch = _takes_batch(function)
        self._one_at_a_time = False
        self._check: Callable[[Any], None] | None = None
        self._loop = LoopThread("pxrs-async-handler") if _is_async(function) else None
        self.call: Callable[[Any], object] = self._run_async if self._loop else function
        self._function: Callable[[Any], Coroutine[Any, Any, object]] = function

    def _run_async(self, argument: Any) -> object:
        assert self._loop is not None
        return self._loop.begin(self._function(argument)).result()

    @property
    def is_async(self) -> bool:
        """Whether calls run on an event loop, and can be ended before they are over."""
        return self._loop is not None and not self._one_at_a_time

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
        """Call an async handler without waiting; answers how to cancel. `done` is told the end."""
        assert self._loop is not None
        if self._check is not None:
            self._check(argument)
        future = self._loop.begin(self._function(argument))

        def tell(ended: Future[object]) -> None:
            done(CancelledError() if ended.cancelled() else ended.exception())

        future.add_done_callback(tell)
        return future.cancel

    def on_prepare(self, partition: PartitionId, checkpoint: Offset) -> None:
        """Let the handler load what a coming partition needs; its owner works on meanwhile."""
        self._notify("on_prepare", partition, checkpoint)

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


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _takes_batch(function: Callable[..., object]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    note = parameters[0].annotation if parameters else None
    return "DeliveredBatch" in (note if isinstance(note, str) else getattr(note, "__name__", ""))
