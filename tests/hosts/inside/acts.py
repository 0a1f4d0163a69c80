"""What a test can ask of a desk; every argument and answer is plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.partition_client import PartitionClient
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.topology.disk_survey import SurveyedNode
from tests.hosts.inside import pace
from tests.hosts.inside.holding import Holding
from tests.hosts.inside.witness import Witness


def deploy(
    name: str,
    data: str,
    partitions: int,
    group: dict[str, Any],
    registry_at: str = "",
    **options: Any,
) -> None:
    """Deploy a topology of one queue `q` and one group `g`; `options` are the topology's.

    A registry that is begun is at home on the host `registry_at`; '' is where the product puts it.
    """
    from pxrs_ray.actors.client.topology import deploy
    from pxrs_ray.actors.cluster import coordinator_placement

    def chosen(places: Sequence[SurveyedNode], _: str) -> SurveyedNode:
        return next(place for place in places if place.host == registry_at)

    config = _config(name, data, partitions, group, options)
    elsewhere = mock.patch.object(coordinator_placement, "begins_at", chosen)
    with elsewhere if registry_at else nullcontext():
        deploy(config)


def recover_registry(
    name: str, data: str, partitions: int, group: dict[str, Any], registry_at: str, **options: Any
) -> None:
    """Go on with what the registry holds, as `pxrs recover registry FILE --accept-loss`."""
    from pxrs_ray.actors.client.topology import recover_registry

    recover_registry(_config(name, data, partitions, group, options), accept_loss=True)


def accept_buffer_loss(name: str, buffer: int) -> str:
    """Give up the disk of a buffer that waits."""
    return Topology(name).accept_buffer_loss(buffer)


def _config(
    name: str, data: str, partitions: int, group: dict[str, Any], options: dict[str, Any]
) -> PxrsConfig:
    queue = options.pop("queue", {})
    usual: dict[str, Any] = {"linger_ms": 1, "durability": "always"}
    return PxrsConfig(
        name=name,
        data_dir=Path(data),
        queues={"q": QueueConfig(partitions=partitions, **queue)},
        groups={"g": GroupConfig(queue="q", **group)},
        **{**usual, **options},
    )


def start(
    name: str, notes: str, consumers: int, work_s: float, *, holding: bool, **options: Any
) -> None:
    """Start the group with witnesses as handlers; `options` are Ray's for the consumers."""
    handler = (Holding if holding else Witness)(notes, work_s)
    Topology(name).group("g").start(handler, consumers=consumers, **options)


def start_pace(name: str, kind: str, notes: str, host: str) -> None:
    """Start one consumer on a host, with one of the handlers of `inside.pace`."""
    handler = getattr(pace, kind)(notes)
    given = {"num_cpus": 0.1, "resources": {host: 1}}
    Topology(name).group("g").start(handler, consumers=1, **given)


def links(name: str) -> dict[int, list[int]]:
    """Of each buffer: the connections of other nodes, and the calls that came over them."""
    found = Topology(name).buffer_stats()
    return {index: [stats.links, stats.link_calls] for index, stats in found.items()}


def set_link_ports(name: str, ports: str) -> None:
    """Change the option on the running topology."""
    topology = Topology(name)
    topology.apply(topology.config.changed(link_ports=ports))


def set_replicas(name: str, replicas: int) -> None:
    """Change the option on the running topology."""
    topology = Topology(name)
    topology.apply(topology.config.changed(replicas=replicas))


def stop(name: str) -> None:
    """End the consumers."""
    Topology(name).group("g").stop()


def scale(name: str, consumers: int) -> None:
    """Have so many consumers."""
    Topology(name).group("g").scale(consumers)


_moves: dict[str, Future[str]] = {}


def begin_move(name: str, buffer: int, node: str) -> None:
    """Have a buffer moved, as `pxrs move` does, and do not wait for it."""

    def move() -> str:
        try:
            return str(Topology(name).move_buffer(buffer, node))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    mover = ThreadPoolExecutor(1)
    _moves[name] = mover.submit(move)
    mover.shutdown(wait=False)


def end_move(name: str, wait_s: float) -> str:
    """What became of the move that was begun last, as its caller was told."""
    return _moves.pop(name).result(wait_s)


def shutdown(name: str) -> None:
    """End the topology gracefully."""
    Topology(name).shutdown()


def remove_coordinator(name: str) -> None:
    """End the coordinator for good, as an upgrade by `pxrs up` does before it deploys anew."""
    from pxrs_ray.actors.coordinator.coordinator_actor import remove_coordinator

    remove_coordinator(name)


def kill(name: str) -> None:
    """Take every actor of it away."""
    Topology(name).kill()


def status(name: str) -> dict[str, Any]:
    """The whole topology's status."""
    found: dict[str, Any] = asdict(Topology(name).status())
    return found


def told(name: str) -> str:
    """All that status and doctor tell a person, in one text."""
    found = Topology(name).status()
    lines = [f"{p.severity} {p} ({p.remedy})" for p in found.problems]
    return "\n".join([repr(found), *map(repr, found.groups), *lines])


def group(name: str) -> dict[str, Any]:
    """The group's status, with its lag."""
    found = Topology(name).group("g").status()
    return {**asdict(found), "lag": found.lag, "owners": found.owners}


def actors(name: str) -> dict[str, list[Any]]:
    """Each living actor of the topology: its address and its pid there, as Ray's GCS knows them."""
    from ray._private.state import actors as known

    begin = names.prefix(name)
    return {
        one["Name"].removeprefix(begin): [one["Address"]["IPAddress"], one["Pid"]]
        for one in known().values()
        if one["Name"].startswith(begin) and one["State"] == "ALIVE"
    }


def nodes() -> list[str]:
    """The addresses of the living nodes."""
    import ray

    every: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return sorted(node["NodeManagerAddress"] for node in every if node["Alive"])


def ends(name: str, partitions: int) -> list[list[int]]:
    """(start, end) of each partition's log."""
    _, _, buffers = Topology(name).queue_spec("q")
    found = [PartitionClient(name, buffers, "q", p).ends() for p in range(partitions)]
    return [[ends.start_offset, ends.end_offset] for ends in found]
