"""Each kind of end, injected at each place where a loop or thread runs: it is told, and goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.actors.cluster.thread_pool import ThreadPool
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.supervision.restart_rules import RestartRules, told
from pxrs_ray.supervision.supervisor import (
    LoopThread,
    Supervisor,
    contained,
    off_loop,
    problems_here,
)
from tests.actors.ends import KINDS
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world
from tests.settings import producer_limits

SOON = RestartRules(pause_first_s=0.001, pause_most_s=0.01, faults_max=5)
every_kind = pytest.mark.parametrize("kind", KINDS)


class Fails:
    """Raises so many times, and then works."""

    def __init__(self, kind: str, times: int) -> None:
        self.kind, self.left, self.worked = kind, times, threading.Event()

    def __call__(self, *arguments: object) -> None:
        if self.left:
            self.left -= 1
            raise KINDS[self.kind]()
        self.worked.set()


def of_a_coroutine(kind: str) -> type[BaseException]:
    """What Python makes of a kind that leaves a coroutine."""
    return RuntimeError if kind == "StopIteration" else KINDS[kind]


def run(work: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


# --- the supervisor itself ----------------------------------------------------------------------


@every_kind
def test_a_loop_begins_again_and_is_shown(kind: str) -> None:
    async def main() -> None:
        supervisor, fails = Supervisor("a", SOON), Fails(kind, 3)

        async def loop() -> None:
            fails()
            await asyncio.sleep(60)

        task = supervisor.keep("the loop", loop)
        await until(fails.worked.is_set)
        [problem] = supervisor.problems()
        assert problem.startswith("the loop (3 times): ") and kind in problem
        assert f"a: {problem}" in problems_here()
        await asyncio.wait_for(supervisor.close(), 5)
        assert task.done()

    run(main)


@every_kind
def test_a_loop_that_fails_again_and_again_is_given_up_and_that_is_told(kind: str) -> None:
    async def main() -> None:
        supervisor, fails = Supervisor("a", SOON), Fails(kind, 1_000)
        gave_up: list[BaseException] = []

        async def loop() -> None:
            fails()

        await supervisor.keep("the loop", loop, gave_up.append)
        assert 1_000 - fails.left == 5 and [type(e) for e in gave_up] == [of_a_coroutine(kind)]
        assert kind in supervisor.problems()[0]

    run(main)


@every_kind
def test_work_done_once_tells_its_fault_and_answers_none(kind: str) -> None:
    async def main() -> None:
        supervisor = Supervisor("a", SOON)
        failed: list[BaseException] = []

        async def work() -> int:
            await asyncio.sleep(0)
            raise KINDS[kind]()

        assert await supervisor.once("the work", work(), failed.append) is None
        assert [type(e) for e in failed] == [of_a_coroutine(kind)] and supervisor.problems()

    run(main)


def test_what_is_cancelled_ends_quietly() -> None:
    async def main() -> None:
        supervisor = Supervisor("a", SOON)

        async def loop() -> None:
            await asyncio.sleep(60)

        task = supervisor.keep("the loop", loop)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert supervisor.problems() == ()

    run(main)


@every_kind
def test_a_thread_begins_again(kind: str) -> None:
    supervisor, fails = Supervisor("a", SOON), Fails(kind, 3)
    thread = supervisor.thread("t", fails, again=lambda: True)
    thread.start()
    assert fails.worked.wait(5) and kind in supervisor.problems()[0]
    thread.join(5)
    assert not thread.is_alive()


@every_kind
def test_the_loop_of_a_thread_outlives_what_runs_on_it(kind: str) -> None:
    loop = LoopThread("pxrs-test-loop")

    async def raises() -> None:
        raise KINDS[kind]()

    async def leaves_a_task() -> None:
        # A task of the user's own: what it raises reaches the loop itself.
        loop.loop.call_soon(Fails(kind, 1))
        user = asyncio.ensure_future(raises())
        await asyncio.wait([user])
        if not user.cancelled():
            user.exception()

    async def works() -> int:
        return 7

    with pytest.raises(Exception):  # noqa: B017 - of each kind comes an ordinary error
        loop.begin(raises()).result(5)
    loop.begin(leaves_a_task()).result(5)
    assert loop.begin(works()).result(5) == 7
    loop.close()


@every_kind
def test_what_runs_off_the_loop_is_raised_to_who_awaits_it(kind: str) -> None:
    async def main() -> None:
        with pytest.raises(Exception) as raised:
            await asyncio.wait_for(off_loop(Fails(kind, 1)), 5)
        assert kind in told(raised.value)

        async def work() -> None:
            raise KINDS[kind]()

        with pytest.raises(Exception):  # noqa: B017
            await contained(work())

    run(main)


@every_kind
def test_a_pool_loses_no_thread_to_a_call(kind: str) -> None:
    pool, fails = ThreadPool("pxrs-test-pool", 1), Fails(kind, 3)
    for _ in range(4):
        pool.submit(fails)
    assert fails.worked.wait(5)
    pool.close()


# --- the loops of a member ----------------------------------------------------------------------

CALLS = ["heartbeat", "commit", "fetch"]


@every_kind
@pytest.mark.parametrize("place", CALLS)
def test_a_loop_of_a_member_begins_again_and_its_work_goes_on(
    world: Any, place: str, kind: str
) -> None:
    async def main() -> None:
        here: World = world(2, lease_ttl_seconds=1.0)
        await here.up()
        await here.produce([b"k"] * 3, 0)
        consumer = await here.consumer("c1", lambda message: None)
        await here.reaches(3, 0)
        fails = Fails(kind, 2)
        here.faults = lambda name, arguments: fails() if name == place else None
        await here.produce([b"k"] * 3, 1)
        await until(lambda: fails.left == 0)
        assert any(kind in line for line in consumer._problems())
        await here.reaches(3, 3)
        await here.produce([b"k"] * 3, 0)
        await here.reaches(6, 3)
        assert consumer._live().failed is None
        assert await consumer._live().leave("the test", 5.0)
        await here.down()

    run(main)


@every_kind
def test_a_release_that_fails_is_made_again(world: Any, kind: str) -> None:
    async def main() -> None:
        here: World = world(1)
        await here.up()
        consumer = await here.consumer("c1", lambda message: None)
        fails = Fails(kind, 2)
        here.faults = lambda name, arguments: fails() if name == "release" else None
        leaving = asyncio.ensure_future(consumer._live().leave("the test", 5.0))
        await until(lambda: any(kind in line for line in consumer._problems()))
        assert await leaving and fails.left == 0
        await here.down()

    run(main)


@every_kind
def test_a_member_whose_loop_never_works_is_given_up_and_says_so(world: Any, kind: str) -> None:
    async def main() -> None:
        here: World = world(1)
        await here.up()
        consumer = await here.consumer("c1", lambda message: None)
        await here.reaches(0)
        fails = Fails(kind, 10**6)
        here.faults = lambda name, arguments: fails() if name == "commit" else None
        await here.produce([b"k"] * 3)
        assert await asyncio.wait_for(consumer.run(), 20) != "finished"
        assert kind in " ".join(consumer._problems())
        await here.down()

    run(main)


# --- the loops of the group, and of a producer --------------------------------------------------


@every_kind
@pytest.mark.parametrize("step", ["_do", "_made", "_do_what_is_due", "_write_next"])
def test_a_group_that_fails_is_loaded_again_and_answers(world: Any, step: str, kind: str) -> None:
    """Where its host carries out and calls the store, where time passes, where records leave."""

    async def main() -> None:
        here: World = world(1)
        await here.up()

        part = here.host if hasattr(here.host, step) else here.host.runtime
        fails, real = Fails(kind, 2), getattr(part, step)

        def fail(*arguments: object) -> Any:
            fails()
            return real(*arguments)

        setattr(part, step, fail)
        await here.produce([b"k"] * 3)
        await here.consumer("c1", lambda message: None)
        await here.reaches(3)
        await until(lambda: fails.left == 0 and here.host.problem)
        assert KINDS[kind].__name__ in here.host.problem
        await here.down()

    run(main)


@every_kind
def test_a_producers_thread_goes_on(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    producer = Producer("t", "q", 1, Partitioner(1), producer_limits())
    fails = Fails(kind, 2)
    monkeypatch.setattr(producer._sender, "expire", fails)
    for _ in range(3):
        producer._answers.wake()
    assert fails.worked.wait(10)
    producer.close(5)
    assert not producer._thread.is_alive()
