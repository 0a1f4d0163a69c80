"""Fails every operation on files of a buffer's life, one by one: see `run`.

python -m tests.faults.files [--kinds ENOSPC,power] [--at 17] [--durability always]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

from pxrs_ray.actors.buffer import maintenance
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.log import log_manager
from tests.faults import FaultReport
from tests.faults.faulty_files import ENDS, KINDS, Ended, Fault
from tests.faults.log_world import GROUP, QUEUE, Broken, World

MEND_EVERY_S = 0.005
MEND_FIRST_MS = 2
SECONDS_A_RUN = 30.0
# All operations are some thousands, and take minutes; this many are left out where none is named.
EVERY = 17
# A fault that lasts for some operations meets what is done about its beginning.
BURSTS = {"ENOSPC": (1, 7), "EIO": (1, 4), "EMFILE": (1, 7), "EACCES": (1,)}

Step = Callable[[World], Awaitable[None]]


async def _first_messages(world: World) -> None:
    await world.send(0, 6)
    await world.send(1, 3)


async def _a_group_reads(world: World) -> None:
    await world.consume(0)
    await world.consume(1)


async def _more_and_less(world: World) -> None:
    await world.send(0, 14)
    await world.consume(0)
    await world.retain()


async def _another_reader(world: World) -> None:
    await world.insist(lambda: world.alive.fence(QUEUE, GROUP, {0: 1}))
    await world.send(1, 6)
    await world.read(1, world.lanes[1].passed)


async def _other_limits(world: World) -> None:
    world.limits = replace(world.limits, tail_bytes_max=900)
    await world.insist(lambda: world.alive.open(world.spec, {0: world.lanes[0].passed}, make=False))
    await world.send(0, 17)


async def _ends_and_beginnings(world: World) -> None:
    await world.come_back()
    await world.lose_a_group()
    await world.lose_a_queue()


async def _a_restart(world: World) -> None:
    await world.stop()
    if world.files.dead:
        raise Ended
    await world.start()
    await world.send(0, 20)
    await world.send(1, 8)


async def _old_messages(world: World) -> None:
    await world.consume(0)
    await world.retain()
    await world.send(0, 23)
    await world.judge()


LIFE: tuple[Step, ...] = (
    _first_messages,
    _a_group_reads,
    _more_and_less,
    _another_reader,
    _other_limits,
    _ends_and_beginnings,
    _a_restart,
    _old_messages,
)


async def live(world: World, fault: Fault | None) -> None:
    """One life with one fault, and then, without any, a kill and a power cut. Raises Broken."""
    world.files.put(fault)
    at, started = 0, False
    while at < len(LIFE):
        try:
            if not started:
                await world.start()
                started = True
            await LIFE[at](world)
            at += 1
        except BaseException:
            if not world.files.dead or fault is None or fault.kind not in ENDS:
                raise
            await world.die(power=fault.kind != "kill")
            started = False
    world.files.fault = None
    for power in (False, True):
        await world.judge()
        await world.die(power=power)
        await world.start()
        await world.judge()
        await world.send(0, world.lanes[0].sent + 1)
        await world.send(1, world.lanes[1].sent + 1)
    await world.judge()
    await world.stop()
    world.check_nothing_is_open()


@dataclass(frozen=True)
class Case:
    """One run: who, and what befalls it."""

    durability: Durability
    fault: Fault

    def told(self, where: str, error: BaseException) -> str:
        """A line that says how to see it again."""
        fault = self.fault
        return (
            f"files: {self.durability} {fault.kind} at {fault.at} x{fault.burst} ({where}): "
            f"{type(error).__name__}: {error}"
        )


def play(case: Case) -> tuple[int, str]:
    """Run one case: how many operations failed, and what promise was broken ('' for none)."""
    world = World(case.durability, case.fault.at, few_files=case.fault.at % 2 == 1)
    try:
        asyncio.run(asyncio.wait_for(live(world, case.fault), SECONDS_A_RUN))
    except (Broken, Exception) as error:
        return world.files.fired, case.told(world.files.where, error)
    finally:
        world.close()
    return world.files.fired, ""


def sweep(durability: Durability, kind: str, burst: int, every: int) -> Iterator[tuple[int, str]]:
    """Put the fault at each operation in turn, until there are no more."""
    at = 0
    while True:
        fired, broken = play(Case(durability, Fault(kind, at, burst)))
        if not fired and not broken:
            return
        yield fired, broken
        at += every


def run(every: int = EVERY, kinds: tuple[str, ...] = tuple(KINDS)) -> FaultReport:
    """All of it; `every` leaves operations out. At most one failure a sweep is looked for."""
    report = FaultReport(0)
    with QuickAndQuiet():
        for durability in (Durability.INTERVAL, Durability.ALWAYS):
            for kind in kinds:
                for burst in BURSTS.get(kind, (1,)):
                    for fired, broken in sweep(durability, kind, burst, every):
                        report += FaultReport(min(1, fired), [broken] if broken else [])
    return report


class QuickAndQuiet:
    """Mending does not pause for long, and what is simulated is not journalled."""

    def __enter__(self) -> None:
        self._before = (
            maintenance.MEND_EVERY_S,
            log_manager.MEND_FIRST_MS,
            logging.root.manager.disable,
        )
        maintenance.MEND_EVERY_S, log_manager.MEND_FIRST_MS = MEND_EVERY_S, MEND_FIRST_MS
        logging.disable(logging.CRITICAL)

    def __exit__(self, *_: object) -> None:
        maintenance.MEND_EVERY_S, log_manager.MEND_FIRST_MS = self._before[:2]
        logging.disable(self._before[2])


def main() -> None:
    """Run from the command line, and say what was broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--at", type=int)
    parser.add_argument("--burst", type=int, default=1)
    parser.add_argument("--durability", default="interval")
    given = parser.parse_args()
    kinds = tuple(given.kinds.split(","))
    if given.at is not None:
        with QuickAndQuiet():
            case = Case(Durability(given.durability), Fault(kinds[0], given.at, given.burst))
            print(play(case))
        return
    report = run(given.every, kinds)
    for failure in report.failures:
        print(failure)
    print(f"{report.steps} operations failed one by one, {len(report.failures)} broken promises")


if __name__ == "__main__":
    main()
