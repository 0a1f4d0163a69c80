"""`problems`: the one list of what is wrong with a topology; `group_problems`: with a group. Pure.

Rules of this file. `pxrs status`, `pxrs doctor`, `pxrs top`, the metrics, the live page and the
notebook show this list, and find nothing on their own. Each problem names its place and a remedy
that can be run as it is printed. A partition that gets nowhere is reported once, by its cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from pxrs_ray.status.answers import GroupStatus, PartitionStatus, TopologyStatus
from pxrs_ray.status.buffer_problems import buffer_problems
from pxrs_ray.status.problem import Kind, Problem, Report

STORE_SLOW_MS = 100.0
# What calls a paid service may take seconds; half a minute in one call is worth a look.
CALL_LONG_S = 30.0
LAG_MS_LARGE = 10 * 60_000
# One partition with so many times its share is no accident, once there are so many messages.
SKEW_LARGE = 4.0
SKEW_MESSAGES_MIN = 10_000
DAY_MS = 86_400_000
UNUSED_DAYS = 3
# Messages that fail for good are told of for so long.
GIVEN_UP_LATELY_S = 15 * 60.0
WORKING = ("running", "stable")


def problems(status: TopologyStatus) -> list[Problem]:
    """Everything that is wrong with a topology."""
    return [*topology_problems(status), *chain.from_iterable(map(own_problems, status.groups))]


def topology_problems(status: TopologyStatus) -> list[Problem]:
    """What is wrong with a topology outside its groups."""
    return [*_registry(status), *_reported(status), *buffer_problems(status)]


def group_problems(group: GroupStatus) -> list[Problem]:
    """Everything that is wrong with a group, and with what it needs of its topology."""
    return [*missing_problems(group), *own_problems(group)]


def partition_problem(group: GroupStatus, partition: PartitionStatus) -> Problem | None:
    """Why a partition's owner gets nowhere; None while it does."""
    p, on = partition, group.topology
    where = f"group {group.group}, P{p.partition}"
    if p.refused or p.fenced:
        return Problem(
            Kind.PARTITION_FENCED,
            where,
            p.fenced or p.refused,
            "it is granted anew above that epoch by itself, within seconds of its next read; if it "
            f"stays, `pxrs restart {group.group}/{p.owner} -t {on}`. Where the registry was "
            "restored from an older copy, `pxrs recover registry FILE --accept-loss` goes on with "
            "it",
        )
    if p.problem:
        return Problem(
            Kind.PARTITION_HALTED,
            where,
            f"halted at offset {p.checkpoint}: {p.problem}",
            "mend the handler and `pxrs up FILE`, or pass the message with "
            f"`pxrs seek {group.group} {p.checkpoint + 1} -p P{p.partition} -t {on}`",
        )
    if (p.call_s or 0.0) >= CALL_LONG_S and p.owner is not None:
        return Problem(
            Kind.CALL_LONG,
            where,
            f"in the same call since {p.call_s:.0f} s: message {p.call_offset}, attempt "
            f"{p.attempts + 1}, by {p.owner}",
            f"if it hangs: `pxrs restart {group.group}/{p.owner} -t {on}` ends its process, and "
            f"the message is tried again; `pxrs stack {group.group}/{p.owner} -t {on}` shows "
            "before that the line that it is at",
        )
    if p.stalled:
        return Problem(
            Kind.PARTITION_STALLED,
            where,
            p.stalled,
            f"`pxrs why P{p.partition} -g {group.group} -t {on}` and `pxrs stack "
            f"{group.group}/{p.owner} -t {on}` say what its owner does; "
            f"`pxrs restart {group.group}/{p.owner} -t {on}` ends that process, and another "
            "consumer goes on from the checkpoint",
        )
    return None


def _registry(status: TopologyStatus) -> Iterator[Problem]:
    store, on = status.store, status.topology
    where = f"registry of {on}"
    if store.problem or store.away_s is not None:
        yield Problem(
            Kind.REGISTRY_AWAY,
            where,
            status.registry_away or store.problem,
            f"bring {store.url} back (`pxrs status -t {on}` says when it answers): work goes on, "
            "checkpoints wait, ownership does not change, changes are refused",
        )
    elif store.mean_ms > STORE_SLOW_MS:
        yield Problem(
            Kind.REGISTRY_SLOW,
            where,
            f"a call takes {store.mean_ms:.0f} ms",
            "look at the load of the store and at its network: commits wait for it",
        )
    if not store.durable:
        yield Problem(
            Kind.REGISTRY_NOT_DURABLE,
            where,
            f"{store.url} does not outlive its process: checkpoints are lost with it",
            "name a durable store in the topology file, such as sqlite: or etcd://",
        )
    for warning in store.warnings:
        yield Problem(Kind.REGISTRY_SETTINGS, where, warning, "see docs/guarantees.md, 'Stores'")


def _reported(status: TopologyStatus) -> Iterator[Problem]:
    for report in status.reports:
        where = f"topology {status.topology}"
        yield _of_report(report, where, status.topology)
    for queue in status.queues:
        for report in queue.reports:
            yield _of_report(report, f"queue {queue.queue}", status.topology, queue.queue)


def _of_report(report: Report, where: str, topology: str, queue: str = "QUEUE") -> Problem:
    if report.buffer is not None and report.text.startswith(f"buffer {report.buffer} "):
        where = f"buffer {report.buffer}"
    return Problem(report.kind, where, report.text, _remedy(report, topology, queue))


def _remedy(report: Report, topology: str, queue: str) -> str:
    """What helps against what was reported."""
    on, buffer = topology, report.buffer
    match report.kind:
        case Kind.GCS_AWAY:
            return "bring Ray's head node back: `ray status` says when it answers"
        case Kind.BUFFER_AWAY:
            return (
                f"`pxrs restart buffer/{buffer} -t {on}`; one that is frozen is ended and started "
                "anew by its node within half a lease, one whose node is gone waits for it"
            )
        case Kind.BUFFER_WAITS:
            return (
                "bring that host back with its disk: everything goes on within seconds. If it "
                f"never comes, `pxrs accept-loss --buffer {buffer} -t {on}` gives up what "
                "lies there"
            )
        case Kind.REPLICAS_BEHIND:
            return (
                "nothing, where that host is back soon: it catches up. If it never comes, another "
                "host takes its place after replace_host_after_s, where there is one"
            )
        case Kind.REPLICAS_TOGETHER:
            return (
                f"`pxrs move {buffer} --from HOST -t {on}` takes one of them to another place, "
                "where there is a host with a disk: if this one is lost, so are both"
            )
        case Kind.BUFFER_MOVES:
            return "nothing: it serves until the end of the copy, and then at its new home"
        case Kind.BUFFER_CANNOT_MOVE:
            return (
                "add a node with a disk: it is tried again by itself, or at once by "
                f"`pxrs move {buffer} -t {on}`"
            )
        case Kind.LOGS_FOREIGN | Kind.REGISTRY_GOES:
            return "do what is named there"
        case Kind.LOG_HALTED:
            return (
                "bring the lost disk back, or go on above the gap with "
                f"`pxrs accept-loss {queue} -t {on}`"
            )
        case Kind.OFFSETS_LOST:
            return "the log goes on above them; feed those messages again if they matter"
    return (
        f"it is tried again by itself; if it stays, `pxrs restart coordinator -t {on}` starts what "
        "tries anew, and no partition moves"
    )


def missing_problems(group: GroupStatus) -> Iterator[Problem]:
    """What a group misses of its topology, whose own list has it too."""
    where = f"group {group.group}"
    if group.registry_away_s is not None:
        waiting = f"; {group.records_waiting} changes of ownership and membership wait"
        yield Problem(
            Kind.REGISTRY_AWAY,
            where,
            f"registry away for {group.registry_away_s:.0f} s: checkpoints wait, ownership does "
            f"not change{waiting if group.records_waiting else ''}",
            f"bring the registry back: `pxrs status -t {group.topology}` names it",
        )
    for report in group.unknown:
        yield _of_report(report, where, group.topology)


def own_problems(group: GroupStatus) -> Iterator[Problem]:
    """What is wrong with a group itself."""
    where, on = f"group {group.group}", group.topology
    if group.problem:
        yield Problem(
            Kind.GROUP_HALTED,
            where,
            f"halted: {group.problem}",
            "its registry contradicts itself: restore the store, then "
            f"`pxrs restart coordinator -t {on}`",
        )
    for partition in group.partitions:
        if found := partition_problem(group, partition):
            yield found
    yield from _consumers(group)
    yield from _owners(group)
    yield from _unused(group)
    yield from _failed_for_good(group)
    yield from _skew(group)
    if group.lag_ms > LAG_MS_LARGE and not group.paused:
        minutes = group.lag_ms / 60_000
        yield Problem(
            Kind.GROUP_BEHIND,
            where,
            f"slow: {minutes:,.0f} minutes behind ({group.lag:,} messages)",
            f"`pxrs plan {group.group} {len(group.consumers) + 1} -t {on}` shows what one more "
            "consumer would take",
        )


def _consumers(group: GroupStatus) -> Iterator[Problem]:
    for c in group.consumers:
        where = f"group {group.group}, {c.member}"
        restart = f"`pxrs restart {group.group}/{c.member} -t {group.topology}`"
        if c.state == "pending":
            remedy = "add a node, or ask for less in ray_options"
            yield Problem(Kind.CONSUMER_PENDING, where, f"no node has room: {c.reason}", remedy)
        elif c.state == "silent":
            yield Problem(
                Kind.CONSUMER_SILENT,
                where,
                c.reason if c.reason.startswith("silent") else f"silent: {c.reason}",
                f"{restart} starts it anew (`pxrs stack {group.group}/{c.member} -t "
                f"{group.topology}` says whether it is frozen or busy); when its lease is over the "
                "others take its partitions, and a lease later it is replaced by itself",
            )
        elif c.state == "frozen":
            yield Problem(
                Kind.CONSUMER_FROZEN,
                where,
                f"frozen: {c.reason}",
                f"`kill -CONT {c.pid}` on node {c.node[:8]} lets it go on; {restart} starts it "
                "anew; when its lease is over the others take its partitions, and a lease later "
                "it is replaced by itself",
            )
        elif c.state == "failed":
            remedy = f"see its log with `ray logs`, mend what it says, then {restart}"
            yield Problem(Kind.CONSUMER_FAILED, where, f"failed: {c.reason}", remedy)


def _owners(group: GroupStatus) -> Iterator[Problem]:
    where, on = f"group {group.group}", group.topology
    working = [c for c in group.consumers if c.state in (*WORKING, "silent", "frozen")]
    coming = [c for c in group.consumers if c.state in ("starting", "pending", "away")]
    unowned = [p for p in group.partitions if p.owner is None]
    if not unowned:
        return
    if working:
        yield Problem(
            Kind.PARTITIONS_UNOWNED,
            where,
            f"{_names(unowned)} without an owner, {len(working)} consumers work",
            "normal for a moment while ownership moves; if it stays, "
            f"`pxrs why P{unowned[0].partition} -g {group.group} -t {on}`",
        )
    elif coming and group.lag:
        reasons = "; ".join(f"{c.member}: {c.reason or c.state}" for c in coming[:3])
        yield Problem(
            Kind.CONSUMERS_START,
            where,
            f"a lag of {group.lag:,}, and its {len(coming)} consumers start ({reasons})",
            "they take their partitions when they are up; if they die again and again, "
            f"`pxrs history {group.group} -t {on}` says of what",
        )
    elif group.lag and not group.consumers:
        yield Problem(
            Kind.NO_CONSUMER,
            where,
            f"a lag of {group.lag:,} and no consumer",
            f"`pxrs scale {group.group} 1 -t {on}`, or more of them; one that was never started "
            "gets its handler from `pxrs up FILE`",
        )


def _unused(group: GroupStatus) -> Iterator[Problem]:
    """A group that nobody has worked for since days, and whose messages wait for it."""
    days = group.unused_ms / DAY_MS
    if days >= UNUSED_DAYS and group.lag:
        yield Problem(
            Kind.GROUP_UNUSED,
            f"group {group.group}",
            f"no consumer for {days:,.0f} days; it holds up retention of {group.lag:,} messages of "
            f"{group.queue}",
            f"start it, or remove it: `pxrs group delete {group.group} -t {group.topology}`",
        )


def _failed_for_good(group: GroupStatus) -> Iterator[Problem]:
    """Messages that were given up of late, and keys that wait for somebody to decide."""
    where, on = f"group {group.group}", group.topology
    if aside := group.aside.keys:
        keys = f"{aside:,} key{'s are' if aside > 1 else ' is'}"
        yield Problem(
            Kind.KEYS_ASIDE,
            where,
            f"{keys} in quarantine, {group.aside.messages:,} messages wait",
            f"`pxrs quarantine list {group.group} -t {on}` shows why; `pxrs quarantine retry "
            f"{group.group} KEY -t {on}` works them off, in order, when the cause is mended",
        )
    lately = [each for each in group.given_up if each.ago_s < GIVEN_UP_LATELY_S]
    lately = [each for each in lately if each.policy != "quarantine"]
    if lately:
        newest = min(lately, key=lambda each: each.ago_s)
        look = (
            f"`pxrs dead-letters list {group.group} -t {on}` shows them, and "
            f"`pxrs dead-letters retry {group.group} --all -t {on}` sends them again"
        )
        skips = f"`pxrs status {group.group} -t {on}` names the newest, with their errors"
        yield Problem(
            Kind.MESSAGES_GIVEN_UP,
            where,
            f"{group.given_up_count:,} messages failed for good, the last one {newest.ago_s:.0f} s "
            f"ago: {newest}",
            look if newest.policy == "dead_letter" else skips,
        )


def _skew(group: GroupStatus) -> Iterator[Problem]:
    """How evenly keys have spread over the partitions, ever since."""
    came = {p.partition: p.end_offset or 0 for p in group.partitions}
    if sum(came.values()) < SKEW_MESSAGES_MIN or group.holds_delayed:  # a delay has its tiers
        return
    fullest = max(came, key=lambda partition: came[partition])
    skew = came[fullest] * len(came) / sum(came.values())
    if skew > SKEW_LARGE:
        yield Problem(
            Kind.KEYS_SKEWED,
            f"group {group.group}, P{fullest}",
            f"received {skew:.1f} times as many messages as an average partition (key skew)",
            f"few keys, or one that has most of the messages: `pxrs tail {group.queue}` shows "
            'them; send with keys that spread, or give the group `processing = "by_key"`',
        )


def _names(partitions: list[PartitionStatus]) -> str:
    shown = ", ".join(f"P{p.partition}" for p in partitions[:5])
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"
