"""The names of all actors, and the Ray namespace in which they live. No other module makes
names."""

from __future__ import annotations

from pxrs_ray.model import Incarnation, MemberId

NAMESPACE = "pxrs"


def prefix(topology: str) -> str:
    """What the names of all actors of `topology` begin with."""
    return f"pxrs/{topology}/"


def coordinator(topology: str) -> str:
    """Name the topology's one coordinator."""
    return f"{prefix(topology)}coordinator"


def buffer(topology: str, index: int) -> str:
    """Name the buffer that holds partition p of each queue where p % buffers == `index`."""
    return f"{prefix(topology)}buffer/{index}"


def replicas_of(topology: str, index: int) -> str:
    """What the names of all replicas of that buffer begin with, where it has several."""
    return f"{buffer(topology, index)}/"


def replica(topology: str, index: int, disk: str) -> str:
    """Name the replica of a buffer that is on a disk."""
    return f"{replicas_of(topology, index)}{disk}"


def consumers_of(topology: str, group: str) -> str:
    """What the names of all consumers of one group begin with."""
    return f"{prefix(topology)}consumer/{group}/"


def consumer(topology: str, group: str, member: MemberId, incarnation: Incarnation) -> str:
    """Name one incarnation of a consumer; the next one has another name, so none blocks it."""
    return f"{consumers_of(topology, group)}{member}/{incarnation}"


def tenants(topology: str, queue: str, group: str) -> str:
    """Name the actor that moves the tenants of a queue and its group."""
    return f"{prefix(topology)}tenants/{queue}/{group}"


def store(topology: str) -> str:
    """Name the actor that holds the registry of a topology whose store is `memory:`."""
    return f"{prefix(topology)}store"


def feeds_of(queue: str) -> str:
    """Name the log that remembers what was fed into a queue; no queue of a user's is called so."""
    return f"_feeds.{queue}"


def streams_of(queue: str) -> str:
    """The same for the micro-batches of streams."""
    return f"_streams.{queue}"
