"""One local Ray for all tests of the shell, for starting it costs seconds; and topologies in it."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.buffer import local_socket
from tests.actors.recording import Notebook
from tests.actors.worker_bench import bench as bench
from tests.contract.certificates import Certificates, make_certificates
from tests.light_ray import end_log_monitor, let_agents_look_seldom

RAY_CPUS = 4

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A local Ray with 4 CPUs (whatever the machine has); answers ray.init's context."""
    import ray

    let_agents_look_seldom()
    context = ray.init(
        address="local",
        num_cpus=RAY_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        namespace="pxrs-tests",
    )
    end_log_monitor()
    yield context
    ray.shutdown()


class Stage:
    """Topologies of one test: each of its own name and folder, all removed when it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._topologies: set[str] = set()
        self.notebook = Notebook(folder / "notes")
        self.notes = self.notebook.folder
        self.notes.mkdir()

    def config(self, partitions: int = 8, **options: Any) -> Any:
        """A small topology of one queue `q`, quick to notice things."""
        from pxrs_ray.config import PxrsConfig, QueueConfig

        usual: dict[str, Any] = {
            "name": f"test-{next(_numbers)}",
            "data_dir": self.folder,
            "queues": {"q": QueueConfig(partitions=partitions)},
            "buffers": 1,
            "linger_ms": 1,
        }
        return PxrsConfig(**{**usual, **options})

    def forget_later(self, name: str) -> None:
        """A topology that was deployed by other means is removed with the rest."""
        self._topologies.add(name)

    def deploy(self, partitions: int = 8, **options: Any) -> Any:
        """Deploy such a topology."""
        from pxrs_ray.actors.client.topology import deploy

        config = self.config(partitions, **options)
        self.forget_later(config.name)
        return deploy(config)

    def close(self) -> None:
        from pxrs_ray.actors.client.topology import Topology
        from pxrs_ray.actors.cluster.named_actors import actors_of

        for name in self._topologies:
            Topology(name).kill()
            assert actors_of(name) == []


class Lent:
    """A topology that tests have one after the other, each with queues and groups of its own.

    Most of what a test of groups takes is the start of processes: a coordinator and a buffer serve
    them all. What goes wrong with it ends it, and the next test gets another.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pxrs-lent-"))
        self._lent: Any = None

    def deploy(self, config: Any) -> Any:
        """The topology, with the queues and the groups of this configuration."""
        from pxrs_ray.actors.client.topology import deploy

        name = config.name if self._lent is None else self._lent.name
        self._lent = deploy(config.model_copy(update={"name": name, "data_dir": self._folder}))
        return self._lent

    def take_back(self) -> None:
        """Remove what a test has left in it: the groups go with the queue that they read."""
        try:
            # Queues that take dead letters of groups that read `q` cannot go before those groups.
            while queues := self._lent.config.queues:
                self._lent.delete_queue("q" if "q" in queues else next(iter(queues)), force=True)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End it, and whatever is left of it."""
        from pxrs_ray.actors.client.topology import Topology
        from pxrs_ray.actors.cluster.named_actors import actors_of

        if self._lent is not None:
            name, self._lent = self._lent.name, None
            Topology(name).kill()
            assert actors_of(name) == []
        _remove(self._folder)


class StageOfLent(Stage):
    """Its first topology is the lent one, where a test asks for nothing but queues and groups."""

    def __init__(self, folder: Path, lent: Lent) -> None:
        super().__init__(folder)
        self._lent = lent
        self._has_it = False

    def deploy(self, partitions: int = 8, **options: Any) -> Any:
        if self._has_it or options.keys() - {"groups", "queues"}:
            return super().deploy(partitions, **options)
        self._has_it = True
        return self._lent.deploy(self.config(partitions, **options))

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._has_it:
                self._lent.take_back()


@pytest.fixture(scope="session")
def lent(ray_cluster: Any) -> Iterator[Lent]:
    """The topology that tests marked with `lent` share."""
    lent = Lent()
    try:
        yield lent
    finally:
        lent.end()


@pytest.fixture
def stage(ray_cluster: Any, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Where a test deploys its topologies."""
    folder = Path(tempfile.mkdtemp(prefix="pxrs-actors-"))
    if request.node.get_closest_marker("lent"):
        stage: Stage = StageOfLent(folder, request.getfixturevalue("lent"))
    else:
        stage = Stage(folder)
    try:
        yield stage
    finally:
        stage.close()
        _remove(folder)


def _remove(folder: Path) -> None:
    """A process that was killed a moment ago may still make a file while its folder goes."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{folder} does not go")


def send(topology: Any, count: int, *, first: int = 0, queue: str = "q", keys: int = 64) -> None:
    """Send `count` messages m0, m1, ... under `keys` keys, and wait until all are in the log."""
    with topology.producer(queue) as producer:
        receipts = [
            producer.send(f"k{n % keys}", f"m{n}".encode()) for n in range(first, first + count)
        ]
        producer.flush()
        for receipt in receipts:
            receipt.result(30)


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reaches a local socket, as from another node; and Ray uses no TLS."""
    monkeypatch.setattr(local_socket, "connect", lambda name: None)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Those of one cluster."""
    return make_certificates(tmp_path_factory.mktemp("tls"))
