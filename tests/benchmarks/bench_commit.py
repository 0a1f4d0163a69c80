"""How many partition commits a second one coordinator serves, each call carrying many."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray

from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.consumer.member_requests import (
    CommitProgress,
    JoinGroup,
    ReleasePartitions,
    SendHeartbeat,
)
from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.group.events import PartitionProgress
from pxrs_ray.model import Outcome, Progress
from tests.benchmarks.harness import figures

CONSUMERS = 8
PARTITIONS = 1_024
SHARE = PARTITIONS // CONSUMERS
SECONDS = 8.0


class Committer:
    """A member that owns its share and commits all of it, again and again."""

    def __init__(self, topology: str, member: str) -> None:
        self._member = member
        self._link = CoordinatorClient(topology)
        self._incarnation = 0

    async def join(self) -> None:
        self._incarnation, _ = await self._link.call(JoinGroup("g", self._member, self._member))

    async def _assignment(self) -> Any:
        """What it may work on now."""
        heartbeat = SendHeartbeat("g", self._member, self._incarnation, (0, 0), 1_000)
        return (await self._link.call(heartbeat)).assignment

    async def settle(self) -> int:
        """Hand back what is asked back; answer how much is left."""
        assignment = await self._assignment()
        back = tuple(
            PartitionProgress(grant.partition, grant.epoch, Progress(grant.checkpoint))
            for grant in assignment.grants
            if grant.partition in assignment.revoking
        )
        if back:
            await self._link.call(ReleasePartitions("g", self._member, self._incarnation, back))
        return len(assignment.grants) - len(back)

    async def run(self, seconds: float) -> tuple[int, list[float]]:
        """Commit for so long; answer how many rows were applied, and how long each call took."""
        assignment = await self._assignment()
        epochs = {grant.partition: grant.epoch for grant in assignment.grants}
        offset, rows, took_ms = max(g.checkpoint for g in assignment.grants), 0, []
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            offset += 1
            done = tuple(
                PartitionProgress(p, epoch, Progress(offset)) for p, epoch in epochs.items()
            )
            began_s = time.perf_counter()
            request = CommitProgress("g", self._member, self._incarnation, done)
            outcomes = await self._link.call(request)
            took_ms.append((time.perf_counter() - began_s) * 1_000)
            assert set(outcomes) == {Outcome.APPLIED}, outcomes
            rows += len(done)
        return rows, took_ms


@contextmanager
def members() -> Iterator[tuple[Topology, list[Any]]]:
    """A topology, and eight members that share its partitions."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with tempfile.TemporaryDirectory(prefix="pxrs-commit-") as folder:
            topology = deploy(
                PxrsConfig(
                    name="commit",
                    data_dir=Path(folder),
                    buffers=1,
                    lease_ttl_seconds=60.0,
                    queues={"q": QueueConfig(partitions=PARTITIONS)},
                )
            )
            try:
                topology.group("g", queue="q")
                made = [
                    ray.remote(Committer).options(num_cpus=0).remote("commit", f"m{n}")
                    for n in range(CONSUMERS)
                ]
                ray.get([member.join.remote() for member in made])
                while set(ray.get([member.settle.remote() for member in made])) != {SHARE}:
                    pass
                yield topology, made
            finally:
                topology.kill()
    finally:
        ray.shutdown()


@figures({"commit.per_s": "rows/s", "commit.p99_ms": "ms"}, runs=3, warmups=1, setup=members)
def commits(given: tuple[Topology, list[Any]]) -> dict[str, float]:
    topology, made = given
    before = topology.status().store
    began_s = time.perf_counter()
    answers = ray.get([member.run.remote(SECONDS) for member in made])
    seconds = time.perf_counter() - began_s
    after = topology.status().store
    took = [ms for _, each in answers for ms in each]
    print(
        f"{len(took)} calls of {SHARE} rows, p50 {np.percentile(took, 50):.1f} ms; "
        f"{after.writes - before.writes} store writes, {after.mean_ms:.2f} ms each",
        file=sys.stderr,
    )
    return {
        "commit.per_s": sum(rows for rows, _ in answers) / seconds,
        "commit.p99_ms": float(np.percentile(took, 99)),
    }
