"""Nets that put a fault at every step: each module fails all operations of its scenarios in turn.

A module (files, appends, control, calls) offers `run() -> FaultReport`. It takes every operation
of its scenarios (a call to the disk, a call between processes), fails it alone, lets everything
heal, and judges the promises from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class FaultReport:
    """What a net did: how many operations it failed, one by one, and every promise then broken.

    `steps` counts faults that were really put (an operation reached and failed), not runs.
    Each failure names the scenario, the operation, its number, the fault, and what was broken,
    so that it can be replayed.
    """

    steps: int
    failures: list[str] = field(default_factory=list)

    def __add__(self, other: FaultReport) -> FaultReport:
        return FaultReport(self.steps + other.steps, [*self.failures, *other.failures])
