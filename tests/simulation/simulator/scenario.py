"""`Scenario`: what one run is like. Drawn from its seed, so that a seed alone tells a run again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pxrs_ray.errors import UsageError

_KINDS: dict[Any, Callable[[float], Any]] = {
    "int": int,
    "bool": bool,
    "str": lambda number: "always" if number else "interval",
}

FAULTS = {
    "consumer_crash": 3.0,
    "consumer_freeze": 3.0,
    "consumer_cut": 2.0,
    "false_death": 1.5,
    "twin": 1.5,
    "hang": 1.0,
    "leave": 2.0,
    "join": 3.0,
    "coordinator_crash": 1.5,
    "coordinator_freeze": 1.0,
    "second_coordinator": 1.5,
    "store_outage": 1.0,
    "store_trouble": 1.5,
    "network_trouble": 1.5,
    "clock_jump": 0.5,
    "seek": 1.5,
    "pause": 0.7,
    "configure": 1.0,
    "rebalance": 0.5,
    "producer_crash": 1.0,
    "log_restart": 0.7,
    "group_fault": 0.7,
    "power_cut": 0.7,
    "disk_trouble": 0.7,
    "disk_full": 0.5,
    "disk_slow": 0.5,
    "older_disk": 0.3,
    "log_freeze": 0.5,
    "second_buffer": 0.7,
    "disk_rot": 0.5,
    "descriptors_spent": 2.0,
}
"""Every fault, and its weight against the others."""

# Only where files are closed and opened again.
_OF_FEW_FILES = frozenset({"descriptors_spent"})


@dataclass(frozen=True, slots=True)
class Network:
    """How calls travel: shares from 0 to 1, and the delay of the slow ones."""

    lost: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0
    slow_ms_max: int = 500


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. Times are in virtual milliseconds; `weights` are the odds of the faults.

    `stale_name` is how often a client that looks the coordinator up finds an older one. Above 0,
    `lanes` is how many messages of a partition are in work at once, each key in order. `pulling` is
    the share of members that are a pulling caller's. `batches`: handlers take batches.
    `commit_mode` is 0 for the interval, 1 for each batch, 2 for each message. `deadly` is how many
    messages end the process of their handler; `assigned_fails` is how often one cannot begin a
    partition.

    With `durability` "always" what is acknowledged survives a power cut. A `worn` disk loses what
    was acknowledged: it comes back older, and power cuts befall also what is synced later.

    With `retain` logs drop what the group has passed, as on a worn disk. `disk_bytes` is how much
    the disk takes (0: any amount), `leap_ms` the furthest step of wall clocks. A buffer keeps
    `open_max` files open (0: all of them). With `framed` payloads hold frames of a log, and a disk
    leaves parts of the writes that fail.
    """

    partitions: int = 4
    members: int = 3
    producers: int = 2
    keys: int = 6
    lease_ms: int = 600
    revoke_deadline_ms: int = 800
    prepare_ms: int = 0
    grace_share: float = 0.3
    grace_ms: int = 1_000
    commit_interval_ms: int = 60
    write_latency_ms: int = 4
    write_records_max: int = 16
    send_interval_ms: int = 60
    trouble_ms: int = 6_000
    settle_ms: int = 30_000
    fault_interval_ms: int = 350
    dismiss_lost: float = 0.4
    stale_name: float = 0.2
    lanes: int = 0
    pulling: float = 0.0
    batches: bool = False
    commit_mode: int = 0
    commit_records: int = 100
    attempts_max: int = 0
    deadly: int = 0
    assigned_fails: float = 0.01
    death_noticed: float = 0.5
    durability: str = "interval"
    worn: bool = False
    segment_bytes: int = 1 << 20
    hot_bytes: int = 1 << 20
    append_timeout_ms: int = 30_000
    retain: bool = False
    disk_bytes: int = 0
    leap_ms: int = 86_400_000
    open_max: int = 0
    framed: bool = False
    network: Network = field(default_factory=Network)
    weights: Mapping[str, float] = field(default_factory=lambda: dict(FAULTS))


def draw(seed: int, overrides: Mapping[str, float] | None = None) -> Scenario:
    """The scenario of a seed. `overrides` sets numbers of the scenario, or weights of faults.

    Raises UsageError for a name that is neither.
    """
    dice = random.Random(f"scenario {seed}")
    calm = dice.random() < 0.3
    open_max = random.Random(f"files spare {seed}").choice((0, 0, 0, 3))
    drawn = Scenario(
        partitions=dice.choice((1, 2, 3, 4, 6, 8)),
        members=dice.choice((1, 2, 2, 3, 3, 4, 5)),
        producers=dice.choice((1, 2)),
        keys=dice.choice((2, 6, 12)),
        lease_ms=dice.choice((300, 600, 1_200)),
        revoke_deadline_ms=dice.choice((100, 800, 2_000)),
        prepare_ms=dice.choice((0, 0, 50, 1_000)),
        grace_share=dice.choice((0.0, 0.3, 1.0)),
        grace_ms=dice.choice((300, 1_500)),
        commit_interval_ms=dice.choice((5, 60, 300)),
        write_latency_ms=dice.choice((1, 4, 40)),
        write_records_max=dice.choice((1, 3, 64)),
        send_interval_ms=dice.choice((30, 60, 120)),
        fault_interval_ms=dice.choice((150, 350, 900)),
        network=Network()
        if calm
        else Network(
            lost=dice.choice((0.0, 0.02, 0.1)),
            doubled=dice.choice((0.0, 0.02, 0.1)),
            slow=dice.choice((0.0, 0.05, 0.2)),
            slow_ms_max=dice.choice((50, 500, 1_500)),
        ),
        # Not every kind of fault in every run: some only show where others leave things alone.
        weights={
            name: weight
            for name, weight in FAULTS.items()
            if dice.random() < 0.6 and (open_max or name not in _OF_FEW_FILES)
        },
        # Of dice of its own: other seeds' runs stay what they were.
        lanes=random.Random(f"lanes {seed}").choice((0, 0, 4)),
        pulling=random.Random(f"pulling {seed}").choice((0.0, 0.0, 0.5)),
        open_max=open_max,
        framed=random.Random(f"copied frames {seed}").random() < 0.2,
        **_draw_work(random.Random(f"work {seed}")),
        **_draw_disk(random.Random(f"disk {seed}")),
    )
    found = _override(drawn, overrides or {})
    # What was in hand at deaths rests longer from death to death.
    return replace(found, settle_ms=found.settle_ms * 5) if found.deadly else found


def _draw_disk(dice: random.Random) -> dict[str, Any]:
    return {
        "durability": dice.choice(("interval", "always")),
        "worn": dice.random() < 0.15,
        "segment_bytes": dice.choice((6_000, 1 << 20)),
        "hot_bytes": dice.choice((1_500, 1 << 20)),
        "append_timeout_ms": dice.choice((1_500, 30_000)),
    }


def _draw_work(dice: random.Random) -> dict[str, Any]:
    attempts_max = dice.choice((0, 3, 3))
    deadly = dice.choice((0, 0, 1)) if attempts_max else 0
    return {
        "batches": dice.random() < 0.25,
        "commit_mode": dice.choice((0, 0, 0, 1, 2)),
        "commit_records": dice.choice((3, 100)),
        "attempts_max": attempts_max,
        "deadly": deadly,
    }


def _override(scenario: Scenario, overrides: Mapping[str, float]) -> Scenario:
    plain = {f.name: f.type for f in fields(Scenario) if f.name not in ("network", "weights")}
    network = {f.name: f.type for f in fields(Network)}
    changes: dict[str, Any] = {}
    network_changes: dict[str, Any] = {}
    weights = dict(scenario.weights)
    for name, value in overrides.items():
        if name in plain:
            changes[name] = value if plain[name] == "float" else _KINDS[plain[name]](value)
        elif name in network:
            network_changes[name] = value if network[name] == "float" else int(value)
        elif name in FAULTS:
            weights[name] = value
        else:
            known = ", ".join(sorted([*plain, *network, *FAULTS]))
            raise UsageError(f"the simulator knows no {name!r}; it knows: {known}")
    changes["network"] = replace(scenario.network, **network_changes)
    return replace(scenario, weights=weights, **changes)
