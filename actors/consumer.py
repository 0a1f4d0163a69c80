"""`Consumer`: the actor of one group member. Its handler runs on a thread a partition.

Rules of this file: the event loop keeps heartbeats, fetches and commits going; a handler runs on
a worker's thread and can be as slow as it likes. `run` is the call that the coordinator awaits to
learn of this process's death at once, so a graceful end must first let it return.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.course_worker import CourseWorker
from pxrs_ray.actors.handler import Handler
from pxrs_ray.actors.in_order import InOrderWorker
from pxrs_ray.actors.letters import DeadLetters
from pxrs_ray.actors.memory import keep_what_is_loaded
from pxrs_ray.actors.quarantine_log import QuarantineLog
from pxrs_ray.actors.runtime import ConsumerRuntime
from pxrs_ray.actors.specs import ConsumerSpec
from pxrs_ray.actors.termination import on_terminate
from pxrs_ray.actors.ways import open_ways
from pxrs_ray.actors.worker import Failure, Worker
from pxrs_ray.batch import Batch
from pxrs_ray.delivery import Desk
from pxrs_ray.errors import HandlerError, PxrsError
from pxrs_ray.events import Assignment
from pxrs_ray.journal import start_journal
from pxrs_ray.model import (
    Epoch,
    Grant,
    Incarnation,
    MemberId,
    Message,
    Offset,
    PartitionId,
)
from pxrs_ray.processing.course import Standing
from pxrs_ray.processing.plan import lane_course, pack_course, retry_rules
from pxrs_ray.retry import FailurePolicy

logger = logging.getLogger(__name__)

CHECKPOINT_WAIT_S = 60.0
TERMINATE_EXTRA_S = 2.0
SKIPPED_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """What a consumer says of itself."""

    member: MemberId
    incarnation: Incarnation
    pid: int
    node: str
    partitions: tuple[PartitionId, ...]
    processed: int
    failures: tuple[Failure, ...] = field(default=())
    given_up: tuple[Failure, ...] = field(default=())
    problem: str = ""


class Consumer:
    """One consumer of a group. Made by the coordinator only; see `pxrs_ray.actors.crew`."""

    def __init__(self, spec: ConsumerSpec) -> None:
        group = spec.group
        start_journal(topology=group.topology, group=group.group, member=spec.member)
        self._spec = spec
        self._config = spec.group.config
        self._handler = Handler(spec.handler)
        if self._handler.wants_batch and (self._config.by_pack or self._config.by_lane):
            raise HandlerError(
                f"handler {self._handler.name} takes batches, and the options of group "
                f"{spec.group.group} need one that takes single messages"
            )
        if not self._config.consumer_per_partition:
            self._handler.one_at_a_time()
        keep_what_is_loaded()
        self._workers: dict[PartitionId, Worker] = {}
        self._processed_by_ended = 0
        self._given_up: list[Failure] = []
        self._letters = DeadLetters(spec.group)
        self._finished = asyncio.Event()
        self._loading: dict[PartitionId, asyncio.Future[None]] = {}
        self._runtime: ConsumerRuntime | None = None
        self._watch: asyncio.Task[None]
        self._ending: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None]
        self._loop: asyncio.AbstractEventLoop

    async def ready(self) -> tuple[int, str]:
        """Answer when the handler is loaded and nothing is cold: process id and node."""
        await open_ways(self._spec.group.topology, self._spec.group.buffers)
        return self._where()

    def _where(self) -> tuple[int, str]:
        return os.getpid(), ray.get_runtime_context().get_node_id()

    async def begin(
        self, incarnation: Incarnation, assignment: Assignment | None
    ) -> tuple[int, str]:
        """Start working as `incarnation`; calling it again changes nothing. Answers as `ready`."""
        if self._runtime is None:
            self._loop = asyncio.get_running_loop()
            self._runtime = ConsumerRuntime(
                self._spec.group, self._spec.member, incarnation, self._spec.actor, self
            )
            self._runtime.start(assignment)
            self._watch = asyncio.ensure_future(self._end_with(self._runtime))
            self._stop_listening = on_terminate(self._terminate)
        return self._where()

    async def _end_with(self, runtime: ConsumerRuntime) -> None:
        await runtime.ended.wait()
        self._finished.set()

    def _terminate(self) -> None:
        """Somebody has asked this process to end: not before everything is handed back."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._hand_over_and_exit())

    async def _hand_over_and_exit(self) -> None:
        try:
            wait_s = self._config.revoke_deadline_ms / 1_000 + TERMINATE_EXTRA_S
            await self._live().leave("its process was told to end", wait_s)
            await self.finish()
        except PxrsError as error:
            logger.warning("%s ends without having handed over: %s", self._spec.actor, error)
        finally:
            os._exit(0)

    async def redrive(self, partition: PartitionId) -> None:
        """An operator has asked something of this partition's quarantine."""
        worker = self._workers.get(partition)
        if isinstance(worker, CourseWorker):
            worker.redrive()

    async def run(self) -> str:
        """Never return, but at an end: whoever awaits this learns of a death at once."""
        await self._finished.wait()
        failed = self._runtime.failed if self._runtime is not None else None
        return repr(failed) if failed is not None else "finished"

    async def finish(self) -> None:
        """End gracefully: everything has been handed back. `run` returns."""
        runtime = self._runtime
        if runtime is not None:
            self._stop_listening()
            await runtime.close()
        for worker in self._workers.values():
            worker.stop()
        await asyncio.to_thread(self._close_all)
        self._finished.set()

    def _close_all(self) -> None:
        for worker in list(self._workers.values()):
            worker.join(5)
        self._handler.close()
        self._letters.close()

    async def info(self) -> ConsumerInfo:
        """What it holds and how it goes."""
        runtime = self._runtime
        session = runtime.session if runtime is not None else None
        return ConsumerInfo(
            self._spec.member,
            session.incarnation if session else self._spec.incarnation,
            os.getpid(),
            ray.get_runtime_context().get_node_id(),
            tuple(sorted(session.holdings)) if session else (),
            self._processed_by_ended + sum(w.passed for w in self._workers.values()),
            tuple(w.failed for w in self._workers.values() if w.failed is not None),
            tuple(self._given_up),
            repr(runtime.failed) if runtime is not None and runtime.failed is not None else "",
        )

    # --- Hooks: called by the runtime, on the event loop ------------------------------------------

    def started(self, grant: Grant) -> None:
        """Put a worker on the partition; an older one may still be ending its last message."""
        runtime = self._live()
        desk = Desk(
            self._spec.group.queue,
            self._spec.group.group,
            self._spec.member,
            runtime.session.incarnation,
            grant.partition,
            grant.epoch,
            grant.attempts + 1,
        )
        worker = self._worker(grant, desk, self._workers.get(grant.partition))
        self._workers[grant.partition] = worker
        worker.start()

    def _worker(self, grant: Grant, desk: Desk, before: Worker | None) -> Worker:
        config, handler = self._config, self._handler
        standing = Standing(grant.checkpoint, grant.attempts, grant.detail)
        if config.by_pack:
            packs = pack_course(config, standing)
            return CourseWorker(grant, desk, handler, packs, self, config, before)
        # A former configuration may have left messages done out of order: they stay done.
        if config.by_lane or (grant.detail and not handler.wants_batch):
            dense = self._spec.group.source is None
            lanes = lane_course(config, standing, dense=dense)
            aside = None
            if config.failure_policy == "quarantine":
                aside = QuarantineLog.of_owner(self._spec.group, grant.partition, grant.epoch)
            return CourseWorker(grant, desk, handler, lanes, self, config, before, aside)
        return InOrderWorker(grant, desk, handler, retry_rules(config), self, config, before)

    def preparing(self, grant: Grant) -> None:
        """Let the handler load for a partition that will come, on a thread of its own."""
        loading = asyncio.ensure_future(self._load(grant))
        self._loading[grant.partition] = loading

    async def _load(self, grant: Grant) -> None:
        try:
            await asyncio.to_thread(self._handler.on_prepare, grant.partition, grant.checkpoint)
        except Exception:
            # It is taken over cold, then; the handler shows what is wrong when it is called.
            logger.exception("on_prepare of partition %d failed", grant.partition)
        await self._live().prepared(grant.partition)

    def unprepared(self, partition: PartitionId) -> None:
        """Let the handler drop what it loaded in vain, when it has loaded it."""
        loading = self._loading.pop(partition, None)
        if loading is not None:
            self._dropping = asyncio.ensure_future(self._unload(partition, loading))

    async def _unload(self, partition: PartitionId, loading: asyncio.Future[None]) -> None:
        await asyncio.wait([loading])
        await asyncio.to_thread(self._handler.on_revoked, partition)

    def received(self, partition: PartitionId, epoch: Epoch, batch: Batch, size_bytes: int) -> None:
        """Pass messages to the worker."""
        worker = self._workers.get(partition)
        if worker is not None and worker.epoch == epoch:
            worker.put(batch, size_bytes)

    def skipped(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """Let the worker go on behind a gap, in its order."""
        worker = self._workers.get(partition)
        if worker is not None and worker.epoch == epoch:
            worker.skip(to)

    def draining(self, partition: PartitionId) -> None:
        """Stop the worker after what it has in hand."""
        worker = self._workers.get(partition)
        if worker is not None:
            worker.stop()

    def dropped(self, partition: PartitionId) -> None:
        """Stop the worker; what it still does will not count."""
        self.draining(partition)

    def progress(self, partition: PartitionId, epoch: Epoch) -> Standing | None:
        """Where the worker is."""
        worker = self._workers.get(partition)
        if worker is None or worker.epoch != epoch:
            return None
        return worker.standing()

    def queued_bytes(self, partition: PartitionId) -> int:
        """What waits for the worker."""
        worker = self._workers.get(partition)
        return worker.queued_bytes if worker is not None else 0

    def rejoined(self, incarnation: Incarnation) -> None:
        """Nothing to do: workers are made per grant."""

    # --- Office: called by workers, on their threads ----------------------------------------------

    def may_begin(self, stopping: threading.Event) -> bool:
        """Wait while this process has stood still and has not been heard again."""
        return self._live().pulse.may_begin(stopping)

    def checkpoint_soon(self) -> None:
        """Commit when next possible."""
        self._loop.call_soon_threadsafe(self._live().commit_soon)

    def room(self) -> None:
        """A worker can take more: fetch for it."""
        self._loop.call_soon_threadsafe(self._live().reading.wake)

    def checkpoint_now(self, worker: Worker) -> None:
        """Commit, and wait for it."""
        done = asyncio.run_coroutine_threadsafe(self._live().commit_now(), self._loop)
        done.result(CHECKPOINT_WAIT_S)

    def give_up(self, worker: Worker, failure: Failure, messages: Iterable[Message]) -> None:
        """Record what is skipped; send what is dead-lettered, and only then go on."""
        if failure.policy is FailurePolicy.DEAD_LETTER:
            self._letters.send(messages, failure)
        self._given_up.append(failure)
        del self._given_up[:-SKIPPED_KEPT]

    def ended(self, worker: Worker) -> None:
        """The worker is done: its partition can be released."""
        self._loop.call_soon_threadsafe(self._worker_ended, worker)

    def _worker_ended(self, worker: Worker) -> None:
        self._live().stopped(worker.partition, worker.epoch)
        if worker.failed is None and self._workers.get(worker.partition) is worker:
            del self._workers[worker.partition]
            self._processed_by_ended += worker.passed

    def _live(self) -> ConsumerRuntime:
        assert self._runtime is not None, "begin comes first"
        return self._runtime


def make_consumer(spec: ConsumerSpec) -> Any:
    """Create the actor of `spec`; it may stay pending until the cluster has room for it."""
    options = {
        "num_cpus": 0,
        **spec.group.config.ray_options,
        "name": spec.actor,
        "namespace": names.NAMESPACE,
        "lifetime": "detached",
        "max_restarts": 0,
        "max_concurrency": 1_000,
    }
    return ray.remote(Consumer).options(**options).remote(spec)
