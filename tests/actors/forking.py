"""A program: a handler that forks in many ways, in a worker of one way of processing. Run it alone.

    python -m tests.actors.forking WAY

Prints a line a message: what the handler saw of its child. The process that runs this listens for
SIGTERM as every consumer does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pxrs_ray.actors.cluster.sigterm import on_terminate
from pxrs_ray.actors.consumer.worker import Worker
from pxrs_ray.config import ByKey, GroupConfig
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Grant
from tests.actors.in_process import by_reference, until
from tests.actors.worker_bench import WorkerCallbacks

WAIT_S = 30.0
# Longer than a child is waited for, and no longer: where it is not ended, all wait for it.
CHILD_S = 20


def sleep_long() -> None:
    time.sleep(CHILD_S)


def double(number: int) -> int:
    return number * 2


def ends(process: Any) -> str:
    """Terminate a helper, as its owner may: it has to end by that."""
    process.start()
    time.sleep(0.3)
    process.terminate()
    process.join(10)
    return f"exitcode {process.exitcode}"


def forked(leave: Callable[[], object]) -> str:
    pid = os.fork()
    if pid == 0:
        signal.alarm(CHILD_S)  # whatever becomes of it, it does not stay
        leave()
        raise Returns
    _, status = os.waitpid(pid, 0)
    return f"status {os.waitstatus_to_exitcode(status)}"


class Returns(Exception):
    """The child comes back from the handler."""


# Registered before the consumer's: so it runs in a child before that lets go of anything.
os.register_at_fork(after_in_child=lambda: _end_at_once and os.kill(os.getpid(), signal.SIGTERM))
_end_at_once = False


def ended_as_it_begins() -> str:
    """As a pool does that is closed while a worker of it has only just begun."""
    global _end_at_once
    _end_at_once = True
    try:
        return forked(lambda: time.sleep(1))
    finally:
        _end_at_once = False


def fail() -> None:
    raise ValueError("of the child")


def controller() -> str:
    process = subprocess.Popen(["sleep", "60"])
    process.terminate()
    return f"exitcode {process.wait(10)}"


def pool() -> str:
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return f"{workers.map(double, range(3))}"


def take_the_signal() -> str:
    faulthandler.register(signal.SIGTERM, file=sys.stderr)
    return "taken"


STEPS: dict[str, Callable[[], str]] = {
    "fork, return": lambda: forked(lambda: None),
    "fork, sys.exit(3)": lambda: forked(lambda: sys.exit(3)),
    "fork, sys.exit()": lambda: forked(sys.exit),
    "fork, raise": lambda: forked(fail),
    "fork, os._exit(4)": lambda: forked(lambda: os._exit(4)),
    "fork, ended at once": ended_as_it_begins,
    "multiprocessing, fork": lambda: ends(
        multiprocessing.get_context("fork").Process(target=sleep_long)
    ),
    "multiprocessing, spawn": lambda: ends(
        multiprocessing.get_context("spawn").Process(target=sleep_long)
    ),
    "multiprocessing, forkserver": lambda: ends(
        multiprocessing.get_context("forkserver").Process(target=sleep_long)
    ),
    "a pool": pool,
    "a shell's process": controller,
    "the signal": take_the_signal,
}
SEEN = {
    "fork, return": "status 0",
    "fork, sys.exit(3)": "status 3",
    "fork, sys.exit()": "status 0",
    "fork, raise": "status 1",
    "fork, os._exit(4)": "status 4",
    "fork, ended at once": "status -15",
    "multiprocessing, fork": "exitcode -15",
    "multiprocessing, spawn": "exitcode -15",
    "multiprocessing, forkserver": "exitcode -15",
    "a pool": "[0, 2, 4]",
    "a shell's process": "exitcode -15",
    "the signal": "taken",
}
WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "async": {},
    "batches": {},
    "lanes": {"processing": ByKey(parallelism=2)},
    "lanes, async": {"processing": ByKey(parallelism=2)},
}


def handler_of(way: str) -> object:
    def call(message: Delivery) -> None:
        name = message.payload.decode()
        try:
            seen = STEPS[name]()
        except Returns:
            return
        print(f"{name}: {seen}", flush=True)

    async def handle(message: Delivery) -> None:
        call(message)

    def handle_batch(batch: DeliveredBatch) -> None:
        for message in batch:
            call(message)

    return handle if "async" in way else handle_batch if way == "batches" else call


async def main(way: str) -> None:
    from pxrs_ray.actors.consumer.handler import Handler
    from pxrs_ray.actors.consumer.parallel_worker import ParallelWorker
    from pxrs_ray.actors.consumer.sequential_worker import SequentialWorker
    from pxrs_ray.config.scheduling import retry_rules, scheduler_for
    from pxrs_ray.model import Progress

    told = asyncio.Event()
    close = on_terminate(told.set)
    config = GroupConfig(queue="q", attempts_max=1, failure_policy="skip", **WAYS[way])
    handler, callbacks = Handler(by_reference(handler_of(way))), WorkerCallbacks()
    grant, shared = Grant(0, 1, 0), DeliveryContext("q", "g", "c", 1, 0, 1, topology_id="t-1")
    scheduler = scheduler_for(config, Progress(0))
    worker: Worker = (
        SequentialWorker(grant, shared, handler, retry_rules(config), callbacks, config, None)
        if scheduler is None
        else ParallelWorker(grant, shared, handler, scheduler, callbacks, config, None)
    )
    worker.start()
    for number, name in enumerate(STEPS):
        batch = Batch.of([b"k"], [name.encode()], timestamp_ms=1)
        worker.put(Batch(0, number, batch.flags, batch.columns, 1), 1)
    await until(lambda: worker.progress().checkpoint == len(STEPS), WAIT_S)
    worker.stop()
    assert await asyncio.to_thread(worker.join, WAIT_S)
    print(f"gave up: {[failure.error for failure, _ in callbacks.given_up]}", flush=True)
    assert not told.is_set(), "a SIGTERM of a child was told to the consumer"
    # The handler took the signal for itself, for a second at most.
    await asyncio.sleep(1.2)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(told.wait(), WAIT_S)
    print("told", flush=True)
    close()
    handler.close()


def as_rays_worker(number: int, frame: object) -> None:
    """Ray has a handler of its own, which Python would run in children too."""
    print(f"signal {number} ran Python's handler", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, as_rays_worker)
    # As in a Ray actor, the loop is not on the main thread.
    running = threading.Thread(target=lambda: asyncio.run(main(sys.argv[1])))
    running.start()
    running.join()
