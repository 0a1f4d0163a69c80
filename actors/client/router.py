"""Routers: stateless tasks that take Arrow blocks, group the rows by partition and append them.

Rules of this file. A block of a feed is a producer of its own, named by (feed id, block number).
Running it again adds nothing, whether the first run was answered or not; a run that computes other
content for the same block gets SequenceConflict. Blocks are independent of each other; order is
kept within a block. A router keeps no state: any worker can run any block.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.tables import batch_of_table
from pxrs_ray.model import PartitionId
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.producer.accumulator import ProducerLimits
from pxrs_ray.producer.receipt import Placed

BLOCKS_AHEAD = 4


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """What a router must know of a queue; plain data that is sent to any worker."""

    topology: str
    queue: str
    buffers: int
    spread: PartitioningSpec
    limits: ProducerLimits = field(default_factory=ProducerLimits)


@dataclass(frozen=True, slots=True)
class RoutedBlock:
    """The result of one block: rows of each partition, and how many of all had been there
    before."""

    block: int
    rows: Mapping[PartitionId, int]
    repeated_rows: int
    bytes: int
    seconds: float


def route_block(spec: RouterSpec, feed_id: str, block: int, table: Any) -> RoutedBlock:
    """Append one block, and return when it is as durable as its queue promises.

    `table` is what `Producer.send_batch` takes; it must be the same each time the block is run.
    Raises SequenceConflict when it is not, PartitionFull or DeadlineExceeded when the buffers do
    not take it in time: then run it again.
    """
    started = time.perf_counter()
    limits = replace(spec.limits, outbox=replace(spec.limits.outbox, renumber=False))
    wait_s = limits.outbox.append_timeout_ms / 1_000
    partitioner = spec.spread.partitioner(block)
    identity = producer_id(f"{feed_id}/{block}")
    batch, scopes = batch_of_table(table, wall_ms())
    placed: list[Placed] = []
    if len(batch):
        with Producer(
            spec.topology, spec.queue, spec.buffers, partitioner, limits, producer_id=identity
        ) as producer:
            placed = producer.send_batch(batch, scopes=scopes, timeout_s=wait_s).result(wait_s)
    rows: Counter[PartitionId] = Counter()
    for each in placed:
        rows[each.partition] += each.messages
    repeated = sum(each.messages for each in placed if each.repeated)
    return RoutedBlock(
        block, dict(rows), repeated, batch.columns.nbytes, time.perf_counter() - started
    )


def route_blocks(
    spec: RouterSpec,
    feed_id: str,
    blocks: Iterable[Any],
    *,
    parallel: int = BLOCKS_AHEAD,
    first_block: int = 0,
    **ray_options: Any,
) -> Iterator[RoutedBlock]:
    """Route many blocks in tasks, `parallel` at a time; yields each as it is done.

    Each of `blocks` is a table, or an object reference to one (then it is fetched by the task
    that routes it, where it runs). A task whose worker dies is run again by Ray.
    """
    task = ray.remote(route_block).options(
        **{"num_cpus": 1, "max_retries": 10, "enable_task_events": False, **ray_options}
    )
    running: set[Any] = set()
    for block, table in enumerate(blocks, first_block):
        running.add(task.remote(spec, feed_id, block, table))
        while len(running) >= parallel:
            yield from _finished(running)
    while running:
        yield from _finished(running)


def _finished(running: set[Any]) -> list[RoutedBlock]:
    done, _ = ray.wait(list(running), num_returns=1)
    running.difference_update(done)
    answers: list[RoutedBlock] = ray.get(done)
    return answers
