"""What `pxrs doctor` finds in a status: each problem, with its remedy. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pxrs_ray.clock import wall_ms
from pxrs_ray.status.answers import GroupStatus, PartitionStatus, TopologyStatus
from pxrs_ray.status.places import DEPOSED, by_host
from pxrs_ray.status.standstill import LOG_REFUSES

STORE_SLOW_MS = 100.0
MOVES_TOLD = 5
# How a status tells of a gap in a log that works again.
LOST_OFFSETS = " lost offsets "
# How a status begins to tell of a buffer that does not answer.
BUFFER = re.compile(r"buffer (\d+)\b.*does not answer")
# ... of one whose host is away, of one that goes to another, and of one that cannot.
WAITS = re.compile(r"buffer (\d+) waits for (?:host|disk)")
MOVES = re.compile(r"buffer \d+ moves from host")
CANNOT_LEAVE = re.compile(r"buffer (\d+) (?:cannot|could not) leave host")
# What calls a paid service may take seconds; half a minute in one call is worth a look.
CALL_LONG_S = 30.0
LAG_MS_LARGE = 10 * 60_000
# One partition with so many times its share is no accident, once there are so many messages.
SKEW_LARGE = 4.0
DAY_MS = 86_400_000
UNUSED_DAYS = 3
SKEW_MESSAGES_MIN = 10_000


class Level(StrEnum):
    """How bad a finding is. A PROBLEM makes the doctor's exit status 1."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked, and what to do about it."""

    level: Level
    subject: str
    text: str
    remedy: str = ""


def check_topology(status: TopologyStatus) -> list[Finding]:
    """Everything that a topology's status tells; one OK when nothing is wrong."""
    found = [*_check_store(status), *_check_queues(status), *_check_places(status)]
    for group in status.groups:
        found += _check_group(group, status.topology)
    if not found:
        told = f"{len(status.queues)} queues, {len(status.groups)} groups, nothing to report"
        found.append(Finding(Level.OK, f"topology {status.topology}", told))
    return found


def _check_store(status: TopologyStatus) -> Iterator[Finding]:
    store, subject = status.store, f"store of {status.topology}"
    if store.problem or store.away_s is not None:
        told = "; ".join(status.away_told()) or store.problem
        yield Finding(
            Level.PROBLEM,
            subject,
            told,
            f"bring {store.url} back (`pxrs status -t {status.topology}` tells when it answers): "
            "work goes on, "
            "checkpoints wait, ownership stands still, changes are refused",
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


def _remedy(problem: str, topology: str) -> str:
    """What helps against a problem of a topology."""
    if buffer := BUFFER.match(problem):
        return (
            f"`pxrs restart buffer/{buffer[1]} -t {topology}`; one that is frozen is ended "
            "and started anew by its node within half a lease, one whose node is gone waits for it"
        )
    if buffer := WAITS.match(problem):
        return (
            "bring that host back with its disk: everything goes on within seconds. If it never "
            f"comes, `pxrs accept-loss --buffer {buffer[1]} -t {topology}` gives up what lies there"
        )
    if MOVES.match(problem):
        return "nothing: it serves until the end of the copy, and then at its new home"
    if buffer := CANNOT_LEAVE.match(problem):
        return (
            "add a node with a disk: it is tried again by itself, or at once by "
            f"`pxrs move {buffer[1]} -t {topology}`"
        )
    if "`pxrs " in problem:
        return "what is named there"
    return (
        f"it is tried again by itself; if it stays, `pxrs restart coordinator -t {topology}` "
        "starts what tries anew, and no partition moves"
    )


def _check_queues(status: TopologyStatus) -> Iterator[Finding]:
    for problem in status.problems:
        level = Level.WARNING if MOVES.match(problem) else Level.PROBLEM
        remedy = _remedy(problem, status.topology)
        yield Finding(level, f"topology {status.topology}", problem, remedy)
    for queue in status.queues:
        for problem in queue.problems:
            buffer = BUFFER.match(problem)
            if buffer:
                remedy = f"`pxrs restart buffer/{buffer[1]} -t {status.topology}`"
                yield Finding(Level.PROBLEM, f"queue {queue.queue}", problem, remedy)
                continue
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
                f"`pxrs accept-loss {queue.queue} -t {status.topology}`",
            )


def _check_places(status: TopologyStatus) -> Iterator[Finding]:
    """Whether each buffer has what it serves by, and whether they are spread."""
    for place in status.places:
        subject = f"buffer {place.buffer} of {status.topology}"
        if place.state == DEPOSED:
            yield Finding(
                Level.PROBLEM,
                subject,
                place.text,
                "its registry went back, or two clusters share one: restore the newest registry, "
                "or go on with this one: `pxrs recover registry FILE --accept-loss`",
            )
    if status.uneven:
        hosts = by_host(status.places)
        told = ", ".join(f"host {host} has {len(has)}" for host, has in hosts.items())
        bare = sorted({step.target for step in status.uneven} - set(hosts))
        told += "".join(f", host {host} has none" for host in bare)
        moves = [f"`pxrs move {s.buffer} {s.target} -t {status.topology}`" for s in status.uneven]
        yield Finding(
            Level.WARNING,
            f"buffers of {status.topology}",
            f"are not spread as evenly as they could be: {told}. The loss of one host stops more "
            "partitions than it has to",
            ", ".join(moves[:MOVES_TOLD]) + "; what that means is told before by "
            f"`pxrs plan --move {status.uneven[0].buffer} -t {status.topology}`",
        )


def _check_group(group: GroupStatus, topology: str) -> Iterator[Finding]:
    subject = f"group {group.group}"
    if group.problem:
        yield Finding(
            Level.PROBLEM,
            subject,
            f"is halted: {group.problem}",
            "its registry contradicts itself: restore the store, then "
            f"`pxrs restart coordinator -t {topology}`",
        )
    refused = [p for p in group.partitions if _is_refused(p)]
    for p in refused:
        yield Finding(
            Level.PROBLEM,
            f"{subject}, P{p.partition}",
            p.halt or f"stands still at offset {p.checkpoint}: {p.problem}",
            "it is granted anew above that epoch by itself, within seconds of its next read; if it "
            f"stays, `pxrs restart {group.group}/{p.owner} -t {topology}`. Where the registry was "
            "restored from an older copy, `pxrs recover registry FILE --accept-loss` goes on with "
            "it",
        )
    yield from _check_standing(group, topology)
    failing = [p for p in group.partitions if p.problem and p not in refused]
    for p in failing:
        yield Finding(
            Level.PROBLEM,
            f"{subject}, P{p.partition}",
            f"stands still at offset {p.checkpoint}: {p.problem}",
            "mend the handler and `pxrs up FILE`, or pass the message with "
            f"`pxrs seek {group.group} {p.checkpoint + 1} -p P{p.partition} -t {topology}`",
        )
    for p in group.partitions:
        if (p.call_s or 0.0) >= CALL_LONG_S and p.owner is not None:
            yield Finding(
                Level.WARNING,
                f"{subject}, P{p.partition}",
                f"is in the same call since {p.call_s:.0f} s: message {p.call_offset}, attempt "
                f"{p.attempts + 1}, by {p.owner}",
                "if it hangs: `pxrs restart "
                f"{group.group}/{p.owner} -t {topology}` ends its process, and the message is "
                "tried again",
            )
    yield from _check_consumers(group, topology)
    yield from _check_owners(group, topology)
    yield from check_unused(group, wall_ms())
    yield from _check_spread(group)
    if group.lag_ms > LAG_MS_LARGE and not group.paused:
        minutes = group.lag_ms / 60_000
        yield Finding(
            Level.WARNING,
            subject,
            f"is {minutes:,.0f} minutes behind ({group.lag:,} messages)",
            f"`pxrs plan {group.group} {len(group.consumers) + 1} -t {topology}` shows what one "
            "more consumer would take",
        )


def _is_refused(partition: PartitionStatus) -> bool:
    fenced = partition.owner is not None and partition.fenced_by is not None
    return fenced or partition.problem.startswith(LOG_REFUSES)


def _check_standing(group: GroupStatus, topology: str) -> Iterator[Finding]:
    """Owned partitions that are stalled while their lag grows, unless the reason is listed
    already."""
    for p in group.partitions:
        in_a_call = (p.call_s or 0.0) >= CALL_LONG_S
        if p.stands is None or not p.halt or p.problem or _is_refused(p) or in_a_call:
            continue
        yield Finding(
            Level.PROBLEM,
            f"group {group.group}, P{p.partition}",
            p.halt,
            f"`pxrs why P{p.partition} -g {group.group} -t {topology}` and `ray logs` tell what "
            f"its owner is at; `pxrs restart {group.group}/{p.owner} -t {topology}` ends that "
            "process, and the partition goes on from its checkpoint with another",
        )


def _check_consumers(group: GroupStatus, topology: str) -> Iterator[Finding]:
    for c in group.consumers:
        subject = f"group {group.group}, {c.member}"
        restart = f"`pxrs restart {group.group}/{c.member} -t {topology}`"
        if c.state == "pending":
            remedy = "add a node, or ask for less in ray_options"
            yield Finding(Level.WARNING, subject, f"has no place: {c.reason}", remedy)
        elif c.state == "silent":
            yield Finding(
                Level.PROBLEM,
                subject,
                f"is silent: {c.reason}",
                f"{restart} starts it anew; when its lease is over the others take its partitions, "
                "and a lease later it is replaced by itself",
            )
        elif c.state == "failed":
            remedy = f"see its log with `ray logs`, mend what it says, then {restart}"
            yield Finding(Level.PROBLEM, subject, f"is failed: {c.reason}", remedy)


def _check_owners(group: GroupStatus, topology: str) -> Iterator[Finding]:
    subject = f"group {group.group}"
    working = [c for c in group.consumers if c.state in ("running", "stable", "silent")]
    coming = [c for c in group.consumers if c.state in ("starting", "pending", "away")]
    unowned = [p for p in group.partitions if p.owner is None]
    if not unowned:
        return
    if working:
        yield Finding(
            Level.WARNING,
            subject,
            f"{_names(unowned)} without an owner, {len(working)} consumers work",
            "normal for a moment while ownership moves; if it stays, "
            f"`pxrs why {_first(unowned)} -g {group.group} -t {topology}`",
        )
    elif coming and group.lag:
        reasons = "; ".join(f"{c.member}: {c.reason or c.state}" for c in coming[:3])
        yield Finding(
            Level.WARNING,
            subject,
            f"has a lag of {group.lag:,}, and its {len(coming)} consumers start ({reasons})",
            "they take their partitions when they are up; if they die again and again, "
            f"`pxrs history {group.group} -t {topology}` says of what",
        )
    elif group.lag and not group.consumers:
        yield Finding(
            Level.WARNING,
            subject,
            f"has a lag of {group.lag:,} and no consumer",
            f"`pxrs scale {group.group} 1 -t {topology}`, or more of them; one that was never "
            "started gets its handler from `pxrs up FILE`",
        )


def check_unused(group: GroupStatus, now_ms: int) -> Iterator[Finding]:
    """A group that nobody has worked for since days, and whose messages wait for it."""
    days = (now_ms - group.unused_since_ms) / DAY_MS
    if group.unused_since_ms and days >= UNUSED_DAYS and group.lag:
        yield Finding(
            Level.WARNING,
            f"group {group.group}",
            f"has had no consumer for {days:,.0f} days, and holds up retention of {group.lag:,} "
            f"messages of {group.queue}",
            f"start it, or remove it: `pxrs group delete {group.group}`",
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
            f"few keys, or one that has most of the messages: `pxrs tail {group.queue}` shows "
            'them; send with keys that spread, or give the group `processing = "by_key"`',
        )


def _names(partitions: list[PartitionStatus]) -> str:
    told = ", ".join(f"P{p.partition}" for p in partitions[:5])
    return told if len(partitions) <= 5 else f"{told} and {len(partitions) - 5} more"


def _first(partitions: list[PartitionStatus]) -> str:
    return f"P{partitions[0].partition}"
