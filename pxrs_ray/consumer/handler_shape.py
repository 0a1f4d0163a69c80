"""What a handler may look like, and how to call one. Pure: whoever calls it brings the threads.

A handler is a function of one message, a function of one batch, either of them `async`, or a
class with a method `handle` (or `handle_batch`). A batch is meant where the one parameter is
annotated `DeliveredBatch`, the method is called `handle_batch`, or `mode="batch"` says so.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pxrs_ray.errors import HandlerError
from pxrs_ray.late_dataclass import dataclass

MODES = ("auto", "message", "batch")


@dataclass(frozen=True, slots=True)
class HandlerShape:
    """A loaded handler: the object with its other methods, and what is called with messages."""

    target: Any
    function: Callable[[Any], Any]
    wants_batch: bool
    is_async: bool


def check_mode(mode: str) -> None:
    """Raise HandlerError unless `mode` is one that there is."""
    if mode not in MODES:
        raise HandlerError(f"handler mode must be one of {', '.join(MODES)}, not {mode!r}")


def check_shape(handler: object) -> None:
    """Raise HandlerError for what cannot be a handler."""
    has_method = hasattr(handler, "handle") or hasattr(handler, "handle_batch")
    if inspect.isclass(handler):
        if not has_method:
            raise HandlerError(
                f"handler class {handler.__qualname__} needs a method handle(message) or "
                "handle_batch(batch)"
            )
    elif not callable(handler) and not has_method:
        raise HandlerError(f"a handler must be callable or an import path, not {handler!r}")
    name = next((name for name in ("handle_batch", "handle") if hasattr(handler, name)), "")
    function = getattr(handler, name) if name else handler
    _check_takes_one(handler, name, function)


def _check_takes_one(handler: object, name: str, function: Any) -> None:
    """Raise HandlerError for what cannot be called with one message, or one batch."""
    of_class = inspect.isclass(handler)
    bound = not of_class or isinstance(
        inspect.getattr_static(handler, name, None), staticmethod | classmethod
    )
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return  # nothing is known of it, as of some functions in C
    try:
        found.bind(*[None] * (1 if bound else 2))
    except TypeError:
        what = getattr(function, "__qualname__", None) or repr(handler)
        raise HandlerError(
            f"handler {what}{found} must take one argument: it is called with a message, or with a "
            "batch"
        ) from None


def import_handler(path: str) -> object:
    """What 'package.module:name' names. Raises HandlerError."""
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


def check_settings(handler: object, settings: Mapping[str, Any], name: str) -> None:
    """Raise HandlerError for settings that this handler cannot be made with."""
    if not inspect.isclass(handler):
        if settings:
            raise HandlerError(
                f"handler {name} takes no settings ({', '.join(settings)}), for it is no class: "
                "make it one, with __init__ and handle"
            )
        return
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # one of C: it says itself what it takes
        return
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise HandlerError(
            f"handler {name} is not made with the group's settings: {error}; it takes {signature}"
        ) from None


def shape_of(
    handler: Any, mode: str = "auto", settings: Mapping[str, Any] | None = None
) -> HandlerShape:
    """How to call `handler`; a class is made an object of, with `settings` as keywords.

    Raises HandlerError; what the class itself raises passes through.
    """
    check_shape(handler)
    given = dict(settings or {})
    check_settings(handler, given, getattr(handler, "__qualname__", type(handler).__qualname__))
    target = handler(**given) if inspect.isclass(handler) else handler
    function: Any = target
    wants_batch = mode == "batch"
    if hasattr(target, "handle_batch"):
        function, wants_batch = target.handle_batch, True
    elif hasattr(target, "handle"):
        function = target.handle
    if mode == "auto" and not wants_batch:
        wants_batch = _takes_batch(function)
    return HandlerShape(target, function, wants_batch, _is_async(function))


def wants_batches(handler: Any) -> bool:
    """Whether batches are meant, as far as that is seen without making an object of a class."""
    function = getattr(handler, "handle", handler)
    return hasattr(handler, "handle_batch") or _takes_batch(function, inspect.isclass(handler))


def check_fits(name: str, wants_batch: bool, processing: str, group: str) -> None:
    """Raise HandlerError for a mode of processing that this handler cannot serve."""
    if wants_batch and processing != "ordered":
        raise HandlerError(
            f"handler {name} takes batches, and the processing mode of group {group}, "
            f"{processing!r}, needs one that takes single messages"
        )


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _takes_batch(function: Callable[..., object], of_class: bool = False) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    note = parameters[of_class].annotation if len(parameters) > of_class else None
    return "DeliveredBatch" in (note if isinstance(note, str) else getattr(note, "__name__", ""))
