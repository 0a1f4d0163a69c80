"""Chooses one of several things by its name; an error suggests the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from pxrs_ray.errors import UsageError

Thing = TypeVar("Thing")


def pick(kind: str, name: str, known: Mapping[str, Thing]) -> Thing:
    """The thing that `known` holds under `name`.

    Raises UsageError naming the nearest known name, and all of them, when there is none.
    """
    if name in known:
        return known[name]
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(f"unknown {kind} {name!r}: {hint}known are {', '.join(known)}")
