"""`Request`: what a coordinator is asked, as data, with the type of its answer.

    class ScaleGroup(GroupRequest[None]):
        consumers: int

    coordinator.call(ScaleGroup("billing", 4))

Rules of this file. A request is a frozen dataclass and travels whole. It says by its type what is
answered, how long its caller waits, and what becomes of it while the registry is away. Nothing
heavy is imported here or where requests are declared: whoever only asks loads none of what the
coordinator needs. Requests have no slots: a pickler copies their fields at once, and a field that
a newer version adds has its default in what an older one sent.
"""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from pxrs_ray.late_dataclass import dataclass

A_co = TypeVar("A_co", covariant=True)

TOLD_CHARS_MAX = 100
CALL_WAIT_S = 60.0


class WhileAway(Enum):
    """What becomes of a request while the registry is away."""

    ASKED = "it is tried, and refused with RegistryAway where it needs the registry"
    CHANGES = "it would change something: it is refused, or its caller hears that it waits"
    TELLS = "it tells of the outage itself, and is answered"
    GOES_ON = "its group answers it: members go on while the registry is away"


class Request(Generic[A_co]):
    """A request that is answered with an `A_co`; each subclass is a frozen dataclass."""

    while_away: ClassVar[WhileAway] = WhileAway.ASKED
    wait_s: ClassVar[float] = CALL_WAIT_S

    def arguments(self) -> tuple[Any, ...]:
        """What its handler is called with."""
        return tuple(getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]

    def told(self) -> str:
        """The request in a few words, for people: 'scale group billing 4'."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()
        given = (getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]
        plain = (str(value) for value in given if isinstance(value, str | int))
        return " ".join((words, *plain))[:TOLD_CHARS_MAX]


@dataclass(frozen=True)
class GroupRequest(Request[A_co]):
    """A request that one group answers; its handler is called without the group's name."""

    group: str

    def arguments(self) -> tuple[Any, ...]:
        """What its handler is called with."""
        return super().arguments()[1:]
