"""`pxrs doctor`: checks everything that can be wrong, and names the remedy.

What is wrong with a topology is in its status' own list of problems. The doctor adds what only it
can know, for it asks more: Ray, Java, each node, actors that nobody owns.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from pxrs_ray.cli._options import AsJson, TopologyName
from pxrs_ray.errors import PxrsError

if TYPE_CHECKING:
    from pxrs_ray.status.answers import TopologyStatus
    from pxrs_ray.status.problem import Problem

NODE_WAIT_S = 20.0
ANSWER_WAIT_S = 3.0
CLOCK_MS_MAX = 1_000
DISK_FREE_MIN = 2 << 30


def command(topology: TopologyName = None, as_json: AsJson = False) -> None:
    """Check Ray, Java, nodes, clocks, disks, stores, logs, groups, orphans; exit status 1: a
    problem."""
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.problem import Severity
    from pxrs_ray.status.rendering import Line, Table
    from pxrs_ray.status.views import tone_of

    found = findings(topology)
    rows = [(Line(f.severity, tone_of(f.severity)), f.where, f.text, f.remedy) for f in found]
    told = [problem.plain() for problem in found]
    answer(told, as_json, lambda: Table(("", "what", "finding", "remedy"), rows))
    if any(f.severity is Severity.PROBLEM for f in found):
        raise typer.Exit(1)


def findings(topology: str | None) -> list[Problem]:
    """Everything that is looked at, in this process and the cluster; what is sound as well."""
    return [*_machine(), *_cluster(topology)]


def _machine() -> Iterator[Problem]:
    from importlib.util import find_spec

    from pxrs_ray.status.problem import Kind, Problem

    if find_spec("pyspark") is None:  # then nothing here needs Java
        yield Problem(Kind.SOUND, "Spark", "not installed; feeds from it come with pxrs-ray[spark]")
        return
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    if java:
        yield Problem(Kind.SOUND, "Java", java)
    else:
        told = "not found; only the Spark feed needs it"
        yield Problem(Kind.JAVA_MISSING, "Java", told, "install a JRE 17")


def _cluster(wanted: str | None) -> Iterator[Problem]:
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.status.problem import Kind, Problem

    try:
        connect()
    except PxrsError as error:
        yield Problem(Kind.RAY_AWAY, "Ray", str(error), "start Ray, or name it with --address")
        return
    from pxrs_ray.actors.cluster.named_actors import running_topologies

    names = [wanted] if wanted is not None else running_topologies()
    if not names:
        yield Problem(Kind.SOUND, "topologies", "none runs", "`pxrs up FILE` starts one")
    folder, sound = "~", []
    for name in names:
        try:
            status, folder = _status_of(name)
        except PxrsError as error:
            remedy = _remedy_of(name, error)
            yield Problem(Kind.TOPOLOGY_AWAY, f"topology {name}", str(error), remedy)
        else:
            sound.append(name)
            yield from status.problems or [_nothing_wrong(status)]
    yield from _nodes(folder)
    yield from _orphans(wanted, sound)


def _nothing_wrong(status: TopologyStatus) -> Problem:
    from pxrs_ray.status.problem import Kind, Problem

    told = f"{len(status.queues)} queues, {len(status.groups)} groups, nothing to report"
    return Problem(Kind.SOUND, f"topology {status.topology}", told)


def _remedy_of(name: str, error: PxrsError) -> str:
    """What helps a topology that does not tell its status."""
    from pxrs_ray.errors import DeadlineExceeded, NotFound, StoreUnavailable

    match error:
        case NotFound():
            return "`pxrs up FILE` starts it"
        case StoreUnavailable():
            return f"bring its registry back: `pxrs status -t {name}` tells when it answers"
        case DeadlineExceeded():
            return f"`pxrs restart coordinator -t {name}`"
    return f"what it says; then `pxrs restart coordinator -t {name}`"


def _status_of(name: str) -> tuple[TopologyStatus, str]:
    from pxrs_ray.actors.client.topology import attach

    found = attach(name, timeout_s=ANSWER_WAIT_S)
    return found.status(), str(found.config.topology_dir)


def _nodes(folder: str) -> Iterator[Problem]:
    import platform

    import ray

    from pxrs_ray.actors.cluster.node_reports import look_at_nodes
    from pxrs_ray.status.problem import Kind, Problem
    from pxrs_ray.status.units import size_text

    here = (platform.python_version(), ray.__version__)
    for node in look_at_nodes(folder, NODE_WAIT_S):
        where = f"node {node.node[:8]}"
        if node.problem:
            yield Problem(Kind.NODE_AWAY, where, node.problem, "look at it with `ray status`")
            continue
        found = []
        if (node.python, node.ray) != here:
            text = f"Python {node.python} and Ray {node.ray}, here {here[0]} and {here[1]}"
            found.append(Problem(Kind.NODE_VERSIONS, where, text, "install the same on every node"))
        if abs(node.clock_ms) > CLOCK_MS_MAX:
            text = f"its clock differs by {node.clock_ms:,.0f} ms"
            remedy = "run NTP: lag in time and seek by time are wrong, ownership is not"
            found.append(Problem(Kind.NODE_CLOCK, where, text, remedy))
        if node.disk_free_bytes < DISK_FREE_MIN:
            text = f"{size_text(node.disk_free_bytes)} free under {folder}"
            remedy = "set retention_ms, retention_bytes or retention_passed, or free the disk"
            found.append(Problem(Kind.NODE_DISK, where, text, remedy))
        free = f"{size_text(node.disk_free_bytes)} free"
        sound = Problem(Kind.SOUND, where, f"Ray {node.ray}, Python {node.python}, {free}")
        yield from found or [sound]


def _orphans(wanted: str | None, names: list[str]) -> Iterator[Problem]:
    """Consumers that belong to no member, and what is left of topologies without a coordinator."""
    from pxrs_ray.actors.client.topology import Topology
    from pxrs_ray.actors.cluster.named_actors import left_over
    from pxrs_ray.status.problem import Kind, Problem

    for name in names:
        try:
            found = Topology(name).orphans()
        except PxrsError:
            continue  # that it does not answer is in the list already
        for actor in found:
            yield Problem(
                Kind.ORPHAN,
                f"actor {actor}",
                "belongs to no member of a group",
                f"`pxrs kill-orphans -t {name}`",
            )
    for name, count in sorted(left_over().items()):
        if wanted in (None, name):
            told = f"{count} actors are left of it, and no coordinator"
            yield Problem(Kind.REMAINS, f"topology {name}", told, f"`pxrs down {name} --now`")
