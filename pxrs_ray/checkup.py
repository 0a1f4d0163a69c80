"""What `pxrs doctor` makes of a status: each thing that is wrong, with its remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pxrs_ray.stats import GroupStatus, PartitionStatus, TopologyStatus

STORE_SLOW_MS = 100.0
# How a status tells of a gap in a log that works again.
LOST_OFFSETS = " lost offsets "
LAG_MS_LARGE = 10 * 60_000
# One partition with so many times its share is no accident, once there are so many messages.
SKEW_LARGE = 4.0
SKEW_MESSAGES_MIN = 10_000


class Level(StrEnum):
    """How bad a finding is. A PROBLEM makes the doctor's exit status 1."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do about it."""

    level: Level
    subject: str
    text: str
    remedy: str = ""


def check_topology(status: TopologyStatus) -> list[Finding]:
    """Everything that a topology's status tells; one OK when nothing is wrong."""
    found = [*_check_store(status), *_check_queues(status)]
    for group in status.groups:
        found += _check_group(group)
    if not found:
        told = f"{len(status.queues)} queues, {len(status.groups)} groups, nothing to report"
        found.append(Finding(Level.OK, f"topology {status.topology}", told))
    return found


def _check_store(status: TopologyStatus) -> Iterator[Finding]:
    store, subject = status.store, f"store of {status.topology}"
    if store.problem:
        yield Finding(
            Level.PROBLEM,
            subject,
            store.problem,
            f"bring {store.url} back; until then work goes on and checkpoints wait",
        )
    elif store.mean_ms > STORE_SLOW_MS:
        yield Finding(
            Level.WARNING,
            subject,
            f"a call takes {store.mean_ms:.0f} ms",
            "look at the load and the network way of the store: commits wait for it",
        )
    if not store.durable:
        yield Finding(
            Level.WARNING,
            subject,
            f"{store.url} does not outlive its process: checkpoints are lost with it",
            "name a durable store in the topology file, such as sqlite: or etcd://",
        )
    for warning in store.warnings:
        yield Finding(Level.WARNING, subject, warning, "see docs/guarantees.md, 'Stores'")


def _check_queues(status: TopologyStatus) -> Iterator[Finding]:
    for problem in status.problems:
        yield Finding(
            Level.PROBLEM,
            f"topology {status.topology}",
            problem,
            "a buffer that was restarted comes back by itself within seconds; if it does not, look "
            "for its node in `ray status` and for its log with `ray logs`",
        )
    for queue in status.queues:
        for problem in queue.problems:
            if LOST_OFFSETS in problem:
                yield Finding(
                    Level.WARNING,
                    f"queue {queue.queue}",
                    problem,
                    "the log goes on above them; feed those messages again if they matter",
                )
                continue
            yield Finding(
                Level.PROBLEM,
                f"queue {queue.queue}",
                problem,
                "bring the lost disk back, or go on above the gap with "
                f"`pxrs accept-loss {queue.queue}`",
            )


def _check_group(group: GroupStatus) -> Iterator[Finding]:
    subject = f"group {group.group}"
    if group.problem:
        yield Finding(
            Level.PROBLEM,
            subject,
            f"is halted: {group.problem}",
            "its registry contradicts itself: restore the store, then restart the coordinator "
            "with `pxrs up FILE`",
        )
    failing = [p for p in group.partitions if p.problem]
    for p in failing:
        yield Finding(
            Level.PROBLEM,
            f"{subject}, P{p.partition}",
            f"stands still at offset {p.checkpoint}: {p.problem}",
            "mend the handler and `pxrs up` again, or pass the message with "
            f"`pxrs seek {group.group} {p.checkpoint + 1} -p P{p.partition}`",
        )
    working = [c for c in group.consumers if c.state in ("running", "stable")]
    for c in group.consumers:
        if c.state == "pending":
            remedy = "add a node, or ask for less in ray_options"
            yield Finding(
                Level.WARNING, f"{subject}, {c.member}", f"has no place: {c.reason}", remedy
            )
        elif c.state in ("silent", "failed"):
            yield Finding(
                Level.PROBLEM,
                f"{subject}, {c.member}",
                f"is {c.state}: {c.reason}",
                "see its log with `ray logs`; its partitions are with others by now",
            )
    unowned = [p for p in group.partitions if p.owner is None]
    if unowned and not working and group.lag:
        yield Finding(
            Level.WARNING,
            subject,
            f"has a lag of {group.lag:,} and no consumer",
            f"`pxrs up FILE`, or `pxrs scale {group.group} N`",
        )
    elif unowned and working:
        yield Finding(
            Level.WARNING,
            subject,
            f"{_names(unowned)} without an owner, {len(working)} consumers work",
            "normal for a moment while ownership moves; if it stays, "
            f"`pxrs why {_first(unowned)} -g {group.group}`",
        )
    yield from _check_spread(group)
    if group.lag_ms > LAG_MS_LARGE and not group.paused:
        minutes = group.lag_ms / 60_000
        yield Finding(
            Level.WARNING,
            subject,
            f"is {minutes:,.0f} minutes behind ({group.lag:,} messages)",
            f"`pxrs plan {group.group} N` shows what more consumers would take",
        )


def _check_spread(group: GroupStatus) -> Iterator[Finding]:
    """How evenly keys have spread over the partitions, ever since."""
    came = {p.partition: p.end_offset or 0 for p in group.partitions}
    if sum(came.values()) < SKEW_MESSAGES_MIN:
        return
    fullest = max(came, key=lambda partition: came[partition])
    skew = came[fullest] * len(came) / sum(came.values())
    if skew > SKEW_LARGE:
        yield Finding(
            Level.WARNING,
            f"group {group.group}, P{fullest}",
            f"has had {skew:.1f} times its share of all messages",
            "few keys, or one that has most of the messages: `pxrs tail` shows them; send with "
            "keys that spread, or give the group `parallelism`",
        )


def _names(partitions: list[PartitionStatus]) -> str:
    told = ", ".join(f"P{p.partition}" for p in partitions[:5])
    return told if len(partitions) <= 5 else f"{told} and {len(partitions) - 5} more"


def _first(partitions: list[PartitionStatus]) -> str:
    return f"P{partitions[0].partition}"
