"""Connects a command to Ray and to a topology; every failure is an error of one line."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from pxrs_ray.errors import DeadlineExceeded, NotFound, RegistryAway, UsageError

if TYPE_CHECKING:
    from pxrs_ray.actors.client.topology import Topology

ANSWER_WAIT_S = 20.0
ALIVE_WAIT_S = 10.0
# Who only looks hears within three seconds, with all else that a command does, that a coordinator
# is frozen: half of this is given to its process.
SOON_WAIT_S = 2.5
IN_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def connect(working_dir: str | None = None) -> None:
    """Join the Ray cluster of RAY_ADDRESS, or the one that runs on this machine.

    `working_dir` is a folder that goes along to every node, for the actors that are made now; a
    job that was submitted has one already. Raises UsageError when there is no way in.
    """
    from pxrs_ray.cli._lean_ray import load_ray

    load_ray()
    import ray

    from pxrs_ray.actors.cluster.join import join

    if ray.is_initialized():
        return
    options: dict[str, Any] = {}
    if working_dir is not None and IN_JOB not in os.environ:
        options["runtime_env"] = {"working_dir": working_dir}
    join(**options)
    # Ray's own end of an interpreter sleeps for half a second; this one comes before it.
    atexit.register(ray.shutdown)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: object) -> None:
    """End as Ctrl-C does: what was begun is finished. Ray would write where it was hit."""
    raise SystemExit(128 + number)


def running(name: str | None) -> Topology:
    """The topology of that name, or the only one that runs. Raises NotFound, UsageError."""
    connect()
    from pxrs_ray.actors.client.topology import attach

    return attach(name_of(name), timeout_s=ANSWER_WAIT_S)


def soon(name: str | None) -> Topology:
    """As `running`, for commands that only look: a coordinator that is mute is told of at once, one
    that is being started anew is waited for."""
    connect()
    from pxrs_ray.actors import names
    from pxrs_ray.actors.client.topology import attach
    from pxrs_ray.actors.cluster.actor_process import ALIVE, whereabouts
    from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient

    name = name_of(name)
    try:
        BlockingCoordinatorClient(name).check_alive(SOON_WAIT_S)
    except DeadlineExceeded:
        place = whereabouts(names.coordinator(name))
        if place is None or place.state == ALIVE:
            raise
    return attach(name, timeout_s=ANSWER_WAIT_S)


def name_of(name: str | None) -> str:
    """That name, or the name of the only topology that runs. Raises NotFound, UsageError."""
    if name is not None:
        return name
    from pxrs_ray.actors.cluster.named_actors import running_topologies

    found = running_topologies()
    if not found:
        raise NotFound("no topology runs in this cluster: `pxrs up FILE` starts one")
    if len(found) > 1:
        raise UsageError(f"several topologies run: choose one of {', '.join(found)} with -t")
    return found[0]


def steady(name: str | None) -> Topology:
    """As `running`, for commands that change something: raises RegistryAway at once when the
    registry store is down, for the change would wait for it."""
    topology = running(name)
    store = topology.store_status()
    if store.away_s is not None:
        raise RegistryAway(
            f"registry away for {store.away_s:.0f} s: {store.url} does not answer, and nothing was "
            f"changed ({store.problem})"
        )
    return topology


def only_group(topology: Topology, name: str | None) -> str:
    """The group of that name, or the only one there is."""
    if name is not None:
        return name
    groups = topology.config.groups
    if len(groups) != 1:
        told = ", ".join(sorted(groups)) or "it has none"
        raise UsageError(f"which group of {topology.name}? --group with one of: {told}")
    return next(iter(groups))
