"""`pxrs doctor`: checks everything that can be wrong, and names the remedy."""

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
    from pxrs_ray.status.diagnosis import Finding

NODE_WAIT_S = 20.0
ANSWER_WAIT_S = 3.0
CLOCK_MS_MAX = 1_000
DISK_FREE_MIN = 2 << 30


def command(topology: TopologyName = None, as_json: AsJson = False) -> None:
    """Check Ray, Java, nodes, clocks, disks, stores, logs, groups, orphans; exit status 1: a
    problem."""
    from pxrs_ray.cli._show import answer, table
    from pxrs_ray.status.diagnosis import Level

    found = findings(topology)
    rows = [(_mark(f.level), f.subject, f.text, f.remedy) for f in found]
    answer(found, as_json, lambda: table(("", "what", "finding", "remedy"), rows))
    if any(f.level is Level.PROBLEM for f in found):
        raise typer.Exit(1)


def findings(topology: str | None) -> list[Finding]:
    """Everything that is looked at, in this process and the cluster."""
    return [*_machine(), *_cluster(topology)]


def _mark(level: str) -> object:
    from rich.text import Text

    return Text(level, style={"ok": "green", "warning": "yellow"}.get(level, "bold red"))


def _machine() -> Iterator[Finding]:
    from importlib.util import find_spec

    from pxrs_ray.status.diagnosis import Finding, Level

    if find_spec("pyspark") is None:  # then nothing here needs Java
        yield Finding(Level.OK, "Spark", "not installed; feeds from it come with pxrs-ray[spark]")
        return
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    if java:
        yield Finding(Level.OK, "Java", java)
    else:
        yield Finding(
            Level.WARNING, "Java", "not found; only the Spark feed needs it", "install a JRE 17"
        )


def _cluster(wanted: str | None) -> Iterator[Finding]:
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.status.diagnosis import Finding, Level, check_topology

    try:
        connect()
    except PxrsError as error:
        yield Finding(Level.PROBLEM, "Ray", str(error), "start Ray, or name it with --address")
        return
    from pxrs_ray.actors.cluster.named_actors import running_topologies

    names = [wanted] if wanted is not None else running_topologies()
    if not names:
        yield Finding(Level.OK, "topologies", "none runs", "`pxrs up FILE` starts one")
    folder, sound = "~", []
    for name in names:
        try:
            status, folder = _status_of(name)
        except PxrsError as error:
            yield Finding(Level.PROBLEM, f"topology {name}", str(error), _remedy_of(name, error))
        else:
            sound.append(name)
            yield from check_topology(status)
    yield from _nodes(folder)
    yield from _orphans(wanted, sound)


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


def _nodes(folder: str) -> Iterator[Finding]:
    import platform

    import ray

    from pxrs_ray.actors.cluster.node_reports import look_at_nodes
    from pxrs_ray.cli._show import size_text
    from pxrs_ray.status.diagnosis import Finding, Level

    here = (platform.python_version(), ray.__version__)
    for node in look_at_nodes(folder, NODE_WAIT_S):
        subject = f"node {node.node[:8]}"
        if node.problem:
            yield Finding(Level.PROBLEM, subject, node.problem, "look at it with `ray status`")
            continue
        sound = True
        if (node.python, node.ray) != here:
            sound = False
            text = f"Python {node.python} and Ray {node.ray}, here {here[0]} and {here[1]}"
            yield Finding(Level.PROBLEM, subject, text, "install the same on every node")
        if abs(node.clock_ms) > CLOCK_MS_MAX:
            sound = False
            text = f"its clock differs by {node.clock_ms:,.0f} ms"
            remedy = "run NTP: lag in time and seek by time are wrong, ownership is not"
            yield Finding(Level.WARNING, subject, text, remedy)
        if node.disk_free_bytes < DISK_FREE_MIN:
            sound = False
            text = f"{size_text(node.disk_free_bytes)} free under {folder}"
            remedy = "set retention_ms, retention_bytes or retention_passed, or free the disk"
            yield Finding(Level.PROBLEM, subject, text, remedy)
        if sound:
            text = f"Ray {node.ray}, Python {node.python}, {size_text(node.disk_free_bytes)} free"
            yield Finding(Level.OK, subject, text)


def _orphans(wanted: str | None, names: list[str]) -> Iterator[Finding]:
    """Consumers that belong to no member, and what is left of topologies without a coordinator."""
    from pxrs_ray.actors.client.topology import Topology
    from pxrs_ray.actors.cluster.named_actors import left_over
    from pxrs_ray.status.diagnosis import Finding, Level

    for name in names:
        try:
            found = Topology(name).orphans()
        except PxrsError:
            continue  # that it does not answer is told already
        for actor in found:
            yield Finding(
                Level.PROBLEM,
                f"actor {actor}",
                "belongs to no member of a group",
                f"`pxrs kill-orphans -t {name}`",
            )
    for name, count in sorted(left_over().items()):
        if wanted in (None, name):
            told = f"{count} actors are left of it, and no coordinator"
            yield Finding(Level.PROBLEM, f"topology {name}", told, f"`pxrs down {name} --now`")
