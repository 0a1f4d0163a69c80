"""How another configuration takes effect in a topology that runs. Pure: see `pxrs_ray.steps`.

Rules of this file. It is durable before anybody goes by it: a coordinator that begins anew goes by
what is kept. Cut off from there on (a buffer that is away), all of it is done again by the next
call, also where that finds no difference any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.steps import Do, Steps, do


@dataclass(frozen=True, slots=True)
class KeepWanted(Do[None]):
    """Have the wanted configuration durable, and in force."""


@dataclass(frozen=True, slots=True)
class OpenWanted(Do[None]):
    """Have the buffers go by it, and open its queues. Raises where one is away."""


@dataclass(frozen=True, slots=True)
class ReconfigureGroup(Do[None]):
    """Have a group go by it, with its consumers."""

    group: str


class Applying:
    """What one coordinator has applied. One call at a time."""

    def __init__(self) -> None:
        self._is_half = False

    def has_to(self, *, differs: bool) -> bool:
        """Whether there is anything to do."""
        return differs or self._is_half

    def apply(self, groups: Sequence[str], *, of_buffers: bool) -> Steps[None]:
        """Have it take effect; `of_buffers`: something of it concerns buffers."""
        of_buffers = of_buffers or self._is_half
        self._is_half = True
        yield from do(KeepWanted())
        if of_buffers:
            yield from do(OpenWanted())
        for group in groups:
            yield from do(ReconfigureGroup(group))
        self._is_half = False
