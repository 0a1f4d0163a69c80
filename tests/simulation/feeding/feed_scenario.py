"""`FeedScenario`: what one run of the feeding world is like, drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pxrs_ray.errors import UsageError
from tests.simulation.simulator.scenario import Network, Scenario

FEED_FAULTS = {
    "task_crash": 3.0,
    "task_freeze": 3.0,
    "task_twin": 2.0,
    "driver_crash": 1.5,
    "driver_freeze": 1.0,
    "second_driver": 1.0,
    "other_data": 1.5,
    "other_plan": 0.5,
    "fetch_failure": 1.0,
    "log_restart": 1.0,
    "log_freeze": 0.5,
    "power_cut": 0.7,
    "disk_trouble": 0.5,
    "disk_full": 0.3,
    "disk_slow": 0.5,
    "network_trouble": 1.0,
    "clock_jump": 0.5,
}
"""Every fault of a feed, and its weight against the others."""


@dataclass(frozen=True, slots=True)
class FeedScenario:
    """One run. Times are in virtual milliseconds.

    `feeds` are fed one after the other, each of `spark_partitions` with up to `rows` rows, in
    pieces of `chunk_rows`; a stream of `batches` runs beside them. `push`: Spark's Python workers
    append while they compute, else Ray's tasks do, which have all of a Spark partition at hand.
    `unstable` is the share of feeds whose Spark partitions come out different now and then.
    """

    base: Scenario
    partitions: int = 3
    spark_partitions: int = 3
    rows: int = 12
    chunk_rows: int = 3
    keys: int = 4
    feeds: int = 2
    batches: int = 4
    push: bool = True
    unstable: float = 0.2
    tasks_max: int = 3
    stall_ms: int = 4_000
    cancel_lost: float = 0.5
    weights: Mapping[str, float] = field(default_factory=lambda: dict(FEED_FAULTS))


def draw_feeds(seed: int, overrides: Mapping[str, float] | None = None) -> FeedScenario:
    """The scenario of a seed, with numbers or weights set otherwise. Raises UsageError."""
    dice = random.Random(f"feeds {seed}")
    calm = dice.random() < 0.3
    partitions = dice.choice((1, 2, 3))
    base = Scenario(
        partitions=partitions + 2,
        trouble_ms=4_000,
        settle_ms=60_000,
        fault_interval_ms=dice.choice((100, 250, 600)),
        durability=dice.choice(("interval", "always")),
        segment_bytes=dice.choice((6_000, 1 << 20)),
        hot_bytes=dice.choice((1_500, 1 << 20)),
        network=Network()
        if calm
        else Network(
            lost=dice.choice((0.0, 0.02, 0.1)),
            doubled=dice.choice((0.0, 0.02, 0.1)),
            slow=dice.choice((0.0, 0.05, 0.2)),
            slow_ms_max=dice.choice((50, 500, 1_500)),
        ),
    )
    drawn = FeedScenario(
        base,
        partitions=partitions,
        spark_partitions=dice.choice((1, 2, 3, 4)),
        rows=dice.choice((4, 12, 12, 80)),
        chunk_rows=dice.choice((1, 3, 5)),
        keys=dice.choice((1, 4, 9)),
        feeds=dice.choice((1, 2)),
        batches=dice.choice((0, 3, 6)),
        push=dice.random() < 0.6,
        tasks_max=dice.choice((1, 2, 4)),
        stall_ms=dice.choice((1_000, 6_000)),
        weights={name: weight for name, weight in FEED_FAULTS.items() if dice.random() < 0.7},
    )
    return _override(drawn, overrides or {})


def _override(scenario: FeedScenario, overrides: Mapping[str, float]) -> FeedScenario:
    kinds: dict[str, Any] = {"int": int, "float": float, "bool": bool}
    own = {f.name: f.type for f in fields(FeedScenario) if f.type in kinds}
    base = {"fault_interval_ms", "trouble_ms", "segment_bytes", "hot_bytes", "durability"}
    network = {f.name: f.type for f in fields(Network)}
    changes: dict[str, Any] = {}
    base_changes: dict[str, Any] = {}
    network_changes: dict[str, Any] = {}
    weights = dict(scenario.weights)
    for name, value in overrides.items():
        if name in own:
            changes[name] = kinds[str(own[name])](value)
        elif name == "durability":
            base_changes[name] = "always" if value else "interval"
        elif name in base:
            base_changes[name] = int(value)
        elif name in network:
            network_changes[name] = kinds[str(network[name])](value)
        elif name in FEED_FAULTS:
            weights[name] = value
        else:
            known = ", ".join(sorted([*own, *base, *network, *FEED_FAULTS]))
            raise UsageError(f"the simulated feeds know no {name!r}; they know: {known}")
    base_changes["network"] = replace(scenario.base.network, **network_changes)
    base_changes["partitions"] = changes.get("partitions", scenario.partitions) + 2
    return replace(
        scenario, base=replace(scenario.base, **base_changes), weights=weights, **changes
    )
