"""Each option that is declared as live is changed on a group that runs, and nobody is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.config.declare import Effect
from pxrs_ray.config.diff import declared
from pxrs_ray.errors import DeadlineExceeded, HandlerError
from tests.actors.conftest import Stage
from tests.actors.live_scene import (
    LATE,
    LONG_MS,
    SKIP,
    Scene,
    Shows,
    consumer_sees,
    lease,
    letters,
    live,
    owners,
    pauses,
    scene_on,
    slowly,
    three,
    together,
    tried,
    uncommitted,
)
from tests.actors.recording import BatchRecorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

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
    "calls_per_minute": ({"calls_per_minute": 60}, slowly),
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

# These are of use together with one that is not live.
COSTLY = {"cost": "tests.actors.live_scene:cost_of", "cost_per_minute": 600_000.0}
LIMITS: dict[str, tuple[dict[str, Any], Shows]] = {
    "cost_per_minute": ({**COSTLY, "cost_per_minute": 60.0}, slowly),
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

# What comes of them is for tests of their own.
TOPOLOGY: dict[str, Any] = {
    "replace_host_after_s": 60.0,
    "history_keep": 50,
    "rebalance_interval_ms": 100,
    "link_ports": "off",
}


def test_each_live_option_of_a_group_is_taken_over_and_replaces_nobody(stage: Stage) -> None:
    tried_here = {*GROUP, *LIMITS}
    assert tried_here == live(GroupConfig), "every option that is declared as live is tried here"
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


def test_each_limit_of_calls_is_taken_over_and_replaces_nobody(stage: Stage) -> None:
    with scene_on(stage, **COSTLY) as scene:
        before = scene.who()
        for options, see in LIMITS.values():
            scene.apply(groups={"g": options})
            see(scene)
            scene.apply()
            scene.done()
        assert scene.who() == before


def test_each_live_option_of_a_queue_is_set_on_logs_that_are_open(stage: Stage) -> None:
    import ray

    from pxrs_ray.actors import names

    assert {*QUEUE, "replies"} == live(QueueConfig)
    # How many replicas there are is changed where there are several: test_replica_places.
    tried_here = {*TOPOLOGY, "replicas", "min_isr", "spread_by", "catch_up_bytes_per_s"}
    assert tried_here == live(PxrsConfig, "queues", "groups", *QUEUE, *live(GroupConfig))
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
        # Last, for it makes a queue beside this one, which nobody takes away again.
        scene.apply(queues={"q": {"replies": True}})
        with pytest.raises(DeadlineExceeded):
            scene.topology.replies("q").ask("k", "nobody replies", timeout_s=0.5)
        scene.done()
        assert scene.who() == before


def limits_of_logs(buffer: Any) -> tuple[int, str]:
    import os

    logs = buffer._manager._logs
    return os.getpid(), repr(sorted((at, log.limits) for at, log in logs.items() if at[0] == "q"))


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
