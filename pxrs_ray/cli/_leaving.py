"""How a command empties a node: it shows the plan, begins, and waits until the node is empty."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._removal import confirm
from pxrs_ray.errors import DeadlineExceeded, NotFound, PxrsError

if TYPE_CHECKING:
    from pxrs_ray.actors.client.topology import Topology
    from pxrs_ray.status.rendering import Line, Table, View
    from pxrs_ray.topology.move_plan import Estimate, HomeMove, Leaving
    from pxrs_ray.topology.node_seen import NodeSeen

LOOK_EVERY_S = 0.5
MB = 1_000_000

Rate = Annotated[
    float,
    typer.Option("--rate", min=0.1, help="Assumed copy speed in MB a second, for the estimate."),
]
RATE_USUAL = 50.0


def drain_node(
    wanted: str, deadline_s: float, rate: float, name: str | None, *, yes: bool, as_json: bool
) -> None:
    """Say what happens, ask where something cannot be done, begin, and wait until it is done."""
    from pxrs_ray.actors.cluster.node_drain import begin_drain, node_to_drain
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import answer

    connect()
    node = node_to_drain(wanted)
    topologies = every(name)
    plans = [t.plan_drain(node.node, deadline_s, copy_per_s=rate * MB) for t in topologies]
    tell(plans, node, deadline_s, rate, quiet=as_json)
    agree(plans, f"host {node.host} is not drained", yes=yes)
    began_s = time.monotonic()
    begin_drain(node.node, deadline_s)
    goes = {plan.topology: {move.buffer for move in plan.moves} for plan in plans}
    _wait_until_left(topologies, node, goes, began_s + deadline_s, quiet=as_json)
    took_s = time.monotonic() - began_s
    answer(
        {"node": node.node, "host": node.host, "took_s": took_s, "plans": plans},
        as_json,
        lambda: f"host {node.host} has no consumer and no log any more, after {took_s:.1f} s",
    )


def every(name: str | None) -> list[Topology]:
    """All topologies of the cluster, or the one that is named: a drain concerns them all."""
    from pxrs_ray.actors.cluster.named_actors import running_topologies
    from pxrs_ray.cli._ray import steady

    names = [name] if name is not None else running_topologies()
    if not names:
        raise NotFound("no topology runs in this cluster: `ray drain-node` drains a node of Ray's")
    return [steady(each) for each in names]


def tell(
    plans: Sequence[Leaving], node: NodeSeen, deadline_s: float, rate: float, *, quiet: bool
) -> None:
    """Print what a drain means, except what cannot be done: `agree` prints that."""
    from pxrs_ray.cli._show import console, say

    if not quiet:
        say(f"host {node.host} (node {node.node[:8]}) is to go in {deadline_s:,.0f} s:")
        for plan in plans:
            console().print(view(plan, rate))
    needs_s = sum(plan.needs_s for plan in plans)
    if len(plans) > 1 and needs_s > deadline_s and not any(plan.cannot for plan in plans):
        say(
            f"MAY NOT BE DONE: {len(plans)} topologies leave it at once, and need about "
            f"{needs_s:,.0f} s of copying together",
            error=True,
        )


def view(plan: Leaving, rate: float) -> View:
    """A plan as people read it."""
    from pxrs_ray.status.rendering import Line, Table, Tone, View
    from pxrs_ray.topology.move_plan import BUSY, STOP_AND_START_MOST_MS, STOP_AND_START_MS

    lines: list[Line | Table] = []
    if plan.consumers:
        names = ", ".join(plan.consumers)
        told = f"{plan.topology}: {len(plan.consumers)} consumers hand over: {names}"
        lines.append(Line(told))
    if plan.moves:
        head = ("buffer", "from", "to", "to copy", "written", "copied in", "pause", "free there")
        lines.append(Table(head, [_row(move) for move in plan.moves]))
        lines.append(
            Line(
                "pause: how long producers and readers of a buffer's partitions wait. An estimate, "
                f"not measured: {STOP_AND_START_MS / 1_000:g} s to stop and start "
                f"({STOP_AND_START_MOST_MS / 1_000:g} s on busy hosts), and the copy of what is "
                f"written during the last round, at {rate:g} MB/s ({rate / BUSY:g} on busy hosts)"
            )
        )
    if not (plan.consumers or plan.moves):
        lines.append(Line(f"{plan.topology}: nothing of it is there"))
    lines += map(Line, plan.notes)
    bad = [Line(f"CANNOT BE DONE: {text}", Tone.BAD) for text in plan.cannot]
    return View(lines if plan.host else [*lines, *bad])


def _row(move: HomeMove) -> tuple[object, ...]:
    from pxrs_ray.status.units import size_text, span_text

    expected = move.estimate
    rate = None if move.written_per_s is None else f"{size_text(move.written_per_s)}/s"
    return (
        move.buffer,
        move.source,
        move.target or "nowhere",
        None if move.bytes is None else size_text(move.bytes),
        rate,
        None if expected is None else span_text(expected.copy_s * 1_000),
        None if expected is None else _pause(expected),
        None if move.free_bytes is None else size_text(move.free_bytes),
    )


def _pause(expected: Estimate) -> str:
    from pxrs_ray.status.units import span_text

    return f"about {span_text(expected.pause_ms)} to {span_text(expected.pause_most_ms)}"


def agree(plans: Sequence[Leaving], refused: str, *, yes: bool) -> None:
    """Print what cannot be done, if anything, and ask whether to go on all the same.

    Raises UsageError that begins with `refused` where nobody can be asked.
    """
    from pxrs_ray.cli._show import say

    told = [f"{plan.topology}: {text}" for plan in plans for text in plan.cannot]
    for text in told:
        say(f"CANNOT BE DONE: {text}", error=True)
    if yes or not told:
        return
    why = f"{refused}, for not all of it can be done: mend what is named, or say --yes"
    confirm("Begin all the same?", why)


def _wait_until_left(
    topologies: Sequence[Topology],
    node: NodeSeen,
    goes: Mapping[str, set[int]],
    end_s: float,
    *,
    quiet: bool,
) -> None:
    from pxrs_ray.cli._show import say

    told = ""
    while left := _left(topologies, node, goes):
        text = "; ".join(left)
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"host {node.host} is not empty at its deadline: {text}")
        if text != told and not quiet:
            say(f"not done: {text}", flush=True)
        told = text
        time.sleep(LOOK_EVERY_S)


def _left(
    topologies: Sequence[Topology], node: NodeSeen, goes: Mapping[str, set[int]]
) -> list[str]:
    """What is on a node yet, or has left it and does not serve elsewhere yet."""
    from pxrs_ray.status.places import AT_HOME

    found: list[str] = []
    for topology in topologies:
        try:
            status = topology.status()
        except PxrsError as error:
            found.append(f"{topology.name} ({error})")
            continue
        for place in status.places:
            is_new = place.buffer in goes.get(topology.name, ())
            if place.node == node.node:
                why = [r.text for r in status.reports if r.buffer == place.buffer]
                found.append(f"{topology.name}: {why[0] if why else f'buffer {place.buffer}'}")
            elif any(replica.node == node.node for replica in place.replicas):
                found.append(f"{topology.name}: a replica of buffer {place.buffer}")
            elif is_new and place.state != AT_HOME:
                told = f"buffer {place.buffer} on host {place.host}: {place.text}"
                found.append(f"{topology.name}: {told}")
        found += [
            f"{topology.name}: {group.group}/{consumer.member}"
            for group in status.groups
            for consumer in group.consumers
            if consumer.node == node.node
        ]
    return found
