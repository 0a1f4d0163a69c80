"""Each append call is lost, late, doubled, or its buffer killed just before and just after.

The scenarios have several frames under way, a partition that is full for a while, a frame that is
refused for good, and a buffer that is silent for so long that appends are given up; then the same
with a buffer that restarts in the middle, and with a producer that comes back. A run without a
fault tells how many calls there are; then each of them in turn gets each fault, in a world of its
own. `python -m tests.faults.appends` tells every failure.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pxrs_ray.data.log_limits import Durability
from tests.faults import FaultReport
from tests.faults.append_world import FAULTS, POISON, Fault, World

Script = Callable[[World], None]


def steady(world: World) -> None:
    """Two partitions, several frames of each under way at any time."""
    world.begin_life(1)
    for number in range(36):
        world.at(number * 2, partial(_send, world, 0, number % 2, number))


def giving_up(world: World) -> None:
    """A full partition, a frame that is refused for good, and a silence longer than any append."""
    world.begin_life(1)
    for number in range(44):
        payload = POISON if number in (9, 16) else b""
        world.at(number * 4, partial(_send, world, 0, number % 2, number, payload))
    world.at(30, partial(world.full.add, 0))
    world.at(70, partial(world.full.discard, 0))
    # What comes to buffer 0 from now on waits until the process goes on.
    world.at(85, partial(world.frozen.__setitem__, 0, 260))
    world.at(85, partial(world.frozen.__setitem__, 1, 120))
    for number in range(44, 50):
        world.at(300 + number * 3, partial(_send, world, 0, number % 2, number))


def restarting(world: World, how: str) -> None:
    """As `giving_up`, with buffers that end in the middle, one after the other."""
    giving_up(world)
    for at_ms, index in ((40, 0), (110, 1), (290, 0)):
        options = {"power": how == "power cut", "clean": how == "clean"}
        world.at(at_ms, partial(world.end_buffer, index, **options))


def coming_back(world: World, how: str) -> None:
    """A producer that hangs with frames everywhere, and its next life, and the one after that."""
    world.begin_life(1)
    for number in range(20):
        world.at(number * 2, partial(_send, world, 0, number % 2, number))
    world.at(20, partial(world.frozen.__setitem__, 0, 70))
    if how:
        options = {"power": how == "power cut", "clean": how == "clean"}
        world.at(55, partial(world.end_buffer, 0, **options))
    for life, begins_ms in ((1, 110), (2, 170)):
        world.at(begins_ms, partial(_begin, world, life + 1))
        for number in range(12):
            told = 20 * life + number
            world.at(begins_ms + 25 + number * 2, partial(_send, world, life, told % 2, told))
    world.at(180, partial(world.frozen.__setitem__, 0, 200))


def _begin(world: World, generation: int) -> None:
    """Every buffer must answer: one that is away is asked again."""
    if all(buffer.alive for buffer in world.buffers):
        world.begin_life(generation)
    else:
        world.at(world.now_ms + 5, partial(_begin, world, generation))


def _send(world: World, life: int, to: int, number: int, payload: bytes = b"") -> None:
    if life < len(world.lives):
        world.lives[life].send(to, number, payload)
    else:
        world.at(world.now_ms + 5, partial(_send, world, life, to, number, payload))


SCENARIOS: Mapping[str, Script] = {
    "steady": steady,
    "giving up": giving_up,
    "clean restart": partial(restarting, how="clean"),
    "killed": partial(restarting, how="killed"),
    "power cut": partial(restarting, how="power cut"),
    "coming back": partial(coming_back, how=""),
    "coming back, killed": partial(coming_back, how="killed"),
    "coming back, power cut": partial(coming_back, how="power cut"),
}


def attempt(scenario: str, fault: Fault | None) -> tuple[World, list[str]]:
    """One world with one fault; answers what is wrong. Only `always` promises to outlive power."""
    power = "power" in scenario or (fault is not None and fault.kind.startswith("power"))
    durability = Durability.ALWAYS if power else Durability.INTERVAL
    with tempfile.TemporaryDirectory(prefix="pxrs-appends-") as folder:
        world = World(Path(folder), fault, durability)
        try:
            SCENARIOS[scenario](world)
            world.run()
            return world, world.judge()
        finally:
            world.close()


def run(stop_at_first: bool = False, part: int = 1) -> FaultReport:
    """Fault the calls of every scenario, one by one; every `part`th of them."""
    report = FaultReport(0)
    for scenario in SCENARIOS:
        world, wrong = attempt(scenario, None)
        report += FaultReport(0, [f"{scenario} without a fault: {each}" for each in wrong])
        faults = [Fault(call, kind) for call in range(world.calls) for kind in FAULTS]
        for fault in faults[::part]:
            world, wrong = attempt(scenario, fault)
            told = [f"{scenario}: call {fault.call} {fault.kind}: {each}" for each in wrong]
            report += FaultReport(int(world.put), told)
            if stop_at_first and report.failures:
                return report
    return report


if __name__ == "__main__":
    found = run("--stop-at-first" in sys.argv)
    print(f"{found.steps} append calls were failed, {len(found.failures)} findings")
    for line in found.failures:
        print(f"  {line}")
    sys.exit(1 if found.failures else 0)
