"""`TopologyMetrics`: every Prometheus metric of a topology, set by the coordinator alone.

Rules of this file. No message pays for metrics: the coordinator takes its own status every few
seconds and sets what it finds, so the cost does not rise with the rate, and while nothing happens
half as often: Ray exports no sooner. A total that another
process counts is reported by its difference, and begins anew when that process does. Every name
begins with `pxrs_`; Ray puts `ray_` before it. docs/metrics.md is made from METRICS.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from pxrs_ray.data.protocol import BufferStats
from pxrs_ray.group.counters import GroupCounters
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.status.answers import GroupStatus, PartitionStatus, TopologyStatus
from pxrs_ray.status.places import AT_HOME, by_host
from pxrs_ray.status.problem import OF_A_STATUS, Kind
from pxrs_ray.status.problems import partition_problem

REPORT_EVERY_S = 5.0
# So many times longer where nothing was otherwise than in the report before.
CALM_PAUSES = 2
# Ray drops a gauge that nobody has set for two of its exports, of ten seconds each: one that stays
# as it is must be set again, but not with each report.
REPEAT_AFTER_S = 9.0
MS_BOUNDARIES = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000]

# What is another number each time, also where nothing happens.
RESTLESS = frozenset({"buffer_memory_bytes", "buffer_disk_free_bytes", "buffer_lease_seconds"})

STALLS = (Kind.PARTITION_FENCED, Kind.PARTITION_STALLED)

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
OF_PARTITION = ("topology", "group", "partition")
OF_GROUP = ("topology", "group")
OF_QUEUE = ("topology", "queue")
OF_BUFFER = ("topology", "buffer")

# Name: kind, labels, meaning.
METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "lag_messages": (GAUGE, OF_PARTITION, "Messages that the group has not processed yet."),
    "lag_seconds": (
        GAUGE,
        OF_PARTITION,
        "Age of the oldest message not processed yet; left out where it is 0, but of the first "
        "partition.",
    ),
    "arrived": (COUNTER, OF_PARTITION, "Messages appended to the partition; shows key skew."),
    "failed_attempts": (
        GAUGE,
        OF_PARTITION,
        "Failed deliveries of the message at the checkpoint; left out where there are none, but of "
        "the first partition.",
    ),
    "partitions_unowned": (GAUGE, OF_GROUP, "Partitions without an owner now."),
    "partitions_stalled": (
        GAUGE,
        OF_GROUP,
        "Owned partitions that get nowhere: fenced at their log, or stalled.",
    ),
    "consumer_lag_messages": (
        GAUGE,
        (*OF_GROUP, "consumer"),
        "Messages that wait in the partitions of a consumer.",
    ),
    "consumers": (GAUGE, (*OF_GROUP, "state"), "Consumers by state."),
    "consumers_wanted": (GAUGE, OF_GROUP, "Consumers that the group should have."),
    "given_up": (
        COUNTER,
        OF_GROUP,
        "Messages that failed for good: skipped, sent to the dead letters, or put into quarantine.",
    ),
    "quarantined_keys": (GAUGE, OF_GROUP, "Keys in quarantine now."),
    "quarantined_messages": (GAUGE, OF_GROUP, "Messages that wait in quarantine now."),
    "paused": (GAUGE, OF_GROUP, "1 while the group is paused."),
    "processed": (COUNTER, OF_GROUP, "Messages that the group has processed and committed."),
    "redeliveries": (COUNTER, OF_GROUP, "Committed redeliveries after failed attempts."),
    "commits": (COUNTER, OF_GROUP, "Checkpoints written, one per partition."),
    "fenced_calls": (COUNTER, OF_GROUP, "Commits and releases refused for an old epoch."),
    "rebalances": (COUNTER, (*OF_GROUP, "cause"), "Changes of ownership, by cause."),
    "moved_partitions": (COUNTER, OF_GROUP, "Partitions assigned to a consumer."),
    "pause_ms": (HISTOGRAM, OF_GROUP, "How long a moved partition had no owner."),
    "produced": (COUNTER, OF_QUEUE, "Messages appended."),
    "queue_messages": (GAUGE, OF_QUEUE, "Messages kept now."),
    "queue_bytes": (GAUGE, OF_QUEUE, "Bytes kept now."),
    "buffer_memory_bytes": (GAUGE, OF_BUFFER, "Memory that a buffer's process holds."),
    "buffer_disk_bytes": (GAUGE, OF_BUFFER, "Bytes of logs that a buffer keeps."),
    "buffer_disk_free_bytes": (GAUGE, OF_BUFFER, "Free bytes of a buffer's disk."),
    "buffer_at_home": (GAUGE, OF_BUFFER, "1 while a buffer serves from its own disk."),
    "buffer_away_seconds": (GAUGE, OF_BUFFER, "How long a buffer's disk has been away."),
    "buffer_lease_seconds": (GAUGE, OF_BUFFER, "The rest of a buffer's lease."),
    "buffer_term": (GAUGE, OF_BUFFER, "One more than the number of changes of a buffer's home."),
    "buffers_uneven": (
        GAUGE,
        ("topology",),
        "Moves that would spread the buffers evenly over the nodes.",
    ),
    "buffer_hosts": (GAUGE, ("topology",), "Hosts that have a buffer now."),
    "buffer_fenced_reads": (COUNTER, OF_BUFFER, "Reads refused for an old epoch."),
    "buffer_refused_appends": (COUNTER, OF_BUFFER, "Appends refused: full, too large, fenced."),
    "buffer_links": (GAUGE, OF_BUFFER, "Connections of processes on other nodes, now."),
    "buffer_link_calls": (COUNTER, OF_BUFFER, "Calls that came over such connections."),
    "buffer_strangers": (
        COUNTER,
        OF_BUFFER,
        "Connections that did not begin as one that is welcome does, and were ended.",
    ),
    "buffers_away": (GAUGE, ("topology",), "Buffers that do not answer."),
    "store_ms": (HISTOGRAM, ("topology",), "How long a call to the registry store takes."),
    "store_down": (GAUGE, ("topology",), "1 while the registry store does not answer."),
    "problems": (
        GAUGE,
        ("topology", "severity", "kind"),
        "What `pxrs status` lists as wrong now: problems and warnings, by kind.",
    ),
}


@dataclass(frozen=True, slots=True)
class Sources:
    """What the coordinator gives to a report."""

    status: TopologyStatus
    tallies: Mapping[str, GroupCounters]
    buffers: Mapping[int, BufferStats]
    store_ms: list[float]


class TopologyMetrics:
    """Sets the metrics of one topology. For the coordinator."""

    # Whether nothing was otherwise in the last report.
    _calm = False

    def __init__(self, topology: str) -> None:
        self._topology = topology
        self._made: dict[str, Any] = {}
        self._totals: dict[tuple[str, tuple[str, ...]], float] = {}
        self._owners: dict[str, set[str]] = {}
        self._partitions: dict[str, dict[int, tuple[PartitionStatus, float]]] = {}
        self._shown: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}
        for name, (kind, labels, text) in METRICS.items():
            if kind == GAUGE:
                self._made[name] = Gauge(f"pxrs_{name}", text, tag_keys=labels)
            elif kind == COUNTER:
                self._made[name] = Counter(f"pxrs_{name}", text, tag_keys=labels)
            else:
                self._made[name] = Histogram(
                    f"pxrs_{name}", text, boundaries=MS_BOUNDARIES, tag_keys=labels
                )

    async def report_for_ever(self, sources: Callable[[], Awaitable[Sources]]) -> None:
        """Report every few seconds; its supervisor tells of one that fails."""
        while True:
            await asyncio.sleep(self.pause_s())
            self.report(await sources())

    def pause_s(self) -> float:
        """How long to wait before the next report."""
        return REPORT_EVERY_S * (CALM_PAUSES if self._calm else 1)

    def report(self, found: Sources) -> None:
        """Set everything."""
        status, self._calm = found.status, True
        found_kinds = Counts(problem.kind for problem in status.problems)
        for kind in OF_A_STATUS:
            self._set("problems", found_kinds[kind], kind.severity, kind)
        self._set("buffers_away", status.buffers - len(found.buffers))
        self._set("store_down", status.store.down_since_s is not None)
        for took_ms in found.store_ms:
            self._observe("store_ms", took_ms)
        for queue in status.queues:
            self._total("produced", queue.produced, queue.queue)
            self._set("queue_messages", queue.messages, queue.queue)
            self._set("queue_bytes", queue.bytes, queue.queue)
        for gone in self._partitions.keys() - {group.group for group in status.groups}:
            del self._partitions[gone]
        for group in status.groups:
            self._report_group(group, found.tallies.get(group.group))
        for index, stats in found.buffers.items():
            self._set("buffer_memory_bytes", stats.rss_bytes, str(index))
            self._set("buffer_disk_bytes", stats.bytes_kept, str(index))
            self._total("buffer_fenced_reads", stats.fenced, str(index))
            self._set("buffer_disk_free_bytes", stats.disk_free_bytes, str(index))
            self._total("buffer_refused_appends", stats.refused, str(index))
            self._set("buffer_links", stats.links, str(index))
            self._total("buffer_link_calls", stats.link_calls, str(index))
            self._total("buffer_strangers", stats.strangers_refused, str(index))
        self._report_places(status)

    def _report_places(self, status: TopologyStatus) -> None:
        """Where buffers are; no label is a host or a node, of which there is no end."""
        self._set("buffers_uneven", len(status.uneven))
        self._set("buffer_hosts", len(by_host(status.places)))
        for place in status.places:
            at_home = place.state == AT_HOME and place.lease_left_ms > 0
            self._set("buffer_at_home", at_home, str(place.buffer))
            self._set("buffer_away_seconds", place.away_s or 0.0, str(place.buffer))
            self._set("buffer_lease_seconds", place.lease_left_ms / 1_000, str(place.buffer))
            self._set("buffer_term", place.term, str(place.buffer))

    def _report_group(self, group: GroupStatus, tally: GroupCounters | None) -> None:
        name = group.group
        # Who owns nothing any more gets a last report, or its lag would be shown for ever.
        lags = dict.fromkeys(self._owners.get(name, ()), 0)
        for p in group.partitions:
            if p.owner is not None:
                lags[p.owner] = lags.get(p.owner, 0) + (p.lag or 0)
            if self._is_told(name, p):
                continue
            number = str(p.partition)
            self._set("lag_messages", p.lag or 0, name, number)
            self._total("arrived", p.end_offset or 0, name, number)
            self._set_rare("lag_seconds", (p.lag_ms or 0) / 1_000, name, number)
            self._set_rare("failed_attempts", p.attempts, name, number)
            # A message that failed again since the last report was delivered that often again.
            self._total("redeliveries", p.attempts, name, part=number, ours=True)
            self._total("processed", p.checkpoint, name, part=number)
        for owner, lag in lags.items():
            self._set("consumer_lag_messages", lag, name, owner)
        self._owners[name] = {p.owner for p in group.partitions if p.owner is not None}
        self._set("partitions_unowned", sum(p.owner is None for p in group.partitions), name)
        wrong = (partition_problem(group, p) for p in group.partitions)
        stalled = sum(each is not None and each.kind in STALLS for each in wrong)
        self._set("partitions_stalled", stalled, name)
        self._set("paused", group.paused, name)
        self._set("consumers_wanted", group.wanted, name)
        self._set("quarantined_keys", group.aside.keys, name)
        self._set("quarantined_messages", group.aside.messages, name)
        for c in group.consumers:
            part = f"{c.member}#{c.incarnation}"
            self._total("given_up", c.given_up_count, name, part=part, ours=True)
        states = [c.state for c in group.consumers]
        for state in {"running", "pending", "silent", "frozen", "failed", *states}:
            self._set("consumers", states.count(state), name, state)
        if tally is None:
            return
        self._total("commits", tally.commits, name, ours=True)
        self._total("fenced_calls", tally.fenced, name, ours=True)
        self._total("moved_partitions", tally.moves, name, ours=True)
        for cause, count in tally.rebalances.items():
            self._total("rebalances", count, name, cause, ours=True)
        while tally.pauses_ms:
            self._observe("pause_ms", tally.pauses_ms.popleft(), name)

    def _is_told(self, group: str, partition: PartitionStatus) -> bool:
        """Whether a partition is as it was when its metrics were set, a moment ago: most sleep."""
        of_group = self._partitions.setdefault(group, {})
        told, set_s = of_group.get(partition.partition, (None, 0.0))
        if partition is told and time.monotonic() - set_s < REPEAT_AFTER_S:
            return True
        of_group[partition.partition] = (partition, time.monotonic())
        return False

    def _labels(self, name: str, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(METRICS[name][1], (self._topology, *values), strict=True))

    def _set(self, name: str, value: float, *labels: str) -> None:
        value, now_s = float(value), time.monotonic()
        before, set_s = self._shown.get((name, labels), (None, 0.0))
        if value == before and now_s - set_s < REPEAT_AFTER_S:
            return
        if value != before and name not in RESTLESS:
            self._calm = False
        self._shown[name, labels] = (value, now_s)
        self._made[name].set(value, self._labels(name, labels))

    def _set_rare(self, name: str, value: float, *labels: str) -> None:
        """Set what is 0 for nearly all partitions: Ray's export takes 0.04 ms of each one that is
        set, every ten seconds. Where it was something it is set to 0 once; the first one always."""
        before, _ = self._shown.get((name, labels), (0.0, 0.0))
        if value or before or labels[-1] == "0":
            self._set(name, value, *labels)

    def _observe(self, name: str, value: float, *labels: str) -> None:
        self._made[name].observe(float(value), self._labels(name, labels))

    def _total(
        self, name: str, total: float, *labels: str, part: str = "", ours: bool = False
    ) -> None:
        """Add what `total` has grown by.

        One that is `ours` began with this process: its first value counts, and when it falls it
        has begun anew. Of any other, only growth that we have seen counts.
        """
        key = (name, (*labels, part))
        before = self._totals.get(key)
        self._totals[key] = total
        grown = total - before if before is not None else 0.0
        if ours and (before is None or total < before):
            grown = total
        if grown > 0:
            self._calm = False
            self._made[name].inc(grown, self._labels(name, labels))
