"""One run: trouble, then healing, then everything has to come to rest within a bounded time."""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tests.simulation.checkers import CHECKERS, Checker, Violation, check
from tests.simulation.checkers.messages import (
    AppendedOnce,
    CheckpointsCovered,
    DoneOnce,
    InOrder,
    KeysInOrder,
    NothingLost,
)
from tests.simulation.checkers.ownership import CheckpointsHold, OneReader
from tests.simulation.history import Failed, History
from tests.simulation.simulator.chaos import Chaos
from tests.simulation.simulator.cluster import Cluster
from tests.simulation.simulator.frames import begin_run
from tests.simulation.simulator.scenario import Scenario, draw
from tests.simulation.simulator.world import World

LOOK_MS = 100
# What nobody promises where a disk loses what was acknowledged.
LOSSLESS = (
    AppendedOnce,
    NothingLost,
    CheckpointsCovered,
    InOrder,
    KeysInOrder,
    DoneOnce,
    OneReader,
    CheckpointsHold,
)


@contextmanager
def quiet() -> Iterator[None]:
    """What ships logs what goes wrong; here most does, on purpose."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside: a run keeps most of what it makes; looking takes a tenth."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Run:
    """What one seed gave: the history to be checked, and how often which fault happened."""

    seed: int
    scenario: Scenario
    history: History
    faults: Mapping[str, int]
    settled_ms: int
    struck: tuple[int, ...] = ()

    def violations(self) -> tuple[Violation, ...]:
        """Every promise that was broken."""
        # What is done out of order lies above the checkpoint: there each key's order is promised.
        strict: tuple[type[Checker], ...] = ()
        if self.scenario.lanes:
            strict = (InOrder, DoneOnce, CheckpointsHold)
        if self.scenario.worn:
            strict += LOSSLESS
        with uncollected():
            return check(self.history, tuple(c for c in CHECKERS if c not in strict))


def run(
    seed: int,
    overrides: Mapping[str, float] | None = None,
    chosen: frozenset[int] | None = None,
) -> Run:
    """Simulate the run of `seed`; of its faults only the `chosen` ones, by number (None: all)."""
    scenario = draw(seed, overrides)
    begin_run()
    world = World(seed, scenario)
    with uncollected(), quiet():
        cluster = Cluster(world, seed)
        with closing(cluster), closing(world):
            chaos = Chaos(cluster, seed, chosen)
            try:
                _play(cluster, chaos)
            except Exception as error:
                where = traceback.format_tb(error.__traceback__)[-1]
                world.record(Failed(world.now_ms, where, f"{type(error).__name__}: {error}"))
            settled_ms = world.now_ms - scenario.trouble_ms
            return Run(seed, scenario, world.history, chaos.counts, settled_ms, tuple(chaos.struck))


def _play(cluster: Cluster, chaos: Chaos) -> None:
    world, scenario = cluster.world, cluster.world.scenario
    world.run_until(scenario.trouble_ms)
    chaos.heal()
    _come_to_rest(cluster, world.now_ms + scenario.settle_ms)
    world.record(cluster.ended())
    for kept in cluster.log.kept():
        world.record(kept)


def _come_to_rest(cluster: Cluster, end_ms: int) -> None:
    """Let time pass until nothing is pending, twice in a row: something may be about to happen."""
    world, quiet = cluster.world, 0
    while quiet < 2 and world.now_ms < end_ms:
        world.run_until(world.now_ms + LOOK_MS)
        quiet = quiet + 1 if not cluster.ended().pending else 0
