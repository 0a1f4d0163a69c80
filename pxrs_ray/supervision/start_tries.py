"""`BeginTries`: when something that callers wait for is begun, and begun again. Pure.

Rules of this file. One begins at a time. Passing trouble (a buffer that is slow to open its logs, a
full disk) is tried again after a pause that grows, for as long as it lasts; whoever waits gets the
error at its deadline. A lasting error is raised at once, and the next caller makes it be tried
anew: no error is kept. So is that of a registry that is away: who asks has more to do. What is
being deleted is not begun again: what it left is needed to finish. Before each try but the first,
what the one before left is taken back.
"""

from __future__ import annotations

from pxrs_ray.backoff import Backoff
from pxrs_ray.errors import NotFound, StoreUnavailable
from pxrs_ray.supervision.passing_trouble import passes

PAUSE_FIRST_MS = 100
PAUSE_MOST_MS = 5_000


class BeginTries:
    """One start. `asked` says whether it is to be begun; `begins`, `failed` and `begun` tell it."""

    def __init__(self) -> None:
        self.done = False
        # What the last try met; None before, and when it has begun.
        self.trouble: BaseException | None = None
        self._tried = self._runs = self._is_over = False
        self._backoff = _backoff()

    def asked(self) -> bool:
        """Somebody waits for it: whether its tries are to be begun now."""
        if self.done or self._runs or self._is_over:
            return False
        self._runs, self._backoff = True, _backoff()
        return True

    def begins(self) -> bool:
        """A try begins: whether what a former one left is to be taken back first."""
        tried, self._tried = self._tried, True
        return tried

    def begun(self) -> None:
        """It has begun."""
        self.done, self.trouble, self._runs = True, None, False

    def failed(self, error: BaseException) -> float | None:
        """A try has failed: how long to rest before the next, or None: it goes out to who waits."""
        self.trouble = error
        if not isinstance(error, StoreUnavailable) and passes(error):
            return self._backoff.failed()
        self._runs, self._is_over = False, isinstance(error, NotFound)
        return None


class ReadTries:
    """A note on this node's disk is read, strictly for so long as its trouble may pass.

    Descriptors come free again, but a disk that is broken for good must not keep a topology down
    whose registry is elsewhere: then it is read as far as it goes, and that is shown.
    """

    def __init__(self, end_s: float) -> None:
        self._end_s = end_s
        self._backoff = _backoff()

    def failed(self, error: OSError, now_s: float) -> float | None:
        """How long to rest before it is read again, or None: read it as far as it goes."""
        if not passes(error) or now_s >= self._end_s:
            return None
        return self._backoff.failed()


def _backoff() -> Backoff:
    return Backoff(PAUSE_FIRST_MS / 1_000, PAUSE_MOST_MS / 1_000)
