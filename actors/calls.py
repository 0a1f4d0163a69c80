"""Synchronous calls from a driver, a job or a notebook to a topology's coordinator."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from pxrs_ray.actors import names
from pxrs_ray.actors.joining import join
from pxrs_ray.actors.link import RETRY_FIRST_S, RETRY_MOST_S, answer_of
from pxrs_ray.errors import DeadlineExceeded, NotFound, PxrsError

CALL_WAIT_S = 60.0


class CoordinatorCalls:
    """Calls methods of one topology's coordinator, through its restarts, with a deadline."""

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self._handle: Any = None

    def __call__(self, method: str, *arguments: object, timeout_s: float = CALL_WAIT_S) -> Any:
        """Call `method`; raises what it raised, NotFound, or DeadlineExceeded."""
        end_s = time.monotonic() + timeout_s
        pause_s = RETRY_FIRST_S
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
                raise DeadlineExceeded(
                    f"topology {self.topology} did not answer {method} in {timeout_s:g} s; "
                    "`pxrs doctor` says more"
                ) from None
            except RayActorError as error:
                self._handle = None
                if time.monotonic() + pause_s > end_s:
                    raise DeadlineExceeded(
                        f"the coordinator of {self.topology} is away for {timeout_s:g} s: {error}"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MOST_S)

    def _find(self) -> Any:
        if self._handle is None:
            join()
            try:
                self._handle = ray.get_actor(
                    names.coordinator(self.topology), namespace=names.NAMESPACE
                )
            except ValueError:
                running = ", ".join(running_topologies()) or "none"
                raise NotFound(
                    f"no topology {self.topology!r} runs in this cluster; running: {running}. "
                    "`pxrs_ray.deploy(config)` or `pxrs up FILE` starts one"
                ) from None
        return self._handle


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


def actors_of(topology: str) -> list[str]:
    """The names of every actor of a topology that exists now."""
    return sorted(
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == names.NAMESPACE
        and entry["name"].startswith(names.prefix(topology))
    )
