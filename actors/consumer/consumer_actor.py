"""`Consumer`: the actor of one group member. Its handler runs on one thread for each partition.

Rules of this file: the event loop keeps heartbeats, fetches and commits going; a handler runs on a
worker's thread and may be slow. The coordinator awaits the call `run` to learn of this process's
death at once, so a graceful end must first let it return.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from typing import Any

import ray

from pxrs_ray.actors.cluster.named_actors import make_actor
from pxrs_ray.actors.cluster.priority import be_as_nice_as
from pxrs_ray.actors.cluster.process_memory import keep_what_is_loaded
from pxrs_ray.actors.cluster.sigterm import on_terminate
from pxrs_ray.actors.consumer.call_gate import CallLimits
from pxrs_ray.actors.consumer.call_record import CallRecord, open_record
from pxrs_ray.actors.consumer.consumer_info import ConsumerInfo
from pxrs_ray.actors.consumer.gap_log import OwnGapLogs
from pxrs_ray.actors.consumer.giving_up import GivingUp
from pxrs_ray.actors.consumer.group_member import GroupMember
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.parallel_worker import ParallelWorker
from pxrs_ray.actors.consumer.quarantine_log import OwnQuarantines
from pxrs_ray.actors.consumer.sequential_worker import SequentialWorker
from pxrs_ray.actors.consumer.specs import ConsumerSpec
from pxrs_ray.actors.consumer.stack_teller import StackTeller, answer_signals
from pxrs_ray.actors.consumer.warm_up import open_ways
from pxrs_ray.actors.consumer.worker import Failure, Worker, WorkLease
from pxrs_ray.actors.consumer.worker_pool import WorkerPool
from pxrs_ray.config import GroupConfig, Ordered
from pxrs_ray.config.declare import Effect
from pxrs_ray.config.diff import who_reacts
from pxrs_ray.config.scheduling import retry_rules, scheduler_for
from pxrs_ray.consumer.consumer_life import HAND_OVER_EXTRA_S, ConsumerLife
from pxrs_ray.consumer.delivery import Context, DeliveryContext, context_at
from pxrs_ray.consumer.unsound_records import refuse_unsound_records
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import PxrsError
from pxrs_ray.group.events import Assignment
from pxrs_ray.group.member_lease import Title
from pxrs_ray.json_logging import start_journal
from pxrs_ray.model import (
    Epoch,
    Grant,
    Incarnation,
    Message,
    Offset,
    PartitionId,
    Progress,
)
from pxrs_ray.processing.commit_wait import CommitWait, CommitWaits
from pxrs_ray.supervision.forks import keep_children_apart, leave_if_child
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, off_loop

logger = logging.getLogger(__name__)

CHECKPOINT_LOOK_S = 0.1
LOOK_EVERY_S = 1.0
CALLS_TOLD = 8


class Consumer(StackTeller):
    """One consumer of a group. Made by the coordinator only; see
    `pxrs_ray.actors.coordinator.consumer_supervisor`."""

    def __init__(self, spec: ConsumerSpec) -> None:
        group = spec.group
        start_journal(topology=group.topology, group=group.group, member=spec.member)
        keep_children_apart()
        answer_signals()
        self._spec = spec
        self._config = spec.group.config
        self._handler = Handler(spec.handler, spec.group.config.settings)
        self._handler.check_fits(self._config, group.group)
        if spec.group.source is not None:
            self._handler.check_first(refuse_unsound_records)
        mode = self._config.processing
        if isinstance(mode, Ordered) and not mode.consumer_per_partition:
            self._handler.one_at_a_time()
        keep_what_is_loaded()
        be_as_nice_as(self._config.niceness)
        self.in_hand = CallRecord()
        self._supervisor = Supervisor(spec.actor)
        self._workers = WorkerPool(self._worker, self._live, self._context, self._supervisor)
        self._limits = CallLimits(self._handler, self._supervisor)
        self._quarantines = OwnQuarantines()
        self._gap_logs = OwnGapLogs()
        self._giving_up = GivingUp(spec.group)
        self._finished = asyncio.Event()
        self._loading: dict[PartitionId, asyncio.Future[None]] = {}
        self._runtime: GroupMember | None = None
        self._life = ConsumerLife()
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
        if self._life.begins():
            self._loop = asyncio.get_running_loop()
            self.in_hand = open_record(self._where()[1], self._spec.actor)
            self._runtime = GroupMember(
                self._spec.group, self._spec.member, incarnation, self._spec.actor, self
            )
            self._limits.follow(self._spec)
            self._runtime.start(assignment)
            self._supervisor.once("its end", self._end_with(self._runtime))
            self._supervisor.keep("looking", self._look)
            self._stop_listening = on_terminate(self._terminate)
        return self._where()

    async def reconfigure(self, config: GroupConfig) -> bool:
        """Take another configuration over; False when only a new consumer can have it.

        Raises HandlerError for options that the handler cannot serve; then nothing has changed.
        """
        if Effect.NEW_CONSUMERS in (changes := who_reacts(self._config, config)):
            return False
        group = replace(self._spec.group, config=config)
        self._handler.check_fits(config, group.group)
        self._config, self._spec = config, replace(self._spec, group=group)
        self._giving_up.configure(group)
        self._limits.follow(self._spec)
        self._workers.configure(config, anew=Effect.WORKERS in changes)
        if self._runtime is not None:
            self._runtime.reconfigure(group)
        return True

    async def _look(self) -> None:
        """Note since when each call has been under way; once a second is exact enough."""
        while not self._finished.is_set():
            self.in_hand.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _end_with(self, runtime: GroupMember) -> None:
        await runtime.ended.wait()
        self._is_over()

    def _is_over(self) -> None:
        self._life.over()
        self._finished.set()

    def _terminate(self) -> None:
        """Something wants this process to end: it ends after everything is handed back."""
        if self._life.told_to_end():
            self._supervisor.once("its hand-over", self._hand_over_and_exit())

    async def _hand_over_and_exit(self) -> None:
        try:
            wait_s = self._config.revoke_deadline_ms / 1_000 + HAND_OVER_EXTRA_S
            await self._live().leave("its process was told to end", wait_s)
            await self.finish()
        except PxrsError as error:
            logger.warning("%s ends without having handed over: %s", self._spec.actor, error)
        finally:
            self.in_hand.end_cleanly()
            os._exit(0)

    async def redrive(self, partition: PartitionId) -> None:
        """An operator has made a request to this partition's quarantine."""
        worker = self._workers.find(partition)
        if isinstance(worker, ParallelWorker):
            worker.redrive()

    async def run(self) -> str:
        """Return only at an end: the caller that awaits this learns of a death at once."""
        await self._finished.wait()
        failed = self._runtime.failed if self._runtime is not None else None
        return told(failed) if failed is not None else "finished"

    async def finish(self) -> None:
        """End gracefully: everything has been handed back. `run` returns."""
        if (runtime := self._runtime) is not None:
            self._stop_listening()
            await runtime.close()
        self._workers.stop_all()
        try:
            await off_loop(self._close_all)
        except Exception as error:  # noqa: BLE001 - a handler's `close` may raise anything
            self._supervisor.note("close", error, for_good=True)
        self.in_hand.end_cleanly()
        self._is_over()

    def _close_all(self) -> None:
        self._workers.join(5)
        try:
            self._handler.close()
        finally:
            self._giving_up.replies.close()

    async def info(self) -> ConsumerInfo:
        """What it holds and how it goes."""
        session = self._runtime.session if self._runtime is not None else None
        holdings = tuple(sorted(session.holdings)) if session else ()
        return ConsumerInfo(
            self._spec.member,
            session.incarnation if session else self._spec.incarnation,
            *self._where(),
            holdings,
            self._workers.passed,
            self._workers.failures(),
            self._giving_up.newest,
            self._giving_up.count,
            "; ".join(self._problems()),
            tuple(self.in_hand.look()[:CALLS_TOLD]),
            self._quarantines.look(holdings),
        )

    def _problems(self) -> list[str]:
        runtime = self._runtime
        found = [*self._supervisor.problems(), *self._handler.problems()]
        found += [self.in_hand.problem] if self.in_hand.problem else []
        return found + runtime.problems() if runtime is not None else found

    # --- Hooks: called by the runtime, on the event loop ------------------------------------------

    def started(self, grant: Grant) -> None:
        """Put a worker on the partition; an older one may still be ending its last message."""
        self._workers.begin(grant)

    def _shared(self, grant: Grant) -> DeliveryContext:
        runtime = self._live()
        held = partial(runtime.holds, runtime.session, grant.partition, grant.epoch)
        return DeliveryContext(
            self._spec.group.queue,
            self._spec.group.group,
            self._spec.member,
            runtime.session.incarnation,
            grant.partition,
            grant.epoch,
            grant.attempts + 1,
            topology_id=self._spec.group.topology_id,
            title=Title(held),
            replier=self._giving_up.replies.reply,
        )

    def _context(self, grant: Grant) -> Context:
        return context_at(self._shared(grant), grant.checkpoint)

    def _worker(self, grant: Grant, before: Worker | None) -> Worker:
        config, handler, shared = self._config, self._handler, self._shared(grant)
        dense, batches = self._spec.group.source is None, handler.wants_batch
        scheduler = scheduler_for(config, grant.progress, wants_batch=batches, dense=dense)
        if scheduler is None:
            rules = retry_rules(config)
            return SequentialWorker(grant, shared, handler, rules, self, config, before)
        place = (self._spec.group, grant.partition, grant.epoch)
        puts_aside = config.failure_policy == "quarantine"
        aside = self._quarantines.of(*place) if puts_aside else None
        gaps = self._gap_logs.of(*place)
        return ParallelWorker(grant, shared, handler, scheduler, self, config, before, aside, gaps)

    def preparing(self, grant: Grant) -> None:
        """Let the handler load for a partition that will come, on a thread of its own."""
        place = f"on_prepare of partition {grant.partition}"
        self._loading[grant.partition] = self._supervisor.once(place, self._load(grant))

    async def _load(self, grant: Grant) -> None:
        try:
            await off_loop(self._handler.on_prepare, grant.partition, grant.checkpoint)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            # It is taken over cold, then; the handler shows what is wrong when it is called.
            self._supervisor.note(f"on_prepare of partition {grant.partition}", error)
        await self._live().prepared(grant.partition)

    def unprepared(self, partition: PartitionId) -> None:
        """Let the handler drop what it loaded in vain, when it has loaded it."""
        loading = self._loading.pop(partition, None)
        if loading is not None:
            place = f"on_revoked of partition {partition}"
            self._supervisor.once(place, self._unload(partition, loading))

    async def _unload(self, partition: PartitionId, loading: asyncio.Future[None]) -> None:
        await asyncio.wait([loading])
        await off_loop(self._handler.on_revoked, partition)

    def received(self, partition: PartitionId, epoch: Epoch, batch: Batch, size_bytes: int) -> None:
        """Pass messages to the worker."""
        self._workers.put(partition, epoch, batch, size_bytes)

    def skipped(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """Let the worker go on behind a gap, in its order."""
        self._workers.skip(partition, epoch, to)

    def draining(self, partition: PartitionId) -> None:
        """Stop the worker after what it has in hand."""
        self._workers.stop(partition)

    def dropped(self, partition: PartitionId) -> None:
        """Stop the worker; what it still does will not count."""
        self.draining(partition)

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """Where the worker is."""
        return self._workers.progress(partition, epoch)

    def queued_bytes(self, partition: PartitionId) -> int:
        """What waits for the worker."""
        worker = self._workers.find(partition)
        return worker.queued_bytes if worker is not None else 0

    def rejoined(self, incarnation: Incarnation) -> None:
        """Nothing to do: workers are made per grant."""

    # --- called by workers, on their threads ------------------------------------------------------

    @property
    def lease(self) -> WorkLease:
        """Whether work may begin now."""
        return self._live().lease

    def checkpoint_soon(self) -> None:
        """Commit when next possible."""
        leave_if_child()
        if not (member := self._live()).machine.progress.commit_is_wanted:
            self._loop.call_soon_threadsafe(member.commit_soon)

    def room(self) -> None:
        """A worker can take more: fetch for it."""
        self._loop.call_soon_threadsafe(self._live().read_on)

    def checkpoint_now(self, worker: Worker) -> None:
        """Commit, and wait for it: as long as the coordinator or its store is away, and it is ours.

        A worker that shall stop waits no more: what is done is handed back with its partition.
        """
        leave_if_child()
        done = asyncio.run_coroutine_threadsafe(self._live().commit_now(), self._loop)
        place, waiting = f"commit of partition {worker.partition}", CommitWait(time.monotonic())
        while True:
            is_over, now_s = bool(wait([done], CHECKPOINT_LOOK_S).done), time.monotonic()
            match waiting.look(now_s, is_over=is_over, told_to_stop=worker.told_to_stop):
                case CommitWaits.GO_ON:
                    done.result()
                    break
                case CommitWaits.LEAVE:
                    done.cancel()
                    break
                case CommitWaits.SHOW:
                    waits_s = waiting.waits_s(now_s)
                    self._supervisor.trouble(
                        place, f"waits for {waits_s:.0f} s: it goes on by itself"
                    )
        self._supervisor.over(place)

    def give_up(self, worker: Worker, failure: Failure, messages: Iterable[Message]) -> None:
        """Record what is skipped; send what is dead-lettered, and only then go on."""
        self._giving_up.keep(failure, messages)

    def ended(self, worker: Worker) -> None:
        """The worker is done: its partition can be released, or is begun again."""
        self._loop.call_soon_threadsafe(self._workers.ended, worker)

    def _live(self) -> GroupMember:
        assert self._runtime is not None, "begin comes first"
        return self._runtime


def make_consumer(spec: ConsumerSpec) -> Any:
    """Create the actor of `spec`; it may stay pending until the cluster has room for it."""
    options = {**spec.group.config.ray_options, "max_restarts": 0, "max_concurrency": 1_000}
    return make_actor(Consumer, spec.actor, options, spec)
