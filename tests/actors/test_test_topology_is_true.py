"""`TestTopology` does with a handler what the real workers do: same calls, attempts, checkpoints.

Each case runs twice: on the real consumer, buffer and group host (one event loop, real threads and
time), and in a test topology.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pxrs_ray import PxrsConfig, QueueConfig
from pxrs_ray.config import ByKey, Ordered, Packs
from pxrs_ray.consumer.delivery import DeliveredBatch
from pxrs_ray.testing import TestTopology
from tests.actors.in_process import World, until, world

__all__ = ["world"]

QUICK: dict[str, Any] = {"backoff_ms": 5, "backoff_ms_max": 20, "commit_interval_ms": 20}


@dataclass
class Case:
    """Messages by key, which of them (by number) fail how often, and the group's options."""

    keys: str
    failing: dict[int, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    batch: bool = False
    # How far it comes; the end when left out.
    until: int | None = None
    by_key: bool = False


CASES = {
    "in order": Case("aabab", {1: 2}),
    "commits each message": Case("abab", {2: 1}, {"processing": Ordered(commit_mode="message")}),
    "skips": Case("aaaa", {1: 99}, {"attempts_max": 3, "failure_policy": "skip"}),
    "stops": Case("aaa", {1: 99}, {"attempts_max": 2}, until=1),
    "batches": Case("aabb", {0: 2}, batch=True),
    "batches, skipped": Case(
        "aabb", {0: 99}, {"attempts_max": 2, "failure_policy": "skip"}, batch=True
    ),
    "lanes": Case("abcabcab", {0: 2, 4: 1}, {"processing": ByKey(parallelism=4)}, by_key=True),
    "lanes, skipped": Case(
        "abab",
        {0: 99},
        {"processing": ByKey(parallelism=2), "attempts_max": 2, "failure_policy": "skip"},
        by_key=True,
    ),
    "packs": Case(
        "abcd",
        {1: 1, 2: 99},
        {
            "processing": Packs(
                submit_strategy="sequential",
                processing_strategy="retry_failed",
                retries=2,
                pause_ms=5,
            ),
            "failure_policy": "skip",
        },
    ),
}


class Witness:
    """Notes each call, and fails the ones it is told to."""

    def __init__(self, case: Case) -> None:
        self.calls: list[tuple[bytes | None, int, int, int]] = []
        self.left = Counter(case.failing)

    def handle(self, argument: Any) -> None:
        batch = list(argument) if isinstance(argument, DeliveredBatch) else [argument]
        first = batch[0].offset
        self.calls.append((batch[0].key, first, len(batch), argument.context.attempt))
        self.left[first] -= 1
        if self.left[first] >= 0:
            raise RuntimeError(first)

    def handler(self, case: Case) -> Callable[[Any], None]:
        if not case.batch:
            return lambda message: self.handle(message)

        def of_batches(batch: DeliveredBatch) -> None:
            self.handle(batch)

        return of_batches

    def seen(self, case: Case) -> Any:
        """The calls in order; by key where keys go on beside each other."""
        if not case.by_key:
            return self.calls
        return {key: [call for call in self.calls if call[0] == key] for key, *_ in self.calls}


async def really(case: Case, world: Callable[..., World]) -> Any:
    witness, place = Witness(case), world(1, **{**QUICK, **case.options})
    await place.up()
    try:
        # Each message is a frame of its own here, and so a batch.
        await place.produce([key.encode() for key in case.keys])
        await place.consumer("g-0", witness.handler(case))
        end = len(case.keys) if case.until is None else case.until
        await place.reaches(end)
        if case.until is not None:
            attempts = case.options["attempts_max"]
            await until(lambda: place.host.core.state.rows[0].attempts == attempts)
        row = place.host.core.state.rows[0]
        return witness.seen(case), row.checkpoint, row.attempts
    finally:
        await place.down()


def in_a_test(case: Case) -> Any:
    witness = Witness(case)
    with TestTopology(PxrsConfig(queues={"q": QueueConfig(partitions=1)})) as t:
        t.group("g", witness.handler(case), queue="q", **{**QUICK, **case.options})
        for key in case.keys:
            t.send("q", key, "")
            t.messages("q")  # what was sent is in its log: a frame, and so a batch, of its own
        t.advance(60)
        row = t._group("g").core.state.rows[0]
        return witness.seen(case), row.checkpoint, row.attempts


@pytest.mark.parametrize("name", CASES)
def test_a_test_topology_does_what_the_real_workers_do(
    name: str, world: Callable[..., World]
) -> None:
    assert in_a_test(CASES[name]) == asyncio.run(really(CASES[name], world))
