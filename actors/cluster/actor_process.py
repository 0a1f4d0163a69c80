"""Finds an actor's process and kills it even when it is frozen: `pxrs restart`.

Rules of this file. Ray's own kill asks the process to exit, which a frozen process does not hear.
So a small task on the same node kills it, after it has checked that the process number is still
that actor's.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors.cluster.named_actors import find_actor
from pxrs_ray.errors import DeadlineExceeded, NotFound
from pxrs_ray.late_dataclass import dataclass

TASK_WAIT_S = 30.0
AGAIN_WAIT_S = 30.0
LOOK_PAUSE_S = 0.05
ALIVE = "ALIVE"


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What Ray knows of an actor: its state, its process, and the process's node."""

    state: str
    pid: int
    node: str
    kind: str

    def __str__(self) -> str:
        return f"pid {self.pid} on node {self.node[:8]}"


def whereabouts(actor: str) -> Whereabouts | None:
    """Where an actor is; None where Ray does not say. Asks the cluster, never the actor."""
    from ray._private.state import state

    try:
        handle = find_actor(actor)
        if handle is None:
            return None
        found = state.actor_table(handle._actor_id.hex())
        place = found["Address"]["NodeID"]
        return Whereabouts(found["State"], int(found["Pid"]), place, found["ActorClassName"])
    except (ValueError, KeyError, TypeError, AttributeError, RayError):
        return None


def _end(pid: int, kind: str) -> bool:
    """On its node: kill the process if it is that actor's. False when it is not there any more."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Ray names each of its processes after the actor that it is.
        if not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"ray::{kind}".encode()):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        return False
    finally:
        os.close(descriptor)
    return True


def end_actor(actor: str) -> Whereabouts:
    """Kill an actor's process, frozen or not. Raises NotFound, DeadlineExceeded.

    Ray, or the coordinator, starts it anew.
    """
    found = whereabouts(actor)
    if found is None or not found.pid:
        raise NotFound(f"no actor {actor} runs: `pxrs status` names those that do")
    there = NodeAffinitySchedulingStrategy(found.node, soft=False)
    task = ray.remote(_end).options(
        num_cpus=0, max_retries=0, scheduling_strategy=there, runtime_env={}
    )
    try:
        ray.get(task.remote(found.pid, found.kind), timeout=TASK_WAIT_S)
    except GetTimeoutError:
        raise DeadlineExceeded(
            f"node {found.node[:8]} did not end pid {found.pid} in {TASK_WAIT_S:g} s: is it away? "
            "`ray status` says so"
        ) from None
    return found


def wait_for_another(actor: str, before: Whereabouts) -> Whereabouts:
    """Return when the actor lives in another process. Raises DeadlineExceeded."""
    end_s = time.monotonic() + AGAIN_WAIT_S
    while time.monotonic() < end_s:
        found = whereabouts(actor)
        if found is not None and found.state == ALIVE and found.pid not in (0, before.pid):
            return found
        time.sleep(LOOK_PAUSE_S)
    raise DeadlineExceeded(f"{actor} has not come back in {AGAIN_WAIT_S:g} s: see `ray logs`")
