"""A dataclass whose methods are made when they are asked for is one of Python's own otherwise."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
import sys
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from pxrs_ray import late_dataclass

CLASSES = 100


def build(dataclass: Any) -> dict[str, Any]:
    """The kinds that the product has."""
    kinds = (*frozen_ones(dataclass), *other_ones(dataclass))
    return {kind.__name__: kind for kind in kinds}


def frozen_ones(dataclass: Any) -> tuple[Any, ...]:
    @dataclass(frozen=True, slots=True)
    class Point:
        """Two numbers."""

        shared: ClassVar[int] = 3
        x: int
        y: int = 2
        seen: list[int] = field(default_factory=list, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below zero")

    @dataclass(frozen=True, slots=True)
    class Further(Point):
        """Three, one of which is told by its name."""

        z: int = field(kw_only=True)

    @dataclass(frozen=True)
    class Open:
        """It has a dictionary."""

        a: int = 1
        b: tuple[int, ...] = ()

        def __hash__(self) -> int:
            return 7

    class Under(Open):
        """Not a dataclass of its own."""

    return Point, Further, Open, Under


def other_ones(dataclass: Any) -> tuple[Any, ...]:
    @dataclass(slots=True)
    class Changing:
        """May be changed."""

        a: int
        b: str = "b"
        c: int = field(default=5, init=False)

    @dataclass(slots=True, eq=False)
    class Single:
        """Like nothing else."""

        a: int

    @dataclass(frozen=True, slots=True, repr=False)
    class Quiet:
        """Tells of itself in its own way."""

        a: int

        def __repr__(self) -> str:
            return "quiet"

        def __eq__(self, other: object) -> bool:
            return True

    @dataclass(frozen=True)
    class Nothing:
        """No fields."""

    return Changing, Single, Quiet, Nothing


LATE, PYTHONS = build(late_dataclass.dataclass), build(dataclasses.dataclass)
# So that they are found when they are unpickled.
for _name, _kind in LATE.items():
    _kind.__qualname__ = _name
    globals()[_name] = _kind

USES: dict[str, Callable[[dict[str, Any]], object]] = {
    "made": lambda k: [k["Point"](1), k["Point"](1, 3), k["Point"](x=4, y=5, seen=[6]).seen],
    "inherited": lambda k: [k["Further"](1, z=3), k["Further"](1, 2, [4], z=3).seen],
    "changed later": lambda k: [k["Changing"](1), k["Changing"](1, "c").c],
    "without fields": lambda k: k["Nothing"](),
    "too few": lambda k: k["Point"](),
    "too many": lambda k: k["Changing"](1, 2, 3),
    "unknown": lambda k: k["Open"](nothing=1),
    "keyword missing": lambda k: k["Further"](1),
    "refused after": lambda k: k["Point"](-1),
    "equal": lambda k: [
        k["Point"](1) == k["Point"](1, 2, [3]),
        k["Point"](1) == k["Point"](2),
        k["Point"](1) == k["Further"](1, z=1),
        k["Open"]() == k["Under"](),
        k["Changing"](1) == k["Changing"](1),
        k["Single"](1) == k["Single"](1),
        k["Quiet"](1) == 3,
        k["Nothing"]() == k["Nothing"](),
    ],
    "hashed": lambda k: [
        hash(k["Point"](1)),
        hash(k["Further"](1, z=4)),
        hash(k["Open"]()),
        hash(k["Nothing"]()),
    ],
    "not hashable": lambda k: hash(k["Changing"](1)),
    "hashed by itself": lambda k: len({k["Single"](1), k["Single"](1)}),
    "hashed beside an equality of its own": lambda k: hash(k["Quiet"](4)),
    "set": lambda k: setattr(k["Point"](1), "x", 2),
    "set beside": lambda k: setattr(k["Open"](), "other", 2),
    "set in a child": lambda k: setattr(k["Under"](), "a", 2),
    "set in a child, beside": lambda k: vars(_set(k["Under"](), "other", 2)),
    "set where it may be": lambda k: _set(k["Changing"](1), "a", 4),
    "no place": lambda k: setattr(k["Changing"](1), "d", 4),
    "deleted": lambda k: delattr(k["Point"](1), "x"),
    "replaced": lambda k: [
        dataclasses.replace(k["Further"](1, z=3), x=8),
        dataclasses.replace(k["Point"](1), y=8),
    ],
    "told": lambda k: [
        dataclasses.asdict(k["Point"](1)),
        dataclasses.astuple(k["Further"](1, z=2)),
    ],
    "fields": lambda k: [(f.name, f.type, f.kw_only) for f in dataclasses.fields(k["Further"])],
    "signature": lambda k: [str(inspect.signature(kind)) for kind in k.values()],
    "matched": lambda k: [kind.__match_args__ for kind in k.values()],
    "slots": lambda k: [getattr(kind, "__slots__", None) for kind in k.values()],
    "its own name": lambda k: repr(k["Quiet"](1)),
    "names of methods": lambda k: [k["Point"].__init__.__qualname__, k["Point"].__eq__.__name__],
    "state": lambda k: [k["Point"](1).__getstate__(), k["Changing"](1).__getstate__()],
}


def _set(thing: Any, name: str, value: object) -> Any:
    setattr(thing, name, value)
    return thing


def said(use: Callable[[dict[str, Any]], object], kinds: dict[str, Any]) -> str:
    """What comes of a use, or how it is refused."""
    try:
        found = repr(use(kinds))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return re.sub(r"\w+_ones\.<locals>\.", "", found)


@pytest.mark.parametrize("name", USES)
def test_a_use_comes_to_the_same(name: str) -> None:
    # Twice: a method is another one when it was looked up before.
    for _ in range(2):
        assert said(USES[name], LATE) == said(USES[name], PYTHONS)
    assert said(USES[name], build(late_dataclass.dataclass)) == said(USES[name], PYTHONS)


@pytest.mark.parametrize(
    "thing",
    [LATE["Point"](1, 4, [5]), LATE["Further"](1, z=2), LATE["Open"](3), LATE["Changing"](6)],
    ids=repr,
)
def test_what_is_pickled_comes_back(thing: object) -> None:
    copied = pickle.loads(pickle.dumps(thing))
    assert copied == thing and type(copied) is type(thing)


def test_what_is_frozen_stays_as_it_is() -> None:
    point = build(late_dataclass.dataclass)["Point"](1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert point.x == 1


def test_what_is_frozen_may_not_set_in_its_own_way() -> None:
    with pytest.raises(TypeError, match="__setattr__"):

        @late_dataclass.dataclass(frozen=True)
        class Wrong:
            a: int

            def __setattr__(self, name: str, value: object) -> None:
                pass


def test_a_method_is_made_once_and_is_then_pythons_own() -> None:
    kinds = build(late_dataclass.dataclass)
    point = kinds["Point"]
    assert type(point.__dict__["__init__"]).__name__ == "_Later"
    point(1)
    made = point.__dict__["__init__"]
    assert inspect.isfunction(made)
    point(2)
    assert point.__dict__["__init__"] is made
    assert type(point.__dict__["__eq__"]).__name__ == "_Later", "nobody has compared"


def test_making_a_class_costs_less_than_half() -> None:
    def seconds(dataclass: Any) -> float:
        began = time.process_time()
        for _ in range(CLASSES // 10):
            build(dataclass)
        return time.process_time() - began

    pairs = [(seconds(late_dataclass.dataclass), seconds(dataclasses.dataclass)) for _ in range(5)]
    assert min(late for late, _ in pairs) < min(own for _, own in pairs) / 2, pairs


def test_the_kinds_are_found_by_their_names() -> None:
    assert all(getattr(sys.modules[__name__], name) is kind for name, kind in LATE.items())
