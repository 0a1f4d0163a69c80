"""`BlockingCoordinatorClient`: synchronous calls from a driver, a job or a notebook to the
coordinator."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import ray
from ray.exceptions import (
    ActorUnschedulableError,
    GetTimeoutError,
    RayActorError,
    RayTaskError,
)

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster.actor_process import ALIVE, Whereabouts, whereabouts
from pxrs_ray.actors.cluster.coordinator_client import RETRY_FIRST_S, RETRY_MOST_S, answer_of
from pxrs_ray.actors.cluster.join import join
from pxrs_ray.backoff import Backoff
from pxrs_ray.errors import DeadlineExceeded, NotFound, PxrsError

CALL_WAIT_S = 60.0
# Whoever lives answers that it does in milliseconds; a frozen coordinator is named within 3 s, by
# `pxrs doctor` with all that it asks besides.
ALIVE_WAIT_S = 1.5


class BlockingCoordinatorClient:
    """Calls methods of one topology's coordinator, through its restarts, with a deadline."""

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self._handle: Any = None

    def __call__(self, method: str, *arguments: object, timeout_s: float = CALL_WAIT_S) -> Any:
        """Call `method`; raises what it raised, NotFound, or DeadlineExceeded."""
        end_s = time.monotonic() + timeout_s
        backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            try:
                handle = self._find()
                left_s = max(0.01, end_s - time.monotonic())
                return ray.get(getattr(handle, method).remote(*arguments), timeout=left_s)
            except RayTaskError as error:
                answer = answer_of(error)
                if isinstance(answer, PxrsError):
                    raise answer from None
                raise
            except GetTimeoutError:
                place = whereabouts(names.coordinator(self.topology))
                where = "" if place is None else f" ({place})"
                raise DeadlineExceeded(
                    f"the coordinator of {self.topology}{where} did not answer {method} in "
                    f"{timeout_s:g} s; `pxrs status` says whether it is frozen or waits"
                ) from None
            except (RayActorError, ActorUnschedulableError) as error:
                self._handle = None
                if time.monotonic() + backoff.next_s > end_s:
                    raise DeadlineExceeded(
                        f"the coordinator of {self.topology} is away for {timeout_s:g} s: {error}"
                    ) from error
            time.sleep(backoff.failed())

    def check_alive(self, timeout_s: float) -> None:
        """Return when the coordinator's process answers, whatever it is at.

        One that is being started anew is waited for. Raises NotFound, or DeadlineExceeded that
        names the process which lives and does not answer.
        """
        end_s = time.monotonic() + timeout_s
        wait_s = min(timeout_s, ALIVE_WAIT_S)
        while True:
            began_s = time.monotonic()
            try:
                ray.get(self._find().alive.remote(), timeout=wait_s)
                return
            except (GetTimeoutError, RayActorError, ActorUnschedulableError) as error:
                place = whereabouts(names.coordinator(self.topology))
                if not isinstance(error, GetTimeoutError):
                    self._handle = None
                    time.sleep(RETRY_FIRST_S)
                lives = place is not None and place.state == ALIVE
                over = time.monotonic() >= end_s
                if over or (lives and time.monotonic() - began_s >= wait_s):
                    raise DeadlineExceeded(self._mute_told(place, wait_s)) from None

    def _mute_told(self, place: Whereabouts | None, wait_s: float) -> str:
        where = "its process" if place is None else f"its process (pid {place.pid}"
        where += "" if place is None else f" on node {place.node[:8]}, {place.state.lower()})"
        return (
            f"the coordinator of {self.topology} has not answered for {wait_s:g} s: {where} lives "
            "and is frozen, or is being started; work goes on, commits and takeovers wait; a "
            "frozen one is ended and started anew by its node within half a lease, and at once "
            f"by `pxrs restart coordinator -t {self.topology}`"
        )

    def _find(self) -> Any:
        if self._handle is None:
            join()
            try:
                self._handle = ray.get_actor(
                    names.coordinator(self.topology), namespace=names.NAMESPACE
                )
            except ValueError:
                raise not_running(self.topology) from None
        return self._handle


def not_running(topology: str) -> NotFound:
    """The error that names those that do."""
    others = left_over().get(topology)
    if others:
        return NotFound(
            f"topology {topology!r} has no coordinator, though {others} of its actors are there: "
            "the host that has its registry is away. Start it, and they bring the coordinator back "
            "within seconds; `pxrs up FILE` names that host"
        )
    running = ", ".join(running_topologies()) or "none"
    return NotFound(
        f"no topology {topology!r} runs in this cluster; running: {running}. "
        "`pxrs_ray.deploy(config)` or `pxrs up FILE` starts one"
    )


def runs(topology: str) -> bool:
    """Whether the topology has a coordinator, or one is being made."""
    try:
        ray.get_actor(names.coordinator(topology), namespace=names.NAMESPACE)
    except ValueError:
        return False
    return True


def running_topologies() -> list[str]:
    """The names of the topologies that run in this cluster."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(
        {
            entry["name"].removeprefix("pxrs/").removesuffix("/coordinator")
            for entry in found
            if entry["namespace"] == names.NAMESPACE and entry["name"].endswith("/coordinator")
        }
    )


def left_over() -> dict[str, int]:
    """How many actors there are of each topology that has no coordinator."""
    found: Counter[str] = Counter()
    for entry in ray.util.list_named_actors(all_namespaces=True):
        parts = entry["name"].split("/")
        if entry["namespace"] == names.NAMESPACE and parts[0] == "pxrs" and len(parts) > 2:
            found[parts[1]] += 1
    return {name: n for name, n in found.items() if name not in running_topologies()}


def actors_of(topology: str) -> list[str]:
    """The names of every actor of a topology that exists now."""
    return sorted(
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == names.NAMESPACE
        and entry["name"].startswith(names.prefix(topology))
    )
