"""The one place that says which errors pass by themselves and which last.

Rules of this file. Passing trouble ends without a change to the request: a disk gets space, a
descriptor comes free, the holder of a lock dies, a store or a buffer answers again. The caller
tries again, with pauses, until its own deadline. A lasting error is the same however often one
asks: it is raised at once. What is not listed here lasts.
"""

from __future__ import annotations

import errno

from pxrs_ray.errors import (
    BufferAway,
    DeadlineExceeded,
    DiskFull,
    LockHeld,
    LogAway,
    PartitionFull,
    SinkConflict,
    StoreUnavailable,
)

_PASSING = (
    BufferAway,
    DeadlineExceeded,
    DiskFull,
    LockHeld,
    LogAway,
    MemoryError,
    PartitionFull,
    SinkConflict,
    StoreUnavailable,
)

# The system's errors pass (room, descriptors, rights, cables, other machines), but for those that
# blame the call itself.
_LASTING_ERRNOS = frozenset(
    {
        errno.EBADF,
        errno.EEXIST,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOSYS,
        errno.ENOTDIR,
        errno.EOPNOTSUPP,
    }
)

# Ray's own, by name, for the core does not import Ray: they say nothing about what was asked.
_PASSING_IN_RAY = frozenset(
    {
        "ActorUnavailableError",
        "ActorUnschedulableError",
        "GetTimeoutError",
        "NodeDiedError",
        "OutOfMemoryError",
        "RayActorError",
        "RaySystemError",
        "WorkerCrashedError",
    }
)


def passes(error: BaseException) -> bool:
    """Whether this trouble may end by itself, so that the same thing is worth another try."""
    if isinstance(error, _PASSING):
        return True
    if isinstance(error, OSError):
        return error.errno not in _LASTING_ERRNOS
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return True
    return any(
        kind.__module__.startswith("ray.") and kind.__name__ in _PASSING_IN_RAY
        for kind in type(error).__mro__
    )
