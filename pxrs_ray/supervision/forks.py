"""Removes from a process that a handler forks what it must not inherit: our signals, sockets and
work.

Rules of this file. A child of `os.fork`, of multiprocessing or of a process pool begins as a copy
of the consumer. It gets the system's own SIGTERM and SIGINT, so that its parent can end it. Both
signals wait while a process forks: one that comes before the child has let go of our handler would
be told to the consumer, and the child would live on. It closes the sockets that Ray and we hold, so
that a consumer's death is seen while a child of its lives on. When it comes back from the handler,
by a return, an error or `sys.exit()`, it ends: it must never be a second worker of the same
messages.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FAILED = 1
FOLDER = Path("/proc/self/fd")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# Whether this process is such a child.
in_child = False

_registered = False
_sockets: dict[int, str] = {}
_masks = threading.local()
_told: list[weakref.WeakMethod[Callable[[], None]]] = []


def keep_children_apart() -> None:
    """Note what children must let go of: every socket that is open now. Before users' code runs."""
    global _registered
    _sockets.update(_open_sockets())
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child
        )
        _registered = True


def in_children(tell: Callable[[], None]) -> None:
    """Call a bound method in each child, first of all, for as long as its object is there."""
    _told[:] = [known for known in _told if known() is not None]
    _told.append(weakref.WeakMethod(tell))


def _open_sockets() -> dict[int, str]:
    found = {}
    with suppress(OSError):
        for entry in FOLDER.iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:"):
                    found[int(entry.name)] = target
    return found


def _before_fork() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _in_child() -> None:
    global in_child
    in_child = True
    for known in _told:
        tell = known()
        if tell is not None:
            tell()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # By number and identity: another socket may have the number by now.
    there = _open_sockets()
    for number, identity in _sockets.items():
        if there.get(number) == identity:
            with suppress(OSError):
                os.close(number)


def leave_if_child(error: BaseException | None = None) -> None:
    """End this process if it is a child that came back from a handler, with `error` or without."""
    if not in_child:
        return
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        traceback.print_exception(error)
        code = FAILED
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
        code = FAILED
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit((code or 0) & 0xFF)
