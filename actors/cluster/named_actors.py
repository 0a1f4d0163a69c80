"""Actors by name: the one place where they are made, found, ended and listed.

Rules of this file. Every call here asks Ray's GCS and blocks until it answers: on an event loop,
make it through `pxrs_ray.actors.cluster.gcs`. Every actor with a name is detached: it outlives the
driver that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import ray

from pxrs_ray.actors import names
from pxrs_ray.errors import NotFound

P = ParamSpec("P")


def make_actor(
    kind: Callable[P, object],
    name: str,
    options: Mapping[str, Any],
    *arguments: P.args,
    **named: P.kwargs,
) -> Any:
    """Make a detached actor of that name, and answer its handle.

    `options` are Ray's; no CPU where they name none, and never another name or lifetime. Raises
    ValueError when the name is taken, unless they say `get_if_exists`.
    """
    made: Any = ray.remote(kind).options(
        **{
            "num_cpus": 0,
            **options,
            "name": name,
            "namespace": names.NAMESPACE,
            "lifetime": "detached",
        }
    )
    return made.remote(*arguments, **named)


def find_actor(name: str) -> Any | None:
    """The handle of the actor of that name; None where nobody has it."""
    try:
        return ray.get_actor(name, namespace=names.NAMESPACE)
    except ValueError:
        return None


def kill_actor(name: str) -> bool:
    """End an actor at once and for good; False where nobody has the name."""
    found = find_actor(name)
    if found is None:
        return False
    ray.kill(found)
    return True


def actors_named(prefix: str) -> list[str]:
    """The names of ours that begin so, sorted; each belongs to an actor that exists now."""
    found = ray.util.list_named_actors(all_namespaces=True)
    ours = (entry["name"] for entry in found if entry["namespace"] == names.NAMESPACE)
    return sorted(name for name in ours if name.startswith(prefix))


def actors_of(topology: str) -> list[str]:
    """The names of every actor of a topology that exists now."""
    return actors_named(names.prefix(topology))


def runs(topology: str) -> bool:
    """Whether the topology has a coordinator, or one is being made."""
    return find_actor(names.coordinator(topology)) is not None


def running_topologies() -> list[str]:
    """The names of the topologies that run in this cluster."""
    return [name for name, has_coordinator, _ in _topologies() if has_coordinator]


def known_topologies() -> list[str]:
    """The names of all that have actors here; those without a coordinator come last."""
    found = sorted(_topologies(), key=lambda each: (not each[1], each[0]))
    return [name for name, _, _ in found]


def left_over() -> dict[str, int]:
    """How many actors there are of each topology that has no coordinator."""
    return {name: count for name, has_coordinator, count in _topologies() if not has_coordinator}


def _topologies() -> list[tuple[str, bool, int]]:
    """Each topology that has actors, whether it has a coordinator, and how many actors."""
    found = actors_named("pxrs/")
    counts = Counter(name.split("/")[1] for name in found if name.count("/") > 1)
    return [(name, names.coordinator(name) in found, n) for name, n in sorted(counts.items())]


def not_running(topology: str) -> NotFound:
    """The error for a topology without a coordinator; it names those that have one."""
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
