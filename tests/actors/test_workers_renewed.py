"""Workers that are renewed for another configuration begin again, unless the partition goes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pxrs_ray.actors.consumer.worker import Worker
from pxrs_ray.actors.consumer.worker_pool import WorkerPool
from pxrs_ray.config import GroupConfig
from pxrs_ray.model import Epoch, Grant, PartitionId
from pxrs_ray.supervision.supervisor import Supervisor


class FakeWorker:
    """What `WorkerPool` sees of a worker; it ends when the test says so."""

    passed, fault, failed, waiting, queued_bytes = 0, None, None, None, 0

    def __init__(self, grant: Grant, config: GroupConfig) -> None:
        self.partition, self.epoch, self.checkpoint = grant.partition, grant.epoch, grant.checkpoint
        self.config = config
        self.told_to_stop = self.ending = False

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.told_to_stop = self.ending = True

    def renew(self) -> None:
        self.ending = True

    def configure(self, config: GroupConfig) -> None:
        pass


class Scene:
    """A member with one partition, which it may be asked to hand over."""

    def __init__(self) -> None:
        self.config = GroupConfig(queue="q")
        self.draining = False
        self.released: list[tuple[PartitionId, Epoch]] = []
        self.made: list[FakeWorker] = []
        self.workers = WorkerPool(self._make, lambda: self, cast(Any, None), Supervisor("test"))
        self.workers.begin(Grant(0, 3, 10))

    def _make(self, grant: Grant, before: Worker | None) -> Worker:
        assert before is (self.made[-1] if self.made else None), "the newer one waits for it"
        self.made.append(FakeWorker(grant, self.config))
        return cast(Worker, self.made[-1])

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        return None if self.draining else Grant(partition, epoch, 17)

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        self.released.append((partition, epoch))

    def reconfigure(self, **options: Any) -> FakeWorker:
        self.config = GroupConfig(queue="q", **options)
        self.workers.configure(self.config, anew=True)
        assert self.made[-1].ending and not self.made[-1].told_to_stop
        return self.made[-1]

    def end(self, worker: FakeWorker) -> None:
        self.workers.ended(cast(Worker, worker))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_renewed_worker_begins_again_where_it_was_with_the_new_options(scene: Scene) -> None:
    scene.end(scene.reconfigure(attempts_max=2))
    assert [worker.checkpoint for worker in scene.made] == [10, 17]
    assert scene.made[-1].config.attempts_max == 2
    assert scene.released == [], "the partition stays ours"


def test_a_partition_that_is_asked_back_meanwhile_is_handed_over(scene: Scene) -> None:
    worker = scene.reconfigure(attempts_max=2)
    scene.draining = True
    scene.workers.stop(0)
    scene.end(worker)
    assert scene.released == [(0, 3)] and len(scene.made) == 1


def test_a_consumer_that_ends_begins_nothing_again(scene: Scene) -> None:
    worker = scene.reconfigure(attempts_max=2)
    scene.workers.stop_all()
    scene.end(worker)
    assert scene.released == [(0, 3)] and len(scene.made) == 1


def test_two_changes_at_once_begin_it_once_with_the_newer(scene: Scene) -> None:
    scene.reconfigure(attempts_max=2)
    scene.end(scene.reconfigure(attempts_max=3))
    assert [worker.config.attempts_max for worker in scene.made] == [5, 3]
