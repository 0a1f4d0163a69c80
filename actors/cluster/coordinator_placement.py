"""Chooses the node of a topology's coordinator: the registry's, when that is a file. For drivers.

Rules of this file. With a registry on a server the coordinator may run anywhere. With a registry
that is a file it is pinned to the node whose disk has the file, and is started nowhere else: it
would find no registry there. On a cluster of one node nothing has to be looked up.
"""

from __future__ import annotations

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors.cluster.named_actors import runs
from pxrs_ray.actors.cluster.node_watch import asked_of, living_nodes, look_everywhere
from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import DeadlineExceeded, RegistryNotHere, UsageError
from pxrs_ray.topology.disk_survey import (
    SurveyedNode,
    begins_at,
    check_unknown,
    chosen,
    find_registry,
    set_aside,
)
from pxrs_ray.topology.node_seen import NodeSeen

FILE = "sqlite:"
ANYWHERE = ""
SET_WAIT_S = 30.0


def place_of_coordinator(config: PxrsConfig, *, accept_loss: bool = False) -> str:
    """The id of the node that the coordinator is pinned to; '' when it may run anywhere.

    Raises RegistryNotHere when the registry is on a host that is away (not with `accept_loss`:
    then it is begun), StoreCorrupted when there are two, DeadlineExceeded when a node that may
    have it does not tell.
    """
    if not config.store_url.startswith(FILE):
        return ANYWHERE
    nodes, head = living_nodes()
    if len(nodes) == 1:
        return nodes[0].node
    places = look_everywhere(asked_of(config, make=True), nodes)
    found = find_registry(config.name, places)
    if found is not None:
        return found.node
    if not accept_loss:
        check_unknown(config.name, places)
        _check_all_told(config.name, places)
    begins = begins_at(places, head)
    if begins is None:
        told = "; ".join(f"host {p.host}: {p.looked.problem}" for p in places)
        raise RegistryNotHere(f"no node can keep the registry of {config.name}: {told}")
    return begins.node


def choose_registry(config: PxrsConfig, host: str) -> list[str]:
    """Of several registries go on with the one on this host; the others' files are set aside.

    Answers which files. Raises UsageError when there is none on that host, or when the topology
    runs.
    """
    if runs(config.name):
        raise UsageError(
            f"topology {config.name} runs: end it first, with `pxrs down {config.name}`"
        )
    asked = asked_of(config, make=False)
    _, others = chosen(config.name, look_everywhere(asked, living_nodes()[0]), host)
    made = []
    for place in others:
        where = NodeAffinitySchedulingStrategy(place.node, soft=False)
        task = ray.remote(set_aside).options(num_cpus=0, scheduling_strategy=where, runtime_env={})
        made += [
            f"{place.host}: {file}" for file in ray.get(task.remote(asked), timeout=SET_WAIT_S)
        ]
    return made


def node_of_registry(config: PxrsConfig, nodes: list[NodeSeen]) -> str | None:
    """The living node whose disk has the topology's registry, a file; None when none has.

    Raises StoreCorrupted when there are two.
    """
    places = look_everywhere(asked_of(config, make=False), nodes)
    knows = [p for p in places if p.looked.registry is not None and p.looked.registry.generation]
    found = find_registry(config.name, knows)
    return None if found is None else found.node


def _check_all_told(topology: str, places: list[SurveyedNode]) -> None:
    mute = [place for place in places if place.looked.problem]
    if mute:
        told = "; ".join(f"host {place.host}: {place.looked.problem}" for place in mute)
        raise DeadlineExceeded(
            f"whether a registry of {topology} is there is not known of {told}: try again, or "
            "take that host out of the cluster"
        )


def single_point(config: PxrsConfig) -> str:
    """On several nodes, with a registry that is a file: what that means, in one line; or ''."""
    if not config.store_url.startswith(FILE):
        return ""
    nodes, _ = living_nodes()
    if len(nodes) == 1:
        return ""
    places = look_everywhere(asked_of(config, make=False), nodes)
    found = find_registry(config.name, places)
    file = asked_of(config, make=False).registry
    return (
        f"{len(nodes)} nodes, and one registry: {file} on {found or 'one of them'} is the single "
        'point of this topology; with store = "etcd://...", "postgresql://..." or '
        '"redis://..." any node may be lost'
    )
