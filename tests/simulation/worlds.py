"""The simulated worlds: a group with its buffer and producers, and feeds.

Both are judged by the same checkers: what a world never shows breaks no promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from tests.simulation.simulator.run import Run

GROUP = "group"
FEED = "feed"
WORLDS: Mapping[str, str] = MappingProxyType(
    {GROUP: "tests.simulation.simulator.run", FEED: "tests.simulation.feeding.feed_run"}
)
"""Each has a module with a function `run`."""


def run_in(
    world: str,
    seed: int,
    overrides: Mapping[str, float] | None = None,
    chosen: frozenset[int] | None = None,
) -> Run:
    """Simulate the run of `seed` in a world; of its faults only the `chosen` ones (None: all)."""
    done: Run = import_module(WORLDS[world]).run(seed, overrides, chosen)
    return done
