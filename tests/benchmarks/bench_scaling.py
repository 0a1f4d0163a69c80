"""What scaling costs and moves, without Ray: the scaler against a threshold rule, and movement."""

from __future__ import annotations

import math

from pxrs_ray.group.assignors import assign
from pxrs_ray.model import Member
from tests.benchmarks.harness import figure
from tests.simulation.checkers.movement import minimum_movement
from tests.simulation.scaling_world import compare

MOVES = [(2, 3), (3, 4), (8, 9), (31, 32), (3, 2), (4, 3), (9, 8), (32, 31)]


@figure("scaling.area_ratio_to_threshold_rule", unit="ratio", runs=1, warmups=0)
def area_ratio() -> float:
    """Mean lag times consumer-seconds, ours over the rule's: geometric mean over all worlds."""
    logs = [math.log(ours.area / rule.area) for ours, rule in compare()]
    return math.exp(sum(logs) / len(logs))


@figure("scaling.excess_moves", unit="partitions", runs=1, warmups=0)
def excess_moves() -> float:
    """Partitions moved beyond the theoretical minimum by sticky, all cases added."""
    excess = 0
    for partitions in (8, 256):
        for before, after in MOVES:
            old = [Member(f"c{n:02}", 1) for n in range(before)]
            new = [Member(f"c{n:02}", 1) for n in range(after)]
            current = assign("sticky", old, partitions, {})
            target = assign("sticky", new, partitions, current)
            moved = sum(target.get(p) != owner for p, owner in current.items())
            excess += moved - minimum_movement(new, partitions, current)
    return float(excess)
