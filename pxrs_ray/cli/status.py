"""`pxrs status`: what runs, who owns what, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pxrs_ray.cli._options import AsJson, MaybeGroup, TopologyName

if TYPE_CHECKING:
    from pxrs_ray.stats import GroupStatus, TopologyStatus


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
    return Group(*lines, queues, groups, *(_problem(text) for text in problems_of(status)))


def problems_of(status: TopologyStatus) -> list[str]:
    """Everything that is wrong, in one list."""
    found = list(status.problems)
    if status.store.problem:
        found.append(f"registry store: {status.store.problem}")
    for queue in status.queues:
        found += [f"queue {queue.queue}: {problem}" for problem in queue.problems]
    for group in status.groups:
        if group.problem:
            found.append(f"group {group.group}: {group.problem}")
        for p in group.partitions:
            if p.problem:
                found.append(f"group {group.group}, P{p.partition}: {p.problem}")
    return found


def running_count(group: GroupStatus) -> int:
    """How many consumers work now."""
    return sum(c.state in ("running", "stable") for c in group.consumers)


def state_text(group: GroupStatus) -> Any:
    """A group's state in one coloured word."""
    from rich.text import Text

    if group.problem:
        return Text("halted", style="bold red")
    if group.paused:
        return Text("paused", style="yellow")
    if any(p.problem for p in group.partitions):
        return Text("failing", style="bold red")
    if not group.consumers:
        return Text("no consumers", style="yellow")
    if any(p.owner is None for p in group.partitions):
        return Text("rebalancing", style="yellow")
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
                p.problem,
            )
            for p in group.partitions
        ],
    )
    consumers = table(
        ("consumer", "state", "partitions", "processed", "lease", "pid", "node", "reason"),
        [
            (
                f"{c.member}#{c.incarnation}",
                c.state,
                len(c.partitions),
                c.processed,
                span_text(c.lease_left_ms),
                str(c.pid or "-"),
                c.node[:8],
                c.reason,
            )
            for c in group.consumers
        ],
    )
    return Group(title, partitions, consumers)
