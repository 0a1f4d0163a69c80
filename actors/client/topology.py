"""`deploy`, `attach` and `Topology`: a handle on a topology, for a driver, a job or a notebook.

    topology = deploy(PxrsConfig(name="shop", queues={"payments": QueueConfig(partitions=8)}))
    with topology.producer("payments") as producer:
        producer.send(b"account-7", b"...")
    group = topology.group("billing", queue="payments")
    group.start(handle, consumers=3)

A `Topology` holds no connection and no state: it can be made anywhere, pickled, and thrown away.
What only deploying or producing needs is imported then, so that a command that only asks answers at
once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors import names
from pxrs_ray.actors.client.deployed_note import DEPLOYED
from pxrs_ray.actors.client.group import Group
from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.cluster.join import join
from pxrs_ray.actors.cluster.named_actors import actors_of, kill_actor, running_topologies, runs
from pxrs_ray.actors.coordinator.topology_requests import (
    AcceptBufferLoss,
    ApplyConfig,
    DeleteGroup,
    DeleteQueue,
    DeleteTopology,
    GetBufferStats,
    GetConfig,
    GetDeployed,
    GetDocument,
    GetOrphans,
    GetQueue,
    GetStatus,
    GetStoreStatus,
    KeepDocument,
    KillOrphans,
    LeadElsewhere,
    MoveBuffer,
    NoteDeployed,
    OpenGroup,
    Ping,
    PlanBufferLoss,
    PlanDrain,
    PlanGroupRemoval,
    PlanMove,
    PlanQueueRemoval,
    PlanTopologyRemoval,
    RecoverRegistry,
    ShutDown,
)
from pxrs_ray.errors import DeadlineExceeded, NotFound, UsageError
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.topology.move_plan import COPY_BYTES_PER_S

if TYPE_CHECKING:
    from pxrs_ray.actors.client.producer import Producer
    from pxrs_ray.actors.client.replies import Replies
    from pxrs_ray.config import Difference, PxrsConfig
    from pxrs_ray.data.protocol import BufferStats, QueueSpec
    from pxrs_ray.model import PartitionId
    from pxrs_ray.status.answers import StoreStatus, TopologyStatus
    from pxrs_ray.topology.log_witness import Recovered
    from pxrs_ray.topology.move_plan import Leaving
    from pxrs_ray.topology.move_steps import Moved
    from pxrs_ray.topology.removal import Removal

START_WAIT_S = 120.0
GONE_WAIT_S = 20.0


class Topology:
    """A running topology, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._coordinator = BlockingCoordinatorClient(name)

    def __reduce__(self) -> tuple[type[Topology], tuple[str]]:
        return (Topology, (self.name,))

    def __repr__(self) -> str:
        return f"Topology({self.name!r})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    @property
    def config(self) -> PxrsConfig:
        """The configuration in force."""
        return self._coordinator.call(GetConfig())

    def apply(self, config: PxrsConfig, *, dry_run: bool = False) -> tuple[Difference, ...]:
        """Change what may change on a running topology; answer what differed.

        Raises UsageError naming what cannot change, and then nothing was changed.
        """
        return self._coordinator.call(ApplyConfig(config, dry_run))

    def deployed(self) -> dict[str, Any]:
        """Which file was deployed last, its hash and when; empty when none was."""
        text = self._coordinator.call(GetDeployed())
        found: dict[str, Any] = DEPLOYED.decode_text(text or "{}")
        return found

    def note_deployed(self, note: Mapping[str, Any]) -> None:
        """Store what was deployed with the topology; see `pxrs_ray.actors.client.deployment`."""
        self._coordinator.call(NoteDeployed(DEPLOYED.encode_text(dict(note))))

    def queue_spec(self, queue: str) -> tuple[QueueSpec, PxrsConfig, int]:
        """A queue as buffers know it, the configuration, and how many buffers there are."""
        return self._coordinator.call(GetQueue(queue))

    def document(self, name: str) -> str:
        """A text that the topology keeps under a name; '' when it keeps none."""
        return self._coordinator.call(GetDocument(name))

    def keep_document(self, name: str, text: str) -> None:
        """Keep a text under a name like 'tenants/orders', durably."""
        self._coordinator.call(KeepDocument(name, text))

    def producer(self, queue: str, producer_id: str | None = None, **limits: Any) -> Producer:
        """A producer of `queue`; close it, or use it with `with`.

        With a `producer_id`, it is the one of that name: its start fences the former one, whose
        messages that are still on their way are refused with ProducerFenced, so that the order
        of each key holds across a restart. `limits` are fields of `ProducerLimits` that shall
        differ from the configuration's.
        """
        identity = self.begin_producer(queue, producer_id) if producer_id is not None else None
        return self.producer_with(queue, identity, **limits)

    def begin_producer(self, queue: str, producer_id: str) -> bytes:
        """Fence every former producer of this name; answers the identity of the next one."""
        from pxrs_ray.actors.client.producer_start import begin_producer

        spec, _, buffers = self.queue_spec(queue)
        return begin_producer(self.name, spec.queue, min(buffers, spec.partitions), producer_id)

    def producer_with(self, queue: str, identity: bytes | None, **limits: Any) -> Producer:
        """A producer whose frames bear this identity; see `producer`."""
        from pxrs_ray.actors.client.delayed_sends import DelayedSends
        from pxrs_ray.actors.client.producer import Producer
        from pxrs_ray.config.limits import producer_limits
        from pxrs_ray.data.delay import DELAYED_SUFFIX

        spec, config, buffers = self.queue_spec(queue)
        declared = config.resolved_queue(queue)
        given = replace(producer_limits(config, declared), **limits)
        partitioner = declared.spread().partitioner()
        tiers = queue + DELAYED_SUFFIX
        make = partial(self.producer_with, tiers, None, **limits) if declared.delays else None
        producer = Producer(
            self.name,
            spec.queue,
            buffers,
            partitioner,
            given,
            producer_id=identity,
            delayed=DelayedSends(queue, make),
        )
        producer.connect()
        return producer

    def replies(self, queue: str) -> Replies:
        """Who waits for what handlers reply to messages of `queue`; close it, or use `with`."""
        from pxrs_ray.actors.client.replies import Replies

        return Replies(self.name, queue)

    def group(self, name: str, queue: str | None = None, **options: Any) -> Group:
        """The group of that name; made, reading `queue` with these options, if there is none.

        Raises NotFound when it does not exist and no queue, or an unknown queue, is named.
        """
        full_name = self._coordinator.call(OpenGroup(name, queue, options))
        return Group(self.name, full_name)

    def status(self) -> TopologyStatus:
        """Everything, at this moment."""
        return self._coordinator.call(GetStatus())

    def store_status(self) -> StoreStatus:
        """How the registry's store is doing now. Nothing else is asked: no buffer, no consumer."""
        return self._coordinator.call(GetStoreStatus())

    def buffer_stats(self) -> dict[int, BufferStats]:
        """What each buffer has done since it started, and holds; those away are missing."""
        return self._coordinator.call(GetBufferStats())

    def plan_buffer_loss(self, buffer: int) -> str:
        """What `accept_buffer_loss` would lose. Raises NotFound, and UsageError when that buffer
        is at home."""
        return self._coordinator.call(PlanBufferLoss(buffer))

    def move_buffer(
        self, buffer: int, node: str | None = None, *, source: str | None = None
    ) -> Moved:
        """Take a buffer with its logs to another node, or to the emptiest; of several replicas that
        of the node `source`, or the leader. Raises NotFound, UsageError: then it stays."""
        return self._coordinator.call(MoveBuffer(buffer, node, source))

    def hand_over(self, buffer: int) -> str:
        """Have another replica in sync lead; answers which actor led. Raises UsageError."""
        return self._coordinator.call(LeadElsewhere(buffer))

    def plan_move(
        self, buffer: int, node: str | None = None, *, copy_per_s: float = COPY_BYTES_PER_S
    ) -> Leaving:
        """What `move_buffer` would mean: how much is copied, and how long its callers wait."""
        return self._coordinator.call(PlanMove(buffer, node, copy_per_s))

    def plan_drain(
        self, node: str, deadline_s: float, *, copy_per_s: float = COPY_BYTES_PER_S
    ) -> Leaving:
        """What it means that Ray drains a node (`node_drain.begin_drain`). Raises NotFound, and
        UsageError for a node that nothing can leave."""
        return self._coordinator.call(PlanDrain(node, deadline_s, copy_per_s))

    def accept_buffer_loss(self, buffer: int) -> str:
        """Give up the disk of a buffer whose host is away: it begins elsewhere, under a new term,
        as soon as nobody can serve from that disk any more. Raises as `plan_buffer_loss`."""
        return self._coordinator.call(AcceptBufferLoss(buffer))

    def kill_orphans(self) -> list[str]:
        """End consumer actors that belong to no member of a group; answer which."""
        return self._coordinator.call(KillOrphans())

    def orphans(self) -> list[str]:
        """Consumer actors that belong to no member of a group, as the coordinator knows them."""
        return self._coordinator.call(GetOrphans())

    def shutdown(self) -> None:
        """Drain and end every consumer, close the logs, and remove every actor of the topology.
        Messages, checkpoints and epochs stay where they are kept: deploying again goes on."""
        try:
            self._coordinator.call(ShutDown())
        except (NotFound, DeadlineExceeded):
            if not actors_of(self.name):
                raise
        self.kill()

    def plan_group_removal(self, group: str) -> Removal:
        """What removing a group would delete, and what prevents it. Raises NotFound."""
        return self._coordinator.call(PlanGroupRemoval(group))

    def plan_queue_removal(self, queue: str) -> Removal:
        """What removing a queue would delete, and what prevents it. Raises NotFound."""
        return self._coordinator.call(PlanQueueRemoval(queue))

    def plan_removal(self) -> Removal:
        """What removing the whole topology would take away."""
        return self._coordinator.call(PlanTopologyRemoval())

    def delete_group(self, group: str, *, force: bool = False) -> Removal:
        """Remove a group with its checkpoints; retention waits for it no longer.

        Raises NotFound, and UsageError while it is in use or the deployed file names it, unless
        `force`. Cut off anywhere, it is finished by the next coordinator, or by calling it again.
        """
        removal = self.plan_group_removal(group)
        self._coordinator.call(DeleteGroup(group, force))
        return removal

    def delete_queue(self, queue: str, *, force: bool = False) -> Removal:
        """Remove a queue with all its messages; with `force` also the groups that read it.

        Raises as `delete_group`. A queue that takes another group's dead letters always stays.
        """
        removal = self.plan_queue_removal(queue)
        self._coordinator.call(DeleteQueue(queue, force))
        return removal

    def purge_queue(self, queue: str, partitions: Collection[PartitionId] = ()) -> Removal:
        """Drop the messages that a queue holds now; answers what went.

        Offsets go on where they are. A group that had not passed them is never given them.
        """
        from pxrs_ray.actors.client.queue_purge import plan_purge, purge

        removal, ends = plan_purge(self, queue, partitions)
        purge(self, queue, ends)
        return removal

    def delete(self) -> None:
        """Remove the topology: every actor, every message, its rows in the registry, its folders.

        Cut off anywhere, it is to be called again: until then nothing of it runs.
        """
        self._coordinator.call(DeleteTopology())
        self.kill()

    def kill(self) -> None:
        """End every actor of the topology at once, as a power cut would."""
        coordinator = names.coordinator(self.name)
        for name in sorted(actors_of(self.name), key=lambda name: name != coordinator):
            kill_actor(name)
        self._coordinator = BlockingCoordinatorClient(self.name)
        end_s = time.monotonic() + GONE_WAIT_S
        while (left := actors_of(self.name)) and time.monotonic() < end_s:
            time.sleep(0.02)
        if left:
            raise DeadlineExceeded(f"these actors do not end: {', '.join(left)}")


def deploy(config: PxrsConfig, *, anew: bool = False) -> Topology:
    """Start the topology, or join the one that runs under its name.

    When it runs with another configuration, what may change live is changed, and UsageError
    names what may not, with nothing changed. Groups that name a handler are started, unless they
    have consumers. A topology that waits for something (its registry, a log that is slow to open)
    goes on starting after the DeadlineExceeded that says so. With `anew`, its coordinator is
    replaced by one that is made with this job's code.
    """
    join()
    ours = _make_coordinator(config, accept_loss=False, anew=anew)
    topology = Topology(config.name)
    try:
        topology._coordinator.call(Ping(begin=True), START_WAIT_S)
    except Exception as error:
        # What was made here, and cannot start, goes again. What may start yet stays, and so does
        # what another has made or may have joined meanwhile: an interrupt ends only the waiting.
        if ours and not passes(error):
            topology.kill()
        raise
    topology.apply(config)
    _start_declared(topology, config)
    return topology


def _make_coordinator(config: PxrsConfig, *, accept_loss: bool, anew: bool) -> bool:
    """Make it where its registry is; False when there is one."""
    from pxrs_ray.actors.cluster.coordinator_placement import place_of_coordinator
    from pxrs_ray.actors.coordinator.buffer_pool import buffer_count
    from pxrs_ray.actors.coordinator.coordinator_actor import make_coordinator, remove_coordinator

    there = runs(config.name)
    if there and not anew:
        return False
    partitions_max = max((q.partitions for q in config.queues.values()), default=1)
    count = buffer_count(config.buffers, partitions_max)
    place = place_of_coordinator(config, accept_loss=accept_loss)
    if there:  # last: buffers that miss it for long have another one made, of the old code
        remove_coordinator(config.name)
    return make_coordinator(config, count, place)


def _start_declared(topology: Topology, config: PxrsConfig) -> None:
    wanted = {name: g for name, g in config.groups.items() if g.handler and g.consumers}
    have = {g.group: g.wanted for g in topology.status().groups} if wanted else {}
    for name, group in wanted.items():
        if not have.get(config.full_name(name)):
            topology.group(name).start(str(group.handler), consumers=group.consumers)


def recover_registry(
    config: PxrsConfig, *, accept_loss: bool, host: str = "", timeout_s: float = START_WAIT_S
) -> dict[str, Recovered]:
    """Go on with a registry that has lost accepted writes (a restored backup, an emptied server).

    The topology is started if it does not run. Epochs are raised above all that the logs and
    this node have seen, so that no late reader of the lost time is believed; checkpoints stay as
    the registry has them. Answers, by group, what is delivered again as far as the logs know.
    Where several hosts have a registry, `host` says whose is gone on with; the others' files are
    set aside. Raises UsageError without `accept_loss`, for it cannot be undone.
    """
    if not accept_loss:
        raise UsageError(
            "messages are delivered again from the registry's older checkpoints, and groups that "
            "it does not know begin anew: say that you accept the loss"
        )
    join()
    if host:
        from pxrs_ray.actors.cluster.coordinator_placement import choose_registry

        choose_registry(config, host)
    _make_coordinator(config, accept_loss=True, anew=False)
    topology, who = Topology(config.name), f"request {uuid.uuid4().hex[:8]}"
    return topology._coordinator.call(RecoverRegistry(who), timeout_s)


def attach(name: str, *, timeout_s: float = START_WAIT_S) -> Topology:
    """The topology that runs under `name`.

    Raises NotFound naming those that do, DeadlineExceeded when it does not answer in time.
    """
    topology = Topology(name)
    topology._coordinator.check_alive(timeout_s)
    topology._coordinator.call(Ping(), timeout_s)
    return topology


__all__ = ["Topology", "attach", "deploy", "recover_registry", "running_topologies"]
