"""Statuses made by hand, for tests of everything that shows one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pxrs_ray.dashboard.page_state import PageState
from pxrs_ray.dashboard.shown_topology import PageSource
from pxrs_ray.data.protocol import BufferStats
from pxrs_ray.errors import NotFound
from pxrs_ray.status.answers import (
    ConsumerStatus,
    GroupStatus,
    PartitionStatus,
    QueueStatus,
    StoreStatus,
    TopologyStatus,
)
from pxrs_ray.status.past import Point
from pxrs_ray.status.places import AT_HOME, BufferStatus


def group_status(
    partitions: int = 16, consumers: int = 3, lag: int = 0, **options: object
) -> GroupStatus:
    """A group whose partitions are dealt round; partition p lags by `lag` * p."""
    members = [f"billing-{n}" for n in range(consumers)]
    rows = tuple(
        PartitionStatus(
            partition=p,
            phase="owned" if members else "unowned",
            owner=members[p % consumers] if members else None,
            epoch=1,
            checkpoint=100,
            end_offset=100 + lag * p,
            lag=lag * p,
            lag_ms=10 * lag * p,
            attempts=0,
        )
        for p in range(partitions)
    )
    told = tuple(
        ConsumerStatus(m, 1, "running", tuple(range(n, partitions, consumers)), 5, 900, 1, "node")
        for n, m in enumerate(members)
    )
    found: dict[str, object] = {
        "group": "billing",
        "queue": "payments",
        "generation": 1,
        "version": 20,
        "assignor": "sticky",
        "paused": False,
        "wanted": consumers,
        "partitions": rows,
        "consumers": told,
        "topology": "shop",
    }
    return GroupStatus(**{**found, **options})  # type: ignore[arg-type]


def topology_status(*groups: GroupStatus, **options: object) -> TopologyStatus:
    """A topology with one queue, and these groups."""
    partitions = len(groups[0].partitions) if groups else 16
    produced = sum(p.end_offset or 0 for p in groups[0].partitions) if groups else 0
    found: dict[str, object] = {
        "topology": "shop",
        "fingerprint": "f00d",
        "coordinator_pid": 1,
        "coordinator_started_s": 0.0,
        "buffers": 2,
        "store": StoreStatus("sqlite", "sqlite:///x", True, 10, 5, 1.5),
        "queues": (QueueStatus("payments", partitions, produced, 1_000, (), produced),),
        "groups": groups,
    }
    return TopologyStatus(**{**found, **options})  # type: ignore[arg-type]


def buffer_place(buffer: int = 0, **options: object) -> BufferStatus:
    """A buffer that is well at home, each on a host of its own."""
    found: dict[str, object] = {
        "buffer": buffer,
        "state": AT_HOME,
        "host": f"10.0.0.{buffer + 1}",
        "node": f"node-{buffer}-of-some-length",
        "disk": f"disk-{buffer}-of-some-length",
        "term": 1,
        "lease_left_ms": 9_000,
        "bytes": 1_000_000,
        "free_bytes": 50_000_000_000,
    }
    return BufferStatus(**{**found, **options})  # type: ignore[arg-type]


def buffer_stats(messages: int = 10) -> BufferStats:
    """A buffer that has done a little."""
    names = dict.fromkeys(BufferStats.__dataclass_fields__, 0)
    return BufferStats(**{**names, "messages": messages, "rss_bytes": 70_000_000})  # type: ignore[arg-type]


class DrawnPage:
    """What a page asks of a topology beside its state: always the same, and noted is what is to be
    done."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, Any]] = []
        self.is_away = False

    def act(self, action: str, group: str, value: Any) -> str:
        self.done.append((action, group, value))
        return "done"

    def past(self) -> Mapping[str, Sequence[Point]]:
        return {"billing": [{"at_ms": 5, "lag": 70, "consumed": 1.0, "produced": 2.0}]}

    def check(self) -> None:
        if self.is_away:
            raise NotFound("no topology 'shop' runs")

    def messages(self, queue: str, asked: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        if asked.get("partition") == "P9":
            raise NotFound(f"queue {queue!r} has no partition 9")
        text = {"key": "account-7", "payload": "<b>3</b>", "headers": {"trace": "7"}}
        return [{"partition": 3, "offset": 17, "at_ms": 1_000, **text}]

    def aside(self, group: str) -> Mapping[str, Any]:
        letter = {"place": "P1@4", "from": "P3@17", "error": "ValueError('no')", "attempts": 5}
        text = {"key": "account-7", "payload": "bad", "headers": {}, "at_ms": 1_000}
        return {"policy": "dead_letter", "letters": [{**letter, **text}], "keys": []}

    def stack(self, consumer: str) -> Mapping[str, Any]:
        if "/" not in consumer:
            raise NotFound(f"no consumer {consumer!r} of shop")
        text = f"{consumer}: pid 17\n  handlers.py:7 in charge: <b>time.sleep(60)</b>"
        return {"text": text, "ray": "http://127.0.0.1:8265/#/actors/7"}


class DrawnPages:
    """Several topologies on one page, each by its name."""

    def __init__(self, **pages: PageSource) -> None:
        self.pages = pages

    def names(self) -> Sequence[str]:
        return sorted(self.pages, key=lambda name: (isinstance(self.pages[name], Missing), name))

    def of(self, topology: str) -> PageSource:
        return self.pages.get(topology) or Missing()


class Missing(DrawnPage):
    """One that does not run."""

    def look(self) -> PageState:
        raise NotFound("no such topology runs")

    def act(self, action: str, group: str, value: Any) -> str:
        raise NotFound("no such topology runs")
