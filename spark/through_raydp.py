"""Feeding through RayDP: Spark's partitions as Arrow bytes in Ray, each routed by a task.

Rules of this file. The driver asks RayDP's executors for a partition's bytes and passes the reply
on, unread, to a routing task, which reads the bytes in Ray's object store: nothing is copied, and a
task that Ray runs again gets the very same bytes. A `FeedRound` says what is fetched when; when a
fetch fails, Spark prepares everything again and the feed goes on with what is missing. What RayDP
holds is released in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import ray
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel
from ray._private.worker import global_worker
from ray.exceptions import RayError, RayTaskError

from pxrs_ray.actors.cluster.coordinator_client import answer_of
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import PxrsError
from pxrs_ray.feed.facts import FeedState, KnownProgress
from pxrs_ray.feed.feed_round import FeedRound
from pxrs_ray.feed.feed_run import FetchFailed
from pxrs_ray.feed.partition_feed import RoutedRows
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.spark.routing import Feed
from pxrs_ray.spark.tasks import route_bytes
from pxrs_ray.supervision.restart_rules import first_line, last_line

# What Java says when an executor was lost: not the user's fault, and worth another try.
RAYDPS_FAULTS = ("io.ray.", "RayActor", "RayDPException", "ExecutorLostFailure", "Unserializable")
EXECUTOR = "raydp-executor-"
LOOK_S = 0.5
END_S = 5.0
CANCEL_S = 10.0


@dataclass(frozen=True, slots=True)
class PreparedFrame:
    """A DataFrame whose partitions wait, as Arrow bytes, in RayDP's executors.

    `locations` names the executor actor of each.
    """

    rdd_id: int
    locations: tuple[str, ...]
    schema_json: str
    agent: str

    def __len__(self) -> int:
        return len(self.locations)

    def fetch(self, number: int) -> Any:
        """Ask for one partition's bytes."""
        before = global_worker.load_code_from_local
        # Calls to Java want this, and everything else of ours wants it off.
        global_worker.set_load_code_from_local(True)  # type: ignore[no-untyped-call]
        try:
            executor: Any = ray.get_actor(self.locations[number])
            return executor.getRDDPartition.remote(
                self.rdd_id, number, self.schema_json, self.agent
            )
        except ValueError as error:
            raise FetchFailed(f"{self.locations[number]} is gone") from error
        finally:
            global_worker.set_load_code_from_local(before)  # type: ignore[no-untyped-call]

    def route(self, feed: Feed, number: int, told: KnownProgress, fetched: Any) -> Any:
        """Have them routed; in a list, Ray gives the task the reference and not a copy."""
        return route_bytes.remote(feed, number, told, [fetched])


@contextmanager
def prepared(df: DataFrame) -> Iterator[PreparedFrame]:
    """Have Spark compute `df` and hold it as Arrow bytes; released at the end."""
    context = df.sparkSession.sparkContext
    jvm: Any = context._jvm
    writer = jvm.org.apache.spark.sql.raydp.ObjectStoreWriter
    # As they are: PySpark's own level would have them compressed, only to be fetched at once.
    level = context._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        info = writer.prepareRecoverableRDD(df._jdf, level)
    except Py4JJavaError as error:
        said = str(error.java_exception)
        # What RayDP answers to a DataFrame without any partition.
        if "ArrayIndexOutOfBounds" in said and df.isEmpty():
            yield PreparedFrame(-1, (), "", "")
            return
        if any(fault in said for fault in RAYDPS_FAULTS):
            raise FetchFailed(first_line(said)) from error
        raise
    try:
        actors = _executor_actors(list(info.locations()))
        yield PreparedFrame(info.rddId(), actors, info.schemaJson(), info.driverAgentUrl())
    finally:
        if context._jsc is not None:
            writer.releaseRecoverableRDD(info.rddId())


def _executor_actors(executors: Sequence[str]) -> tuple[str, ...]:
    """The actor of each executor. Raises FetchFailed when there is none.

    An executor that Ray started again has a new number, and its actor still the old name; any
    executor can give any partition, though not as fast, so one without an actor of its name is
    asked for at another.
    """
    there = sorted(name for name in ray.util.list_named_actors() if name.startswith(EXECUTOR))
    if executors and not there:
        raise FetchFailed("RayDP has no executor left")
    named = {executor: f"{EXECUTOR}{executor}" for executor in executors}
    left = sorted(set(there) - set(named.values())) or there
    for at, executor in enumerate(sorted(named)):
        if named[executor] not in there:
            named[executor] = left[at % len(left)]
    return tuple(named[executor] for executor in executors)


class FrameSource(Protocol):
    """Partitions that can be fetched, one at a time from each location."""

    @property
    def locations(self) -> Sequence[str]:
        """Where each partition is."""

    def fetch(self, number: int) -> Any:
        """Begin to fetch one partition; answers a reference to it. Raises FetchFailed."""

    def route(self, feed: Feed, number: int, told: KnownProgress, fetched: Any) -> Any:
        """Have what was fetched routed; answers a reference to its `RoutedRows`."""


def feed_round(
    feed: Feed,
    data: FrameSource,
    numbers: Sequence[int],
    state: FeedState,
    on_routed: Callable[[RoutedRows], None],
    fetch_s_max: float,
) -> None:
    """Route the partitions `numbers`, telling each that is done.

    Raises FetchFailed when RayDP fails, and what a routing task raised; the tasks that are under
    way are ended first, so that nothing goes on behind the caller's back.
    """
    cpus = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    rounds = FeedRound(numbers, data.locations, cpus, round(fetch_s_max * 1_000))
    fetching: dict[Any, int] = {}
    routing: dict[Any, int] = {}
    try:
        while not rounds.over:
            for number in rounds.fetches(monotonic_ms()):
                fetching[data.fetch(number)] = number
            ready, _ = ray.wait([*routing, *fetching], timeout=LOOK_S, fetch_local=False)
            for fetched, number in _fetched(fetching):
                rounds.fetched(number)
                routing[data.route(feed, number, state.known(number), fetched)] = number
            rounds.look(monotonic_ms())
            for reference in ready:
                if reference in routing:
                    number = routing.pop(reference)
                    try:
                        on_routed(ray.get(reference))
                    except RayError as error:
                        raise _cause(error, number) from None
                    rounds.routed(number)
    finally:
        _end(list(routing))


def _fetched(fetching: dict[Any, int]) -> list[tuple[Any, int]]:
    """Take the fetches that have come out."""
    if not fetching:
        return []
    ready, _ = ray.wait(list(fetching), num_returns=len(fetching), timeout=0, fetch_local=False)
    return [(reference, fetching.pop(reference)) for reference in ready]


def _end(routing: list[Any]) -> None:
    """Let the tasks that are under way come to their end, or end them."""
    for patience_s in (END_S, CANCEL_S):
        if routing:
            _, routing = ray.wait(routing, num_returns=len(routing), timeout=patience_s)
        for reference in routing:
            ray.cancel(reference)


def _cause(error: RayError, number: int) -> Exception:
    """What a routing task ended with: ours as it is; RayDP's fault as FetchFailed."""
    if isinstance(error, RayTaskError):
        answer = answer_of(error)
        if isinstance(answer, PxrsError):
            return answer
        if not isinstance(answer, RayError):
            return error
    return FetchFailed(f"Spark partition {number}: {last_line(error)}")
