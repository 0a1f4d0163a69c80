"""What people are shown of a topology, a group and its history: the views that commands print and
that `repr` and notebooks show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from pxrs_ray.model import Change
from pxrs_ray.status.answers import (
    ConsumerStatus,
    GroupStatus,
    History,
    PartitionStatus,
    TopologyStatus,
)
from pxrs_ray.status.places import AT_HOME
from pxrs_ray.status.problem import Kind, Problem, Severity
from pxrs_ray.status.problems import (
    WORKING,
    group_problems,
    missing_problems,
    own_problems,
    partition_problem,
    topology_problems,
)
from pxrs_ray.status.rendering import Line, Table, Tone, View
from pxrs_ray.status.units import clock_text, size_text, span_text

# A call that takes so long is shown: whether it hangs, its user knows best.
CALL_SHOWN_S = 1.0
# How many of the messages that were given up a group names.
GIVEN_UP_SHOWN = 5
# What is wrong with a partition, in a word.
WORDS = {
    Kind.PARTITION_FENCED: "fenced",
    Kind.PARTITION_HALTED: "halted",
    Kind.PARTITION_STALLED: "stalled",
    Kind.CALL_LONG: "long call",
}
# What is told of a group that goes on, the worst first.
_WARNED = {
    Kind.CONSUMER_FROZEN: "consumer frozen",
    Kind.CONSUMER_SILENT: "consumer silent",
    Kind.CONSUMER_FAILED: "consumer failed",
    Kind.CALL_LONG: WORDS[Kind.CALL_LONG],
    Kind.KEYS_ASIDE: "keys in quarantine",
    Kind.MESSAGES_GIVEN_UP: "messages given up",
}
_TONES = {Severity.OK: Tone.GOOD, Severity.WARNING: Tone.WARN, Severity.PROBLEM: Tone.BAD}


def tone_of(severity: Severity) -> Tone:
    """How something so bad is shown."""
    return _TONES[severity]


def problem_lines(found: Iterable[Problem]) -> list[Line]:
    """A line for each problem."""
    return [Line(f"{p.severity.upper()}: {p}", tone_of(p.severity)) for p in found]


def topology_view(status: TopologyStatus, deployed: Mapping[str, Any] | None = None) -> View:
    """A topology; `deployed` says from which file, where that is known."""
    store = status.store
    lines = [
        Line(f"topology {status.topology}", Tone.BOLD),
        Line(
            f"configuration {status.fingerprint}, coordinator pid {status.coordinator_pid} since "
            f"{clock_text(round(status.coordinator_started_s * 1_000))}, {status.buffers} buffers",
            Tone.DIM,
        ),
        Line(f"registry {store.url} ({store.mean_ms:.1f} ms a call)", Tone.DIM),
    ]
    if deployed:
        told = f"deployed from {deployed['file']} (sha256 {deployed['sha256'][:16]}) at "
        lines.append(Line(told + clock_text(deployed["at_ms"]), Tone.DIM))
    queues = Table(
        ("queue", "partitions", "messages", "size"),
        [(q.queue, q.partitions, q.messages, size_text(q.bytes)) for q in status.queues],
    )
    own = {g.group: list(own_problems(g)) for g in status.groups}
    groups = Table(
        ("group", "queue", "consumers", "owned", "lag", "behind", "state"),
        [
            (
                g.group,
                g.queue,
                f"{working_count(g)} of {g.wanted}",
                sum(p.owner is not None for p in g.partitions),
                None if g.holds_delayed else g.lag,
                span_text(g.lag_ms),
                group_state(g, [*missing_problems(g), *own[g.group]]),
            )
            for g in status.groups
        ],
    )
    found = [*topology_problems(status), *chain.from_iterable(own.values())]
    return View([*lines, queues, _places(status), groups, *_told(found, status.topology)])


def _told(found: Sequence[Problem], topology: str) -> list[Line]:
    lines = problem_lines(found)
    if lines:
        lines.append(Line(f"what helps: `pxrs doctor -t {topology}`", Tone.DIM))
    return lines


def _places(status: TopologyStatus) -> Table:
    """Where each buffer is, and how."""
    replicated = any(place.replicas for place in status.places)
    return Table(
        (
            *("buffer", "host", "node", "disk", "size", "free", "term", "lease", "state"),
            *(("replicas on",) if replicated else ()),
        ),
        [
            (
                place.buffer,
                place.host or None,
                place.short_node or None,
                place.short_disk or None,
                None if place.bytes is None else size_text(place.bytes),
                None if place.free_bytes is None else size_text(place.free_bytes),
                place.term,
                span_text(place.lease_left_ms) if place.lease_left_ms else "none",
                Line(place.text, Tone.GOOD if place.state == AT_HOME else Tone.BAD),
                *((place.other_hosts or None,) if replicated else ()),
            )
            for place in status.places
        ],
    )


def working_count(group: GroupStatus) -> int:
    """How many consumers work now."""
    return sum(c.state in WORKING for c in group.consumers)


def group_state(group: GroupStatus, found: Sequence[Problem] | None = None) -> Line:
    """A group's state in one word; `found` are its problems, where they are known already."""
    kinds = {problem.kind for problem in (group_problems(group) if found is None else found)}
    if Kind.GROUP_HALTED in kinds:
        return Line("halted", Tone.BAD)
    if Kind.REGISTRY_AWAY in kinds:
        return Line("registry away", Tone.BAD)
    if group.unknown:
        return Line("known in part", Tone.BAD)
    if group.paused:
        return Line("paused", Tone.WARN)
    for kind in (Kind.PARTITION_HALTED, Kind.PARTITION_FENCED, Kind.PARTITION_STALLED):
        if kind in kinds:
            return Line(f"partition {WORDS[kind]}", Tone.BAD)
    if not group.consumers:
        return Line("no consumers", Tone.WARN)
    if any(p.owner is None for p in group.partitions):
        return Line("rebalancing", Tone.WARN)
    for kind, words in _WARNED.items():
        if kind in kinds:
            return Line(words, Tone.WARN)
    return Line(f"ok, {group.lag:,} delayed" if group.holds_delayed else "ok", Tone.GOOD)


def group_view(group: GroupStatus) -> View:
    """A group: its partitions, and its consumers."""
    found = group_problems(group)
    title = Line(
        f"group {group.group} of queue {group.queue}: {group_state(group, found)}, "
        f"lag {group.lag:,}, {span_text(group.lag_ms)} behind, {group.assignor}, "
        f"generation {group.generation}, version {group.version}",
        Tone.BOLD,
    )
    partitions = Table(
        ("partition", "phase", "owner", "epoch", "checkpoint", "end", "lag", "behind", "state"),
        [_partition(group, p) for p in group.partitions],
    )
    consumers = Table(
        ("consumer", "state", "partitions", "processed", "lease", "pid", "node", "at", "reason"),
        [_consumer(c) for c in group.consumers],
    )
    lines = _told(found, group.topology)
    return View([title, partitions, consumers, *_given_up(group), *lines])


def _partition(group: GroupStatus, p: PartitionStatus) -> tuple[object, ...]:
    problem = partition_problem(group, p)
    if problem is not None:
        state = Line(WORDS[problem.kind], tone_of(problem.severity))
    elif p.owner is None:
        state = Line("no owner", Tone.WARN)
    else:
        is_behind = p.lag_ms if group.holds_delayed else p.lag
        state = Line("behind", Tone.WARN) if is_behind else Line("ok", Tone.GOOD)
    behind = span_text(p.lag_ms)
    at = (p.epoch, p.checkpoint, p.end_offset, p.lag, behind)
    return (f"P{p.partition}", p.phase, p.owner, *at, state)


def _consumer(c: ConsumerStatus) -> tuple[object, ...]:
    return (
        f"{c.member}#{c.incarnation}",
        c.state,
        len(c.partitions),
        c.processed,
        span_text(c.lease_left_ms),
        str(c.pid or "-"),
        c.node[:8],
        str(c.calls[0]) if c.calls and c.calls[0].seconds >= CALL_SHOWN_S else "",
        c.reason,
    )


def _given_up(group: GroupStatus) -> list[Line]:
    """What `skip` and the other policies have passed over."""
    if not group.given_up_count:
        return []
    head = Line(f"{group.given_up_count} messages were given up, the newest:")
    return [head, *(Line(f"  {each}") for each in group.given_up[-GIVEN_UP_SHOWN:])]


def history_view(history: History) -> View:
    """The changes of a group."""
    return View([Line(f"history of {history.group}"), changes_table(history)])


def changes_table(changes: Iterable[Change], title: str = "") -> Table:
    """Changes of ownership and membership, one a row."""
    return Table(
        ("version", "at", "what", "partition", "consumer", "epoch", "checkpoint", "cause"),
        [
            (
                change.version,
                clock_text(change.at_ms),
                change.kind,
                None if change.partition < 0 else f"P{change.partition}",
                f"{change.owner}#{change.incarnation}" if change.owner else None,
                change.epoch,
                change.checkpoint,
                change.cause,
            )
            for change in changes
        ],
        title,
    )
