"""Each option that is declared as live is changed on a group that runs, and nobody is replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pxrs_ray.config import ByKey, GroupConfig, Ordered, Packs, PxrsConfig, QueueConfig
from pxrs_ray.config.declare import Effect, Options
from pxrs_ray.config.diff import declared
from pxrs_ray.config.processing_modes import ProcessingMode
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.errors import HandlerError, UsageError
from tests.actors.conftest import Stage
from tests.actors.recording import BatchRecorder, HookRecorder, Note, eventually

pytestmark = pytest.mark.ray

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
ONE_AT_A_TIME = Ordered(consumer_per_partition=False)
LATE = {"commit_interval_ms": LONG_MS}

# What each live option of a group is changed to, and what can be seen of it.
GROUP: dict[str, tuple[dict[str, Any], Shows | None]] = {
    "lease_ttl_seconds": ({"lease_ttl_seconds": 3.0}, lease),
    "revoke_deadline_ms": ({"revoke_deadline_ms": 7_000}, None),
    "assignor": ({"assignor": "range"}, lambda scene: scene.group.status().assignor == "range"),
    "static_map": (
        {"assignor": "static", "static_map": {"g-0": [1, 2], "g-1": [0]}},
        owners(g_0=[1, 2], g_1=[0]),
    ),
    "consumer_weights": (
        {"consumer_weights": {"g-1": 2.0}},
        lambda scene: eventually(
            lambda: (
                {n: len(p) for n, p in scene.group.status().owners.items()} == {"g-0": 1, "g-1": 2}
            )
        ),
    ),
    "tenant": ({"assignor": "tenant", "tenant": "acme"}, Scene.done),
    "grace_ms": ({"grace_ms": 1_000}, None),
    "prepare_ms": ({"prepare_ms": 1_000}, None),
    "respawn": ({"respawn": False}, None),
    "commit_interval_ms": (LATE, uncommitted),
    "commit_records": ({**LATE, "commit_records": 1}, Scene.done),
    "processing": ({"processing": "by_key"}, together),
    "attempts_max": ({**SKIP, "attempts_max": 3, "backoff_ms": 1}, tried(3)),
    "failure_policy": (SKIP, tried(1)),
    "backoff_ms": ({**SKIP, "attempts_max": 2, "backoff_ms": 400}, pauses(400)),
    "backoff_ms_max": ({**SKIP, "attempts_max": 4, "backoff_ms": 1, "backoff_ms_max": 2}, tried(4)),
    "dead_letter_queue": (
        {**SKIP, "failure_policy": "dead_letter", "dead_letter_queue": "letters"},
        letters,
    ),
    "pull_bytes_max": ({"pull_bytes_max": 1}, Scene.done),
    "scaling": ({"scaling": {"consumers_min": 3}}, three),
    "consumers": ({"consumers": 3}, three),
}

# What each live option of a mode is changed to, from that mode as it is by default.
MODES: dict[tuple[type[Options], str], tuple[ProcessingMode, dict[str, Any], Shows | None]] = {
    (Ordered, "commit_mode"): (Ordered(commit_mode="message"), LATE, Scene.done),
    (ByKey, "parallelism"): (ByKey(parallelism=4), {}, together),
    (ByKey, "handler_timeout_ms"): (ByKey(handler_timeout_ms=50), SKIP, too_slow),
    (ByKey, "lookahead_records"): (ByKey(lookahead_records=4), {}, together),
    (ByKey, "lookahead_bytes"): (ByKey(lookahead_bytes=9_000), {}, together),
    (ByKey, "fair_tenants"): (ByKey(fair_tenants=True), {}, Scene.done),
    (ByKey, "tenant_weights"): (ByKey(tenant_weights={"a": 2.0}), {}, Scene.done),
    (ByKey, "tenant_header"): (ByKey(fair_tenants=True, tenant_header="who"), {}, Scene.done),
    (Packs, "submit_strategy"): (Packs(submit_strategy="sequential"), {}, one_by_one),
    (Packs, "processing_strategy"): (Packs(processing_strategy="retry_all"), {}, together),
    (Packs, "parallelism"): (Packs(parallelism=1), {}, one_by_one),
    (Packs, "pack_records"): (Packs(pack_records=2), {}, Scene.done),
    (Packs, "batch_records"): (Packs(submit_strategy="batch", batch_records=4), {}, together),
    (Packs, "timeout_ms"): (Packs(timeout_ms=5_000), {}, Scene.done),
    (Packs, "retries"): (again(retries=1, pause_ms=1), SKIP, tried(2)),
    (Packs, "pause_ms"): (again(retries=1, pause_ms=1_400), SKIP, pauses(1_400)),
    (Packs, "pause_ms_max"): (Packs(pause_ms=1, pause_ms_max=2), {}, Scene.done),
    (Packs, "failure_percentage"): (again(failure_percentage=0.0), SKIP, tried(1)),
    (Packs, "tenant_header"): (
        Packs(submit_strategy="sequential_by_tenant", tenant_header="who"),
        {},
        Scene.done,
    ),
}

# These move partitions, so that consumers hear of it.
MOVING = ("assignor", "static_map", "consumer_weights", "tenant", "scaling", "consumers")

QUEUE: dict[str, Any] = {
    "durability": "always",
    "fsync_interval_ms": 9,
    "message_bytes_max": 1 << 27,
    "partition_bytes_max": 1 << 30,
    "tail_bytes_max": 1 << 20,
    "segment_bytes_max": 1 << 20,
    "retention_ms": LONG_MS,
    "retention_bytes": 1 << 30,
    "retention_passed": True,
    "drop_unread": True,
    "lost_log_policy": "continue",
}

# Kept by the coordinator: what comes of them is for tests of their own.
TOPOLOGY: dict[str, Any] = {
    "replace_host_after_s": 60.0,
    "history_keep": 50,
    "rebalance_interval_ms": 100,
}


def live(kind: type[Any], *but: str) -> set[str]:
    fields = {name: declared(found) for name, found in kind.model_fields.items()}
    return {n for n, who in fields.items() if n not in but and LIVE & set(who)}


def test_each_live_option_of_a_group_is_taken_over_and_replaces_nobody(stage: Stage) -> None:
    assert set(GROUP) == live(GroupConfig), "every option that is declared as live is tried here"
    with scene_on(stage) as scene:
        before = scene.who()
        for name, (options, see) in GROUP.items():
            revoked = len(scene.notebook.notes("revoked"))
            scene.apply(groups={"g": options})
            after = scene.who()
            assert before.items() <= after.items(), f"{name} replaced a consumer"
            if see is not None:
                assert see(scene) is not False, name
            told = consumer_sees(scene)
            wanted = getattr(scene.topology.config.groups["g"], name)
            if {Effect.CONSUMERS, Effect.WORKERS} & set(declared(GroupConfig.model_fields[name])):
                assert all(getattr(config, name) == wanted for config in told), name
            else:
                assert name in MOVING or (len(scene.notebook.notes("revoked")) == revoked), (
                    f"{name} disturbed the work"
                )
            scene.apply()
            scene.done()
        assert before.items() <= scene.who().items()


def test_each_live_option_of_a_mode_is_taken_over_and_so_is_the_mode(stage: Stage) -> None:
    """From that mode as it is by default, and back through all modes, by the same processes."""
    every = {(kind, name) for kind in (Ordered, ByKey, Packs) for name in live(kind, "mode")}
    assert set(MODES) == every, "every option that is declared as live is tried here"
    with scene_on(stage) as scene:
        before = scene.who()
        for (kind, name), (mode, others, see) in MODES.items():
            scene.apply(groups={"g": {"processing": kind()}})
            scene.done()
            wanted = scene.base.changed(groups={"g": {**others, "processing": mode}})
            found = scene.topology.apply(wanted)
            assert f"groups.g.processing.{name}" in [one.option for one in found]
            assert before == scene.who(), f"{kind.__name__}.{name} replaced a consumer"
            if see is not None:
                see(scene)
            assert [config.processing for config in consumer_sees(scene)] == [mode] * 2
        scene.apply()
        scene.done()
        assert before == scene.who()


def test_what_is_put_aside_before_and_after_a_change_is_all_put_aside(stage: Stage) -> None:
    """Under one epoch: workers that are made anew go on numbering where the former ones were."""
    options = {"processing": "by_key", "failure_policy": "quarantine", "attempts_max": 1}
    with scene_on(stage, **options) as scene:
        put_aside = set(scene.done("bad", 30))
        before = scene.who()
        scene.apply(groups={"g": {"processing": {"parallelism": 4}, "attempts_max": 2}})
        for _ in range(2):
            bad = scene.done("bad", 5)
            put_aside |= set(bad)
            assert len(scene.notes("begun", bad)) == 10, "each is tried twice now"
        keys = [one.key.decode() for one in scene.group.quarantine.list() if one.key]
        assert sorted(keys) == sorted(put_aside)
        assert scene.who() == before


def test_a_running_group_gets_a_quarantine(stage: Stage) -> None:
    with scene_on(stage, attempts_max=1) as scene:
        before = scene.who()
        scene.done()
        changed = {"processing": "by_key", "failure_policy": "quarantine"}
        scene.apply(groups={"g": changed})
        bad = scene.done("bad", 5)
        keys = [one.key.decode() for one in scene.group.quarantine.list() if one.key]
        assert sorted(keys) == sorted(bad) and scene.who() == before
        # What is put aside must not be forgotten: another place for it, or none, is refused.
        with pytest.raises(UsageError, match="quarantine_queue"):
            scene.apply()
        scene.done()


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


def test_each_live_option_of_a_queue_is_set_on_logs_that_are_open(stage: Stage) -> None:
    import ray

    from pxrs_ray.actors import names

    assert set(QUEUE) == live(QueueConfig)
    assert set(TOPOLOGY) == live(PxrsConfig, "queues", "groups", *QUEUE, *live(GroupConfig))
    with scene_on(stage) as scene:
        before = scene.who()
        handle = ray.get_actor(names.buffer(scene.topology.name, 0), namespace=names.NAMESPACE)

        def limits() -> tuple[int, str]:
            found: tuple[int, str] = ray.get(handle.__ray_call__.remote(limits_of_logs), timeout=10)
            return found

        pid, at_first = limits()
        for name, value in QUEUE.items():
            scene.apply(queues={"q": {name: value}})
            now = limits()
            assert now[0] == pid and now[1] != at_first, name
            scene.done()
        for name, value in TOPOLOGY.items():
            scene.apply(**{name: value})
            assert getattr(scene.topology.config, name) == value
        assert scene.who() == before


def limits_of_logs(buffer: Any) -> tuple[int, str]:
    import os

    logs = buffer._manager._logs
    return os.getpid(), repr(sorted((at, log.limits) for at, log in logs.items() if at[0] == "q"))


def test_what_needs_new_consumers_is_told_so_and_replaces_each(stage: Stage) -> None:
    with scene_on(stage) as scene:
        before = scene.who()
        wanted = scene.base.changed(groups={"g": {"processing": ONE_AT_A_TIME}})
        (found,) = scene.topology.apply(wanted, dry_run=True)
        assert "(replaces consumers one by one)" in str(found)
        for changed in (wanted, scene.base.changed(groups={"g": {"processing": "by_key"}})):
            # There, and from there to a mode that does not have the option at all.
            scene.topology.apply(changed)
            after = scene.who()
            assert after.keys() == before.keys()
            assert not {pid for pid, *_ in before.values()} & {pid for pid, *_ in after.values()}
            scene.done()
            before = after


def test_options_that_the_handler_cannot_serve_are_refused_and_all_works_on(stage: Stage) -> None:
    with scene_on(stage) as scene:
        scene.group.start(BatchRecorder(stage.notes), consumers=2)
        before = scene.who()
        with pytest.raises(HandlerError, match="takes batches"):
            scene.apply(groups={"g": {"processing": "by_key"}})
        scene.done()
        scene.apply()
        scene.done()
        assert scene.who() == before
