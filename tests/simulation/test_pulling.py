"""The simulated pulling caller tells its process of whatever it may have to commit."""

from __future__ import annotations

from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.model import Grant
from tests.simulation.simulator.puller import PullWork
from tests.simulation.simulator.scenario import draw
from tests.simulation.simulator.world import Process, World


class _NoMachine:
    """A process whose machine is not asked for anything."""

    machine = None

    def carry_out(self) -> None: ...

    def promise(self, *_: object) -> None: ...


def test_a_gap_that_an_idle_caller_passes_is_told() -> None:
    told: list[int] = []
    process = Process(World(0, draw(0)), "caller")
    work = PullWork(
        process,
        _NoMachine(),  # type: ignore[arg-type]
        100,
        lambda: True,
        lambda: told.append(1),
        says_offsets=False,
    )
    work.begin(ConsumerSession("m", 1, work), Grant(0, 1, 0))
    work.changed = False
    told.clear()
    work.skip(0, 1, 9)
    progress = work.progress(0, 1)
    assert progress is not None
    assert progress.checkpoint == 9
    assert told == [1]
