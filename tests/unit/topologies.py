"""Test topologies with one queue and one group, and handlers that fail as they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pxrs_ray import PxrsConfig, QueueConfig
from pxrs_ray.testing import TestTopology


def config(partitions: int = 4, **options: Any) -> PxrsConfig:
    return PxrsConfig(queues={"q": QueueConfig(partitions=partitions)}, **options)


@contextmanager
def running(
    handler: object, partitions: int = 1, consumers: int = 1, **options: Any
) -> Iterator[TestTopology]:
    with TestTopology(config(partitions)) as t:
        t.group("g", handler, queue="q", consumers=consumers, **options)
        yield t


def told(t: TestTopology) -> list[tuple[int, int, str]]:
    """Offset, attempt and outcome of every delivery."""
    return [(each.offset, each.attempt, each.outcome) for each in t.delivered("g")]


def send(t: TestTopology, *payloads: str, key: str | None = "k") -> None:
    for payload in payloads:
        t.send("q", key, payload)


class Failing:
    """Fails the payloads that it is told, so often."""

    def __init__(self, **times: int) -> None:
        self.left = Counter({payload.encode(): n for payload, n in times.items()})
        self.seen: list[str] = []

    def __call__(self, message: Any) -> None:
        self.seen.append(message.payload.decode())
        self.left[message.payload] -= 1
        if self.left[message.payload] >= 0:
            raise RuntimeError(f"no {message.payload.decode()}")


def once(act: Callable[[Any], None]) -> Callable[[Any], None]:
    """Act on the first message only, in the middle of its handler."""
    left = [act]

    def handle(message: Any) -> None:
        if left:
            left.pop()(message)

    return handle
