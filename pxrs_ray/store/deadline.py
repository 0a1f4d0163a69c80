"""Deadlines, and repeating a conditional write until one.

Rules of this file. The outcome of a call whose connection broke is unknown: the same call is made
again, which is safe because every mutator is conditional and idempotent by its post-state. Only the
deadline ends the retries, as `StoreUnavailable`. Driver errors leave as `StoreError`, with their
text scrubbed of secrets and without the driver's own exception as their cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pxrs_ray.backoff import Backoff
from pxrs_ray.errors import StoreError, StoreUnavailable
from pxrs_ray.late_dataclass import dataclass

T = TypeVar("T")

_PAUSE_FIRST_S = 0.01
_PAUSE_MAX_S = 0.25


class Deadline:
    """A moment after which a call must have ended."""

    def __init__(self, ms: float) -> None:
        self._at = time.monotonic() + ms / 1_000

    @property
    def left_s(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def left_ms(self) -> int:
        """Milliseconds left, at least 1: drivers read 0 as 'no limit'."""
        return max(1, int(self.left_s * 1_000))

    @property
    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._at


@dataclass(frozen=True)
class Persistence:
    """How one store retries: which errors pass by themselves, and until when.

    `where` is the redacted address, `driver_errors` the roots of what the driver raises,
    `is_passing` says which of those may succeed when tried again, `scrub` removes secrets, and
    `worded` makes the error to raise from one that does not pass and a text.
    """

    where: str
    deadline_ms: int
    driver_errors: tuple[type[Exception], ...]
    is_passing: Callable[[Exception], bool]
    scrub: Callable[[str], str]
    worded: Callable[[Exception, str], StoreError] = lambda _, told: StoreError(told)

    def run(self, what: str, attempt: Callable[[Deadline], T]) -> T:
        """Call `attempt` until it answers, raises what does not pass, or time is up."""
        deadline = Deadline(self.deadline_ms)
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_MAX_S)
        while True:
            try:
                return attempt(deadline)
            except self.driver_errors as error:
                told = f"{what} at {self.where}: {self.scrub(words(error))}"
                if not self.is_passing(error):
                    raise self.worded(error, told) from None
                if deadline.left_s <= backoff.next_s:
                    raise StoreUnavailable(
                        f"{told} (outcome unknown after {self.deadline_ms} ms)"
                    ) from None
            time.sleep(backoff.failed())


def words(error: BaseException) -> str:
    """An error in one line; drivers raise some without any text, and gRPC a page of it."""
    details = getattr(error, "details", None)
    text = " ".join(str(details() if callable(details) else error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
