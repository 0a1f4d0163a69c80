"""How many consumers a group has: their names, which go first, and when that is stored. Pure.

Rules of this file. One change of the consumers runs at a time; the caller sees to that. A name in
use is not given out again. A change during a save is part of the next save, and a failed save is
repeated. What a new configuration asks for stays due until all of it was carried out once: after an
interruption the next call repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import CONSUMERS_MAX, MemberId
from pxrs_ray.steps import Do, Steps, do

E = TypeVar("E")


def check_count(consumers: int) -> None:
    """Raise UsageError for a number of consumers that no group can have."""
    if not 0 <= consumers <= CONSUMERS_MAX:
        raise UsageError(f"a group has 0 to {CONSUMERS_MAX} consumers, not {consumers}")


@dataclass(frozen=True, slots=True)
class CountConsumers(Do[int]):
    """How many consumers are wanted now."""


@dataclass(frozen=True, slots=True)
class StartMore(Do[None]):
    """Start so many consumers, of new names."""

    count: int


@dataclass(frozen=True, slots=True)
class EndSome(Do[None]):
    """Let those go that go first, so many."""

    count: int


@dataclass(frozen=True, slots=True)
class EndAll(Do[None]):
    """Let everybody go, for this cause."""

    cause: str


@dataclass(frozen=True, slots=True)
class BeginAnew(Do[None]):
    """Go on with the handler and the options that were given, and nobody yet."""


def scale(consumers: int) -> Steps[None]:
    """Have exactly so many consumers."""
    missing = consumers - (yield from do(CountConsumers()))
    if missing > 0:
        yield from do(StartMore(missing))
    elif missing < 0:
        yield from do(EndSome(-missing))


def start(consumers: int, *, is_same: bool) -> Steps[None]:
    """Start so many consumers. Where some run already: as many as these, of the same handler and
    options (`is_same`); others are replaced."""
    if (yield from do(CountConsumers())):
        if is_same:
            yield from scale(consumers)
            return
        yield from do(EndAll("replaced by another handler"))
    yield from do(BeginAnew())
    if consumers:
        yield from do(StartMore(consumers))


def new_names(group: str, count: int, taken: Collection[MemberId]) -> list[MemberId]:
    """So many names that nobody has."""
    names: list[MemberId] = []
    number = 0
    while len(names) < count:
        if (name := f"{group}-{number}") not in taken:
            names.append(name)
        number += 1
    return names


def who_goes_first(
    nodes: Mapping[MemberId, str], owned: Mapping[MemberId, int], here: str, count: int
) -> list[MemberId]:
    """Those on the node that is drained soonest, then those that own least, then the newest.

    `nodes` says where each runs; what runs `here` goes last.
    """
    on_node = Counter(nodes.values())

    def cost(name: MemberId) -> tuple[bool, int, str, int]:
        node = nodes[name]
        return (node == here, on_node[node], node, owned.get(name, 0))

    return sorted(sorted(nodes, reverse=True), key=cost)[: max(0, count)]


class Unkept:
    """Whether there is something to keep. `changed`, `saving` and `failed` tell it."""

    def __init__(self) -> None:
        self.is_stale = False

    def changed(self) -> None:
        """Something is not kept as it is."""
        self.is_stale = True

    def saving(self) -> None:
        """What is now is being kept: what changes from here on is not in it."""
        self.is_stale = False

    def failed(self) -> None:
        """It may not be kept."""
        self.is_stale = True


class Owed(Generic[E]):
    """What another configuration asks for, by option: who must react to it."""

    def __init__(self) -> None:
        self.by_option: dict[str, frozenset[E]] = {}

    def add(self, found: Iterable[tuple[str, Iterable[E]]]) -> None:
        """These options have changed."""
        self.by_option |= {option: frozenset(who) for option, who in found}

    def who(self) -> frozenset[E]:
        """Everybody that must react."""
        return frozenset[E]().union(*self.by_option.values())

    def paid(self) -> None:
        """All of it was carried out."""
        self.by_option.clear()
