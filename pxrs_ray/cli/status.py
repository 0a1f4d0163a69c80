"""`pxrs status`: what runs, who owns what, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pxrs_ray.cli._options import AsJson, MaybeGroup, TopologyName

if TYPE_CHECKING:
    from pxrs_ray.status.answers import GroupStatus, PartitionStatus, TopologyStatus

# A handler may take its time: what calls a paid service takes seconds, a hang does not end.
CALL_LONG_S = 10.0


# A call that takes so long is named: whether it hangs, its user knows best.
AT_TOLD_S = 1.0


def command(
    group: MaybeGroup = None, topology: TopologyName = None, as_json: AsJson = False
) -> None:
    """Show queues, groups and problems; with GROUP, each of its partitions and consumers."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer

    found = running(topology)
    if group is not None:
        one = found.group(group).status()
        answer(one, as_json, lambda: group_view(one))
        return
    everything = found.status()
    deployed = found.deployed()
    answer(
        {**_plain(everything), "deployed": deployed},
        as_json,
        lambda: topology_view(everything, deployed),
    )


def _plain(status: TopologyStatus) -> dict[str, Any]:
    from pxrs_ray.cli._show import plain

    told: dict[str, Any] = plain(status)
    for group, text in zip(status.groups, told["groups"], strict=True):
        text["lag"], text["lag_ms"] = group.lag, group.lag_ms
    return told


def topology_view(status: TopologyStatus, deployed: dict[str, Any]) -> Any:
    """A topology as tables."""
    from rich.console import Group
    from rich.text import Text

    from pxrs_ray.cli._show import clock_text, size_text, span_text, table

    store = status.store
    lines = [
        Text.assemble(("topology ", "dim"), (status.topology, "bold")),
        Text(
            f"configuration {status.fingerprint}, coordinator pid {status.coordinator_pid} since "
            f"{clock_text(round(status.coordinator_started_s * 1_000))}, {status.buffers} buffers",
            style="dim",
        ),
        Text(f"registry {store.url} ({store.mean_ms:.1f} ms a call)", style="dim"),
    ]
    if deployed:
        lines.append(
            Text(
                f"deployed from {deployed['file']} (sha256 {deployed['sha256'][:16]}) at "
                f"{clock_text(deployed['at_ms'])}",
                style="dim",
            )
        )
    queues = table(
        ("queue", "partitions", "messages", "size"),
        [(q.queue, q.partitions, q.messages, size_text(q.bytes)) for q in status.queues],
    )
    groups = table(
        ("group", "queue", "consumers", "owned", "lag", "behind", "state"),
        [
            (
                g.group,
                g.queue,
                f"{running_count(g)} of {g.wanted}",
                sum(p.owner is not None for p in g.partitions),
                g.lag,
                span_text(g.lag_ms),
                state_text(g),
            )
            for g in status.groups
        ],
    )
    problems = (_problem(text) for text in problems_of(status))
    return Group(*lines, queues, _places(status), groups, *problems)


def _places(status: TopologyStatus) -> Any:
    """Where each buffer is, and how."""
    from pxrs_ray.cli._show import size_text, span_text, table
    from pxrs_ray.status.places import AT_HOME

    return table(
        ("buffer", "host", "node", "disk", "size", "free", "term", "lease", "state"),
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
                _coloured(place.text, good=place.state == AT_HOME),
            )
            for place in status.places
        ],
    )


def _coloured(text: str, *, good: bool) -> Any:
    from rich.text import Text

    return Text(text, style="green" if good else "bold red")


def problems_of(status: TopologyStatus) -> list[str]:
    """Everything that is wrong, in one list."""
    found = [*status.away_told(), *status.problems]
    if status.store.problem and not status.away_told():
        found.append(f"registry store: {status.store.problem}")
    for queue in status.queues:
        found += [f"queue {queue.queue}: {problem}" for problem in queue.problems]
    for group in status.groups:
        found += [f"group {group.group}{problem}" for problem in group_problems(group)]
    return found


def group_problems(group: GroupStatus) -> list[str]:
    """Everything that is wrong with a group, except what its topology reports."""
    found = [f": {group.problem}"] if group.problem else []
    found += [f", P{p.partition}: {p.trouble}" for p in group.partitions if p.trouble]
    found += [f", P{p.partition}: {call_text(p)}" for p in group.partitions if is_long(p)]
    found += [
        f", {c.member}#{c.incarnation}: {c.reason}"
        for c in group.consumers
        if c.state in ("silent", "failed")
    ]
    return found


def is_long(partition: PartitionStatus) -> bool:
    """Whether one call of the handler has lasted so long that people should know."""
    return (partition.call_s or 0.0) >= CALL_LONG_S


def call_text(partition: PartitionStatus) -> str:
    """The text on a handler's call that does not end."""
    return (
        f"in the same call since {partition.call_s or 0:.0f} s: message {partition.call_offset}, "
        f"attempt {partition.attempts + 1}"
    )


def running_count(group: GroupStatus) -> int:
    """How many consumers work now."""
    return sum(c.state in ("running", "stable") for c in group.consumers)


def state_text(group: GroupStatus) -> Any:
    """A group's state in one coloured word."""
    from rich.text import Text

    if group.problem:
        return Text("halted", style="bold red")
    if group.registry_away_s is not None:
        return Text("registry away", style="bold red")
    if group.unknown:
        return Text("known in part", style="bold red")
    if group.paused:
        return Text("paused", style="yellow")
    if any(p.problem for p in group.partitions):
        return Text("failing", style="bold red")
    if any(p.halt for p in group.partitions):
        return Text("stands still", style="bold red")
    if not group.consumers:
        return Text("no consumers", style="yellow")
    if any(p.owner is None for p in group.partitions):
        return Text("rebalancing", style="yellow")
    if any(c.state in ("silent", "failed") for c in group.consumers):
        return Text("consumer silent", style="yellow")
    if any(is_long(p) for p in group.partitions):
        return Text("long call", style="yellow")
    return Text("ok", style="green")


def _problem(text: str) -> Any:
    from rich.text import Text

    return Text(f"PROBLEM: {text}", style="bold red")


def group_view(group: GroupStatus) -> Any:
    """A group as tables: its partitions, and its consumers."""
    from rich.console import Group
    from rich.text import Text

    from pxrs_ray.cli._show import span_text, table

    title = Text.assemble(
        ("group ", "dim"),
        (group.group, "bold"),
        f" of queue {group.queue}: ",
        state_text(group),
        f", lag {group.lag:,}, {span_text(group.lag_ms)} behind, {group.assignor}, generation "
        f"{group.generation}, version {group.version}",
    )
    partitions = table(
        ("partition", "phase", "owner", "epoch", "checkpoint", "end", "lag", "behind", "problem"),
        [
            (
                f"P{p.partition}",
                p.phase,
                p.owner,
                p.epoch,
                p.checkpoint,
                p.end_offset,
                p.lag,
                span_text(p.lag_ms),
                p.trouble or (call_text(p) if is_long(p) else ""),
            )
            for p in group.partitions
        ],
    )
    consumers = table(
        ("consumer", "state", "partitions", "processed", "lease", "pid", "node", "at", "reason"),
        [
            (
                f"{c.member}#{c.incarnation}",
                c.state,
                len(c.partitions),
                c.processed,
                span_text(c.lease_left_ms),
                str(c.pid or "-"),
                c.node[:8],
                str(c.calls[0]) if c.calls and c.calls[0].seconds >= AT_TOLD_S else "",
                c.reason,
            )
            for c in group.consumers
        ],
    )
    told = [f"PROBLEM: {text}" for text in group.unknown]
    if group.registry_away_s is not None:
        waiting = f"; {group.records_waiting} changes of ownership and membership wait"
        told.insert(
            0,
            f"PROBLEM: registry away for {group.registry_away_s:.0f} s: checkpoints wait, "
            f"ownership stands still{waiting if group.records_waiting else ''}",
        )
    lines = [Text(line) for line in group.given_up_lines()]
    problems = [Text(text, style="bold red") for text in told]
    return Group(title, *problems, partitions, consumers, *lines)
