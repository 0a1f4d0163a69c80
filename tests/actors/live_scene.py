"""A group that runs while its options change, and what can be seen of each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pxrs_ray.config import GroupConfig, Packs, PxrsConfig, QueueConfig
from pxrs_ray.config.declare import Effect
from pxrs_ray.config.diff import declared
from pxrs_ray.consumer.delivery import Delivery
from tests.actors.conftest import Stage
from tests.actors.recording import HookRecorder, Note, eventually

LONG_MS = 600_000


class Versatile(HookRecorder):
    """Does what a payload says: 'bad' fails, 'slow' takes its time; all is noted."""

    def handle(self, message: Delivery) -> None:
        text = (message.payload or b"").decode()
        self.notebook.write("begun", message.context, payload=text)
        if text.startswith("slow"):
            time.sleep(0.2)
        if text.startswith("bad"):
            raise RuntimeError("cannot do it")
        self.notebook.write("done", message.context, payload=text)


@dataclass
class Scene:
    """One topology with a group of two consumers, and what was sent to it."""

    topology: Any
    group: Any
    notebook: Any
    base: PxrsConfig
    sent: int = 0
    processes: dict[str, tuple[int | None, int, str]] = field(default_factory=dict)

    def send(self, kind: str, count: int = 1) -> list[str]:
        """Send messages of this kind; answers their payloads, of which each is sent once."""
        payloads = [f"{kind}-{self.sent + number}" for number in range(count)]
        self.sent += count
        with self.topology.producer("q", linger_ms=0) as producer:
            for payload in payloads:
                producer.send(payload, payload.encode())
        return payloads

    def notes(self, what: str, payloads: list[str]) -> list[Note]:
        return [note for note in self.notebook.notes(what) if note.payload in payloads]

    def done(self, kind: str = "m", count: int = 1) -> list[str]:
        """Send, and wait until the group has passed all of it."""
        payloads = self.send(kind, count)
        eventually(lambda: self.group.lag() == 0, what=f"{kind} is passed")
        return payloads

    def apply(self, **changes: Any) -> None:
        self.topology.apply(self.base.changed(**changes))

    def who(self) -> dict[str, tuple[int | None, int, str]]:
        """Process, incarnation and actor of each consumer."""
        return {c.member: (c.pid, c.incarnation, c.actor) for c in self.group.status().consumers}


@contextmanager
def scene_on(stage: Stage, **options: Any) -> Iterator[Scene]:
    usual = {"queue": "q", "consumers": 2, "commit_interval_ms": 20}
    topology = stage.deploy(
        queues={name: QueueConfig(partitions=3) for name in ("q", "letters")},
        groups={"g": GroupConfig(**{**usual, **options})},
    )
    group = topology.group("g")
    group.start(Versatile(stage.notes), consumers=2)
    yield Scene(topology, group, stage.notebook, topology.config)


# --- what can be seen of a change -----------------------------------------------------------------


def tried(times: int) -> Callable[[Scene], None]:
    def see(scene: Scene) -> None:
        assert len(scene.notes("begun", scene.done("bad"))) == times

    return see


def pauses(pause_ms: int) -> Callable[[Scene], None]:
    def see(scene: Scene) -> None:
        first, second = scene.notes("begun", scene.done("bad"))
        assert second.at_s - first.at_s >= (pause_ms - 2) / 1_000, "clocks are cut to milliseconds"

    return see


def cost_of(_: Delivery) -> float:
    """What a message costs, where a group's calls have a cost."""
    return 1.0


def slowly(scene: Scene) -> None:
    """One call a second, of all consumers together."""
    began_s = time.monotonic()
    scene.done("m", 3)
    assert time.monotonic() - began_s >= 1.5


def letters(scene: Scene) -> None:
    before = queued(scene, "letters")
    scene.done("bad")
    assert queued(scene, "letters") == before + 1


def queued(scene: Scene, queue: str) -> int:
    return next(q.messages for q in scene.topology.status().queues if q.queue == queue)


def too_slow(scene: Scene) -> None:
    before = scene.group.status().given_up_count
    scene.done("slow")
    assert scene.group.status().given_up_count == before + 1


def together(scene: Scene) -> None:
    """Messages of one partition are in work at once."""
    payloads = scene.done("slow", 8)
    begun, ended = (scene.notes(what, payloads) for what in ("begun", "done"))
    for partition in range(3):
        starts = [note.at_s for note in begun if note.partition == partition]
        ends = [note.at_s for note in ended if note.partition == partition]
        if any(later < end for later, end in zip(starts[1:], ends, strict=False)):
            return
    raise AssertionError("one after the other")


def one_by_one(scene: Scene) -> None:
    """No two messages of a partition are in work at once."""
    with pytest.raises(AssertionError, match="one after the other"):
        together(scene)


def again(**options: Any) -> Packs:
    """Packs of which what has failed is tried again."""
    return Packs(processing_strategy="retry_failed", **options)


def uncommitted(scene: Scene) -> None:
    payloads = scene.send("m")
    eventually(lambda: scene.notes("done", payloads))
    time.sleep(0.3)
    assert scene.group.lag() == 1, "nothing is committed before its time"


def owners(**wanted: list[int]) -> Callable[[Scene], None]:
    return lambda scene: eventually(
        lambda: scene.group.status().owners == {n.replace("_", "-"): p for n, p in wanted.items()}
    )


def lease(scene: Scene) -> None:
    eventually(
        lambda: all((c.lease_left_ms or 9e9) <= 3_000 for c in scene.group.status().consumers)
    )


def three(scene: Scene) -> None:
    eventually(lambda: len(scene.group.status().consumers) == 3)


# What runs takes it over: no process is replaced for it.
LIVE = {Effect.COORDINATOR, Effect.BUFFERS, Effect.CONSUMERS, Effect.WORKERS}
Shows = Callable[[Scene], Any]
SKIP = {"failure_policy": "skip", "attempts_max": 1}
LATE = {"commit_interval_ms": LONG_MS}


def live(kind: type[Any], *but: str) -> set[str]:
    fields = {name: declared(found) for name, found in kind.model_fields.items()}
    return {n for n, who in fields.items() if n not in but and LIVE & set(who)}


def consumer_sees(scene: Scene) -> list[GroupConfig]:
    """What the running consumers go by."""
    import ray

    from pxrs_ray.actors import names

    asked = [
        ray.get_actor(c.actor, namespace=names.NAMESPACE).__ray_call__.remote(lambda c: c._config)
        for c in scene.group.status().consumers
        if c.actor and c.state == "running"
    ]
    found: list[GroupConfig] = ray.get(asked, timeout=10)
    return found
