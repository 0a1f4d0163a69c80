"""The options of replicated logs, and what a topology with them must be like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pxrs_ray.config.declare import ByteCount, Effect, LabelOrNone, Options, option
from pxrs_ray.data.log_limits import Durability

if TYPE_CHECKING:
    from pxrs_ray.config.topology import PxrsConfig

MEMORY_STORE = "memory:"


class ReplicationOptions(Options):
    """On how many hosts a topology keeps its logs."""

    replicas: int = option(
        1,
        "How many hosts keep each log. With 2 or 3 another one goes on where a host is lost. From "
        "2 to 3 and back it changes live; not from 1, nor to it.",
        Effect.COORDINATOR,
        apart=(1,),
        ge=1,
        le=3,
    )
    min_isr: int = option(
        1,
        "How many replicas must be in sync for an append to be acknowledged. Below that, appends "
        "wait.",
        Effect.COORDINATOR,
        ge=1,
        le=3,
    )
    spread_by: LabelOrNone = option(
        "",
        "The label of Ray's nodes by which replicas are spread, such as a zone: no two of a log "
        "are where it has the same value, as far as there are as many values. Where it is empty, "
        "or a node does not have it, hosts count. What is placed already stays.",
        Effect.COORDINATOR,
    )
    catch_up_bytes_per_s: ByteCount | None = option(
        None,
        "How much each buffer sends in a second, at the most, to replicas that are not in sync: a "
        "copy takes no more from users than that. Less than what is appended, and it never catches "
        "up. Without it there is no bound.",
        Effect.COORDINATOR,
    )


def replication_problems(config: PxrsConfig) -> Iterator[str]:
    """What speaks against the options `replicas` and `min_isr` as they are."""
    if config.min_isr > config.replicas:
        yield (
            f"min_isr = {config.min_isr}: must be at most replicas, which is {config.replicas}, or "
            "nothing is ever acknowledged"
        )
    if config.replicas == 1:
        return
    if config.store_url.startswith(MEMORY_STORE):
        yield (
            f"replicas = {config.replicas} needs a registry that outlives its process: who leads "
            "is kept there. Set store to a server ('etcd://...', 'postgresql://...', "
            "'redis://...'), or to a file ('sqlite:///...')"
        )
    kept = {name: queue for name, queue in config.queues.items() if queue.source is None}
    for name, queue in kept.items():
        if queue.durability == Durability.MEMORY:
            yield (
                f"queues.{name}.durability = 'memory': logs in memory have no replicas yet. Set it "
                "to 'interval' or 'always', or replicas = 1"
            )
    found = sorted({str(queue.durability) for queue in kept.values()})
    if len(found) > 1:
        yield (
            f"replicas = {config.replicas}: all queues must have the same durability, and these "
            f"have {' and '.join(found)}"
        )
