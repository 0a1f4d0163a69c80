"""One Ray and one Spark on it for all Spark tests: starting them costs ten seconds."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.light_ray import end_log_monitor, let_agents_look_seldom
from tests.servers import skip_or_fail
from tests.spark.helpers import RUN_BY, BuffersOnly

RAY_CPUS = 4
os.environ[RUN_BY] = str(os.getpid())
# Javas that live for seconds: what their second compiler takes, they never get back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# PySpark leaves the sockets that it reads results from to the garbage collector.
PYSPARKS_OWN = "ignore:.*Exception ignored in.*socket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(PYSPARKS_OWN))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    import ray

    let_agents_look_seldom()
    context = ray.init(
        "local",
        num_cpus=RAY_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=500 << 20,
        namespace="pxrs-spark-tests",
    )
    end_log_monitor()
    yield context
    ray.shutdown()


@pytest.fixture(scope="session")
def java() -> None:
    from pxrs_ray.errors import DependencyMissing
    from pxrs_ray.spark.java import check_java

    try:
        check_java(on_path=True)
    except DependencyMissing as missing:
        skip_or_fail(str(missing))


@pytest.fixture(scope="session")
def spark(ray_cluster: Any, java: None) -> Iterator[Any]:
    """The RayDP session: one executor of two cores."""
    from pxrs_ray.spark import spark_on_ray

    with spark_on_ray(
        "pxrs-tests", executors=1, cores=2, memory="1g", **{"spark.sql.shuffle.partitions": "4"}
    ) as session:
        yield session


MakeQueue = Callable[..., BuffersOnly]


class LentBuffers:
    """Buffers that tests have one after the other, each with a queue anew.

    Their processes take longer to start than most tests take. What goes wrong with them ends them,
    and the next test gets others.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lent: BuffersOnly | None = None

    def queue(self, **options: Any) -> BuffersOnly:
        """A queue with these options in them."""
        if self._lent is not None:
            try:
                self._lent.begin_again(**options)
            except BaseException:
                self.end()
                raise
        else:
            name = _any_name()
            self._lent = BuffersOnly(name, self._folder / name, **options)
        return self._lent

    def end(self) -> None:
        """End them."""
        lent, self._lent = self._lent, None
        if lent is not None:
            lent.close()


def _any_name() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def lent_buffers(
    ray_cluster: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LentBuffers]:
    lent = LentBuffers(tmp_path_factory.mktemp("lent"))
    yield lent
    lent.end()


@pytest.fixture
def make_queue(lent_buffers: LentBuffers, tmp_path: Path) -> Iterator[MakeQueue]:
    """Make queues: the first in buffers that are lent, others in their own, closed at the end."""
    made: list[BuffersOnly] = []

    def make(**options: Any) -> BuffersOnly:
        options.setdefault("partitions", 8)
        if made:
            name = _any_name()
            made.append(BuffersOnly(name, tmp_path / name, **options))
        else:
            made.append(lent_buffers.queue(**options))
        return made[-1]

    yield make
    for queue in made[1:]:
        queue.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> BuffersOnly:
    return make_queue()
