"""`served`: repeats a caller's request while the buffer has no lease, until the caller's
deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ray.exceptions import RayTaskError

from pxrs_ray.actors.cluster.ray_errors import ours
from pxrs_ray.data.protocol import Refused
from pxrs_ray.errors import LeaseOver

T = TypeVar("T")

PAUSE_S = 0.1


def lease_over(answer: object) -> LeaseOver | None:
    """Why the buffer has not served this; None when it has, or refuses for another reason."""
    parts = answer.values() if isinstance(answer, Mapping) else answer
    for part in parts if isinstance(parts, Iterable) else ():
        if isinstance(part, Refused) and isinstance(part.error, LeaseOver):
            return part.error
    return None


def served(ask: Callable[[], T], within_s: float) -> T:
    """The answer of `ask`, repeated while the buffer may not serve. Raises LeaseOver at the
    deadline."""
    end_s = time.monotonic() + within_s
    while True:
        try:
            answer = ask()
            refusal = lease_over(answer)
            if refusal is None:
                return answer
        except RayTaskError as error:
            found = ours(error)
            if not isinstance(found, LeaseOver):
                raise
            refusal = found
        if time.monotonic() > end_s:
            raise refusal
        time.sleep(PAUSE_S)
