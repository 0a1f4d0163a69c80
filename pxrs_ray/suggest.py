"""The nearest known name to one that is not known: the one place that compares names.

Each error says it in its own sentence: `did_you_mean` has the usual one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pxrs_ray.errors import UsageError

Thing = TypeVar("Thing")

# How alike two names must be, from 0 to 1, to be taken for each other.
NEAR = 0.5
KNOWN_TOLD_MAX = 12


def nearest(name: str, known: Iterable[str], alike: float = NEAR) -> str | None:
    """The known name that is most like `name`, or None when none is near enough."""
    names = {str(each).lower(): str(each) for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=alike)
    return names[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, or which there are."""
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    told = ", ".join(sorted(names)[:KNOWN_TOLD_MAX])
    return f"known are {told}" + (", ..." if len(names) > KNOWN_TOLD_MAX else "")


def pick(kind: str, name: str, known: Mapping[str, Thing]) -> Thing:
    """The thing that `known` holds under `name`.

    Raises UsageError naming the nearest known name, and all of them, when there is none.
    """
    if name in known:
        return known[name]
    near = nearest(str(name), known)
    hint = f"did you mean {near!r}? " if near is not None else ""
    raise UsageError(f"unknown {kind} {name!r}: {hint}known are {', '.join(known)}")
