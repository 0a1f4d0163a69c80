"""What the live page shows at one moment, as plain data that JSON can carry. Pure.

Rules of this file: partitions are columns, not rows, so that 1,024 of them stay small; everything
that can be computed here is, and the page only draws.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from pxrs_ray.data.protocol import BufferStats
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Change
from pxrs_ray.status.answers import ConsumerStatus, GroupStatus, TopologyStatus
from pxrs_ray.status.past import Past, Point
from pxrs_ray.status.places import AT_HOME
from pxrs_ray.status.problem import Problem
from pxrs_ray.status.problems import group_problems, partition_problem
from pxrs_ray.status.views import CALL_SHOWN_S, group_state, working_count

POINTS_KEPT = 2_000
GROUPS_SHOWN = 10_000
EVENTS_KEPT = 100
SAME_EVENT_MS = 2_000
WHY_SHOWN = 5

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PageState:
    """One look at a topology: `changes` are those since the look before, by group."""

    status: TopologyStatus
    buffers: Mapping[int, BufferStats]
    changes: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)


class Story:
    """What the page remembers: rates, the last minutes of each group, and its rebalances."""

    def __init__(self) -> None:
        self._past = Past(POINTS_KEPT, GROUPS_SHOWN)
        self._events: dict[str, deque[Plain]] = {}

    def tell(self, at_ms: int, look: PageState) -> Plain:
        """Take in one look; answer what to show now."""
        status = look.status
        self._past.note(at_ms, status)
        for group, changes in look.changes.items():
            _note_changes(self._events.setdefault(group, deque(maxlen=EVENTS_KEPT)), changes)
        return {
            "at_ms": at_ms,
            "topology": status.topology,
            "fingerprint": status.fingerprint,
            "store": {
                "url": status.store.url,
                "mean_ms": round(status.store.mean_ms, 2),
            },
            "problems": [{**p.plain(), "line": str(p)} for p in status.problems],
            "queues": [
                {
                    "queue": q.queue,
                    "partitions": q.partitions,
                    "messages": q.messages,
                    "bytes": q.bytes,
                    "rate": round(self._past.rates.produced(q.queue), 1),
                }
                for q in status.queues
            ],
            "buffers": [
                {**_buffer(index, look.buffers.get(index)), **_place(status, index)}
                for index in range(status.buffers)
            ],
            "groups": [self._group(group) for group in status.groups],
        }

    def begin(self, before: Mapping[str, Sequence[Point]]) -> None:
        """Go on after what the coordinator has noted while no page was open."""
        self._past.begin(before)

    def past(self) -> Mapping[str, Sequence[Point]]:
        """The points of each group so far, for a page that was opened just now."""
        return self._past.points()

    def _group(self, group: GroupStatus) -> Plain:
        members = [c.member for c in group.consumers]
        number = {member: index for index, member in enumerate(members)}
        lag_of = {p.partition: p.lag or 0 for p in group.partitions}
        wrong = {p.partition: partition_problem(group, p) for p in group.partitions}
        found = group_problems(group)
        state = group_state(group, found)
        return {
            "group": group.group,
            "queue": group.queue,
            "state": state.words,
            "tone": state.tone,
            "why": [_why(group, each) for each in found[:WHY_SHOWN]],
            "wanted": group.wanted,
            "working": working_count(group),
            "given_up": group.given_up_count,
            "aside": group.aside.keys,
            "lag": group.lag,
            "lag_ms": group.lag_ms,
            "point": self._past.newest(group.group),
            "generation": group.generation,
            "version": group.version,
            "assignor": group.assignor,
            "consumers": [
                {
                    "member": c.member,
                    "incarnation": c.incarnation,
                    "state": c.state,
                    "partitions": len(c.partitions),
                    "lag": sum(lag_of.get(p, 0) for p in c.partitions),
                    "processed": c.processed,
                    "lease_ms": c.lease_left_ms,
                    "pid": c.pid,
                    "node": c.node[:8],
                    "now": c.reason or _call(c),
                }
                for c in group.consumers
            ],
            "partitions": {
                "owner": [number.get(p.owner or "", -1) for p in group.partitions],
                "phase": [p.phase for p in group.partitions],
                "epoch": [p.epoch for p in group.partitions],
                "checkpoint": [p.checkpoint for p in group.partitions],
                "lag": [p.lag for p in group.partitions],
                "lag_ms": [p.lag_ms for p in group.partitions],
                "problem": {
                    p: [each.severity, each.text] for p, each in wrong.items() if each is not None
                },
            },
            "events": list(self._events.get(group.group, ())),
        }


def _why(group: GroupStatus, found: Problem) -> Plain:
    """What is wrong, and with which part of the group."""
    part = found.where.removeprefix(f"group {group.group}").removeprefix(", ")
    return {"severity": found.severity, "text": f"{part}: {found.text}" if part else found.text}


def _call(consumer: ConsumerStatus) -> str:
    """The longest call of its handler, where it is long enough to be shown."""
    calls = consumer.calls
    return f"in a call: {calls[0]}" if calls and calls[0].seconds >= CALL_SHOWN_S else ""


def _buffer(index: int, stats: BufferStats | None) -> Plain:
    if stats is None:
        return {"buffer": index, "away": True}
    return {
        "buffer": index,
        "away": False,
        "memory": stats.rss_bytes,
        "disk": stats.bytes_kept,
        "free": stats.disk_free_bytes,
        "messages": stats.messages,
        "fenced": stats.fenced,
        "refused": stats.refused,
    }


def _place(status: TopologyStatus, index: int) -> Plain:
    place = next((each for each in status.places if each.buffer == index), None)
    if place is None:
        return {}
    return {
        "host": place.host,
        "node": place.short_node,
        "disk_id": place.short_disk,
        "term": place.term,
        "lease_ms": place.lease_left_ms,
        "state": place.text,
        "well": place.state == AT_HOME,
    }


def _note_changes(events: deque[Plain], changes: Iterable[Change]) -> None:
    """One event for all changes of one cause that come together."""
    for change in changes:
        last = events[-1] if events else None
        moves = int(change.kind == "claim")
        same = (
            last is not None
            and last["cause"] == change.cause
            and change.at_ms - last["at_ms"] < SAME_EVENT_MS
        )
        if last is not None and same:
            last["moved"] += moves
            last["version"] = change.version
        else:
            events.append(
                {
                    "at_ms": change.at_ms,
                    "cause": change.cause,
                    "kind": change.kind,
                    "moved": moves,
                    "version": change.version,
                }
            )
