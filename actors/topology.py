"""`deploy`, `attach` and `Topology`: a topology in the hands of a driver, a job or a notebook.

    topology = deploy(PxrsConfig(name="shop", queues={"payments": QueueConfig(partitions=8)}))
    with topology.producer("payments") as producer:
        producer.send(b"account-7", b"...")
    group = topology.group("billing", queue="payments")
    group.start(handle, consumers=3)

A `Topology` holds no connection and no state: it can be made anywhere, pickled, and thrown away.
What only deploying or producing needs is imported then: a command that asks should answer at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.calls import CoordinatorCalls, actors_of, running_topologies
from pxrs_ray.actors.group import Group
from pxrs_ray.actors.joining import join
from pxrs_ray.errors import DeadlineExceeded, NotFound

if TYPE_CHECKING:
    from pxrs_ray.actors.producer import Producer
    from pxrs_ray.config import Difference, PxrsConfig, QueueConfig
    from pxrs_ray.log.wire import BufferStats, QueueSpec
    from pxrs_ray.stats import TopologyStatus

START_WAIT_S = 120.0
SHUTDOWN_WAIT_S = 120.0
GONE_WAIT_S = 20.0


class Topology:
    """A running topology, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._call = CoordinatorCalls(name)

    def __reduce__(self) -> tuple[type[Topology], tuple[str]]:
        return (Topology, (self.name,))

    def __repr__(self) -> str:
        return f"Topology({self.name!r})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    @property
    def config(self) -> PxrsConfig:
        """The configuration in force."""
        found: PxrsConfig = self._call("config")
        return found

    def apply(self, config: PxrsConfig, *, dry_run: bool = False) -> tuple[Difference, ...]:
        """Change what may change on a running topology; answer what differed.

        Raises UsageError naming what cannot change, and then nothing was changed.
        """
        found: tuple[Difference, ...] = self._call("apply", config, dry_run)
        return found

    def deployed(self) -> dict[str, Any]:
        """Which file was deployed last, its hash and when; empty when none was."""
        text: str = self._call("deployed")
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def note_deployed(self, note: Mapping[str, Any]) -> None:
        """Keep beside the topology what was deployed; see `pxrs_ray.actors.deployment`."""
        self._call("note_deployed", json.dumps(note))

    def queue_spec(self, queue: str) -> tuple[QueueSpec, PxrsConfig, int]:
        """A queue as buffers know it, the configuration, and how many buffers there are."""
        found: tuple[QueueSpec, PxrsConfig, int] = self._call("queue", queue)
        return found

    def document(self, name: str) -> str:
        """A text that the topology keeps under a name; '' when it keeps none."""
        found: str = self._call("document", name)
        return found

    def keep_document(self, name: str, text: str) -> None:
        """Keep a text under a name like 'tenants/orders', durably."""
        self._call("keep_document", name, text)

    def producer(self, queue: str, **limits: Any) -> Producer:
        """A producer of `queue`; close it, or use it with `with`.

        `limits` are fields of `ProducerLimits` that shall differ from the configuration's.
        """
        spec, config, buffers = self.queue_spec(queue)
        declared = config.resolved_queue(queue)
        from pxrs_ray.actors.producer import Producer
        from pxrs_ray.producer import ProducerLimits

        given = ProducerLimits(**{**_producer_limits(config, declared), **limits})
        partitioner = declared.spread().partitioner()
        return Producer(self.name, spec.queue, buffers, partitioner, given)

    def group(self, name: str, queue: str | None = None, **options: Any) -> Group:
        """The group of that name; made, reading `queue` with these options, if there is none.

        Raises NotFound when it does not exist and no queue, or an unknown queue, is named.
        """
        full_name: str = self._call("group", name, queue, options)
        return Group(self.name, full_name)

    def status(self) -> TopologyStatus:
        """Everything, at this moment."""
        found: TopologyStatus = self._call("status")
        return found

    def buffer_stats(self) -> dict[int, BufferStats]:
        """What each buffer has done since it started, and holds; those away are missing."""
        found: dict[int, BufferStats] = self._call("buffer_stats")
        return found

    def shutdown(self) -> None:
        """Drain and end every consumer, close the logs, and remove every actor of the topology.

        Messages, checkpoints and epochs stay where they are kept: deploying again goes on.
        """
        try:
            self._call("shutdown", timeout_s=SHUTDOWN_WAIT_S)
        except (NotFound, DeadlineExceeded):
            if not actors_of(self.name):
                raise
        self.kill()

    def kill(self) -> None:
        """End every actor of the topology at once, as a power cut would."""
        coordinator = names.coordinator(self.name)
        for name in sorted(actors_of(self.name), key=lambda name: name != coordinator):
            try:
                ray.kill(ray.get_actor(name, namespace=names.NAMESPACE))
            except ValueError:
                continue
        self._call = CoordinatorCalls(self.name)
        end_s = time.monotonic() + GONE_WAIT_S
        while (left := actors_of(self.name)) and time.monotonic() < end_s:
            time.sleep(0.02)
        if left:
            raise DeadlineExceeded(f"these actors do not end: {', '.join(left)}")


def _producer_limits(config: PxrsConfig, queue: QueueConfig) -> dict[str, Any]:
    from pxrs_ray.outbox import OutboxLimits

    return {
        "linger_ms": config.linger_ms,
        "batch_records_max": config.batch_records_max,
        "batch_bytes_max": config.batch_bytes_max,
        "message_bytes_max": queue.message_bytes_max,
        "outbox": OutboxLimits(
            calls_max=config.inflight_appends_max, append_timeout_ms=config.append_timeout_ms
        ),
    }


def deploy(config: PxrsConfig) -> Topology:
    """Start the topology, or join the one that runs under its name.

    When it runs with another configuration, what may change live is changed, and UsageError
    names what may not, with nothing changed.
    """
    from pxrs_ray.actors.buffers import buffer_count
    from pxrs_ray.actors.face import make_coordinator

    join()
    partitions_max = max((q.partitions for q in config.queues.values()), default=1)
    fresh = not actors_of(config.name)
    make_coordinator(config, buffer_count(config.buffers, partitions_max))
    topology = Topology(config.name)
    try:
        topology._call("ping", timeout_s=START_WAIT_S)
    except BaseException:
        if fresh:
            topology.kill()
        raise
    topology.apply(config)
    return topology


def attach(name: str, *, timeout_s: float = START_WAIT_S) -> Topology:
    """The topology that runs under `name`.

    Raises NotFound naming those that do, DeadlineExceeded when it does not answer in time.
    """
    topology = Topology(name)
    topology._call("ping", timeout_s=timeout_s)
    return topology


__all__ = ["Topology", "attach", "deploy", "running_topologies"]
