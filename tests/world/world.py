"""`World`: one topology of real actors, its drivers and its witness, on a simulated machine."""

from __future__ import annotations

import asyncio
import gc
import logging
import time as real_time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.client import topology as topologies
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.errors import DeadlineExceeded, PxrsError, StoreUnavailable
from pxrs_ray.store.memory import MemoryStore
from tests.world.cluster import Cluster
from tests.world.install import installed
from tests.world.kernel import PROCESS, Kernel, ProcessGone, SimThread
from tests.world.plan import NODES, Plan
from tests.world.witness import Handled, Witness

KEYS = 4
SEND_EVERY_S = 0.02
# Who waits for a late call goes on under less load: what could go wrong by then has had it.
SEND_SLOWLY_S = 0.4
MANY = 250
WORK_S = 0.004
AGAIN_S = 1.0
LOOK_S = 0.1
REAL_S_MAX = 300.0


class Broken(Exception):
    """Raised when a world does not come to where it should."""


class World:
    """See the module. `run` a scenario, a function of the world that runs as a driver would."""

    _current: World | None = None

    def __init__(self, folder: Path, plan: Plan | None = None) -> None:
        self.folder = folder
        self.plan = plan or Plan()
        self.kernel = Kernel()
        self.cluster = Cluster(self.kernel, self.plan)
        self.witness = Witness()
        self.tried_again: list[str] = []
        self.jobs: list[Job] = []

    @classmethod
    def current(cls) -> World:
        assert cls._current is not None
        return cls._current

    def config(self, **options: Any) -> PxrsConfig:
        """A topology with quick deadlines."""
        given: dict[str, Any] = {
            "name": "t",
            "data_dir": self.folder,
            "store": "memory:",
            "buffers": 2,
            "linger_ms": 2,
            "lease_ttl_seconds": 2.0,
            "revoke_deadline_ms": 2_000,
            "queues": {"q": QueueConfig(partitions=4)},
            "groups": {"g": GroupConfig(queue="q", commit_interval_ms=80)},
        }
        return PxrsConfig(**{**given, **options})

    def run(self, scenario: Callable[[World], None], seconds_max: float) -> list[str]:
        """Run it; answers what is wrong. It has so many of the world's seconds."""
        World._current = self
        logging.disable(logging.CRITICAL)
        try:
            machine = installed(self.kernel, self.cluster, self.folder)
            # What a killed process had open is closed by nobody.
            with machine, _watching(self.witness), warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                self.kernel.run(self._main(scenario, seconds_max))
        finally:
            World._current = None
            logging.disable(logging.NOTSET)
            self._forget()
        return [*self.witness.wrong, *self.kernel.faults]

    def _forget(self) -> None:
        """Let go of what killed processes left open, here and now: nobody else shall wonder."""
        self.cluster.actors.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()

    async def _main(self, scenario: Callable[[World], None], seconds_max: float) -> None:
        job = Job(self, "scenario", lambda: scenario(self), again=False)
        end_s, real_end_s = self.kernel.now_s + seconds_max, real_time.monotonic() + REAL_S_MAX
        while not job.over:
            await asyncio.sleep(LOOK_S)
            if self.kernel.now_s > end_s:
                raise Broken(f"not over after {seconds_max:g} s; {job.trouble}")
            if real_time.monotonic() > real_end_s:
                raise Broken(f"not over after {REAL_S_MAX:g} real seconds")
        if job.failed is not None:
            raise job.failed

    # --- for scenarios ----------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """What time it is here."""
        return self.kernel.now_s

    @property
    def put_s(self) -> float:
        """When the plan's fault was put."""
        return self.cluster.put_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.kernel.sleep(seconds)

    def until(self, what: str, look: Callable[[], Any], seconds: float) -> Any:
        """Wait until `look` answers something; trouble on the way is waited out."""
        end_s = self.kernel.now_s + seconds
        trouble: object = None
        while self.kernel.now_s < end_s:
            try:
                found = look()
            except (PxrsError, RayError) as error:
                trouble = error
            else:
                if found:
                    return found
            self.sleep(LOOK_S)
        raise Broken(f"{what}: not within {seconds:g} s ({trouble!r})")

    def job(self, name: str, do: Callable[[], object], *, again: bool = True) -> Job:
        """Do something in a process of its own; when that is killed it is started again."""
        return Job(self, name, do, again=again)

    def do(self, name: str, do: Callable[[], object], seconds: float = 200.0) -> None:
        """The same, and wait for its end."""
        job = self.job(name, do)
        end_s = self.kernel.now_s + seconds
        while not job.over and self.kernel.now_s < end_s:
            self.sleep(LOOK_S / 4)
        if job.failed is not None:
            raise job.failed
        if not job.over:
            raise Broken(f"{name} is not over after {seconds:g} s: {job.trouble}")


class Job:
    """What somebody wants done; whoever does it may be killed, and then does it again."""

    def __init__(self, world: World, name: str, do: Callable[[], object], *, again: bool) -> None:
        self.over = False
        self.failed: BaseException | None = None
        self.trouble = ""
        self._world, self._name, self._do, self._again = world, name, do, again
        self.process = self._start()

    def _start(self) -> Any:
        kernel = self._world.kernel
        process = kernel.process(self._name, NODES[0])
        process.at_death.append(lambda: self._died(process))
        self.process = process

        def begin() -> None:
            SimThread(target=self._body, name=self._name).start()

        kernel.loop.call_soon(begin, context=process.context.copy())
        return process

    def _body(self) -> None:
        while True:
            try:
                self._do()
            except (StoreUnavailable, DeadlineExceeded, RayError) as error:
                self.trouble = repr(error)
                self._world.tried_again.append(f"{self._name}: {error!r}")
                if self._again:
                    self._world.sleep(AGAIN_S)
                    continue
                self.failed = error
            except ProcessGone:
                raise
            except Exception as error:
                self.failed = error
            self.over = True
            return

    def _died(self, process: Any) -> None:
        if self.over or process is not self.process or self._world.kernel.loop.is_closed():
            return
        if self._again:
            self._world.kernel.later(AGAIN_S, self._start)
        else:
            self.failed, self.over = Broken(f"{self._name} was killed"), True

    def end(self) -> None:
        """Let it be."""
        self.over = True
        self._world.kernel.kill(self.process)


def pace_s(sent: int) -> float:
    """How long to wait before the next message."""
    return SEND_EVERY_S if sent < MANY else SEND_SLOWLY_S


class Feeder:
    """A producer that goes on for ever: messages of `KEYS` keys, numbered, noted when told.

    It comes back under its identity, so what its former life sent is never behind what it sends.
    """

    def __init__(self, world: World, queue: str = "q") -> None:
        self.stopping = False
        self._world, self._queue = world, queue
        self._next = 0
        world.witness.unacknowledged_too = True
        self._job = world.job("feeder", self._feed)

    def _feed(self) -> None:
        world = self._world
        with topologies.attach("t").producer(self._queue, producer_id="feeder") as producer:
            open_receipts = []
            while not self.stopping or open_receipts:
                if not self.stopping:
                    key = f"k{self._next % KEYS}"
                    text = f"{key}:{self._next}"
                    self._next += 1
                    open_receipts.append((text, producer.send(key, text)))
                world.sleep(pace_s(self._next))
                while open_receipts and open_receipts[0][1].done():
                    text, receipt = open_receipts.pop(0)
                    place = receipt.result()
                    world.witness.acknowledge(
                        text, self._queue, place.partition, place.offset, world.now_s
                    )

    def stop(self, seconds: float = 120.0) -> None:
        """Send no more, and wait until all is told."""
        self.stopping = True
        end_s = self._world.kernel.now_s + seconds
        while not self._job.over:
            if self._world.kernel.now_s > end_s:
                raise Broken(f"the producer does not end: {self._job.trouble}")
            self._world.sleep(LOOK_S)
        if self._job.failed is not None:
            raise self._job.failed

    @property
    def sent(self) -> int:
        """How many messages it has sent."""
        return self._next


class Handling:
    """The handler of every group here: works for a moment, and tells the witness."""

    def handle(self, message: Any) -> None:
        world = World.current()
        process = PROCESS.get()
        context, began_s = message.context, world.kernel.now_s
        who = f"{context.member}#{context.incarnation}"
        world.witness.begin(context.group, context.partition, context.epoch, who, context.offset)
        world.kernel.sleep(WORK_S)
        key, text = (message.key or b"").decode(), message.payload.decode()
        world.witness.end(
            Handled(
                began_s,
                world.kernel.now_s,
                context.group,
                context.queue,
                context.partition,
                context.epoch,
                context.offset,
                who,
                process.pid if process is not None else 0,
                key,
                text,
            )
        )


HANDLER = f"{Handling.__module__}:{Handling.__qualname__}"


class _watching:  # noqa: N801 - used like a function
    """Let the witness see what stores are asked to write, and what they answer."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._write = MemoryStore.write

    def __enter__(self) -> None:
        write, witness = self._write, self._witness

        def seen(store: MemoryStore, group: str, generation: int, records: Any) -> Any:
            before = store.load(group)
            outcomes = write(store, group, generation, records)
            if before is not None:
                witness.written(group, before, records, outcomes)
            return outcomes

        MemoryStore.write = seen  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        MemoryStore.write = self._write  # type: ignore[method-assign]
