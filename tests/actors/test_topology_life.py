"""Deploying, attaching and shutting down; and what each mistake is answered with."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.config import GroupConfig, QueueConfig
from pxrs_ray.errors import (
    AlreadyExists,
    ConfigError,
    HandlerError,
    NotFound,
    StoreCorrupted,
    UsageError,
)
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = pytest.mark.ray


def test_deploy_attach_and_shutdown_leave_no_actor(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import attach
    from pxrs_ray.actors.cluster.named_actors import actors_of, running_topologies

    topology = stage.deploy()
    other = attach(topology.name)
    assert other.config == topology.config
    assert topology.name in running_topologies()
    group = other.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=2)
    send(pickle.loads(pickle.dumps(topology)), 20)
    eventually(lambda: len(stage.notebook.notes()) == 20)
    topology.shutdown()
    assert actors_of(topology.name) == []
    assert topology.name not in running_topologies()
    with pytest.raises(NotFound, match="deploy"):
        attach(topology.name)


def test_deploying_again_goes_on_where_it_was(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy

    topology = stage.deploy(partitions=4)
    topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    send(topology, 10)
    eventually(lambda: topology.group("g").lag() == 0)
    topology.shutdown()
    again = deploy(topology_config := stage.config(partitions=4, name=topology.name))
    assert again.config.queues == topology_config.queues
    send(again, 10, first=10)
    # The group is known from the registry; its consumers were ended by the shutdown.
    assert again.group("g").lag() == 10
    again.group("g").start(Recorder(stage.notes), consumers=1)
    eventually(lambda: again.group("g").lag() == 0)
    assert sorted(stage.notebook.payloads()) == sorted(f"m{n}" for n in range(20))


def test_a_declared_handler_is_started_by_deploy_as_by_up(
    stage: Stage,
) -> None:
    from pxrs_ray.actors.client.topology import deploy

    options = {"runtime_env": {"env_vars": {"NOTES": str(stage.notes)}}}
    group = GroupConfig(
        queue="q", handler="tests.actors.handlers:record", consumers=2, ray_options=options
    )
    topology = stage.deploy(partitions=4, groups={"g": group})
    send(topology, 20)
    eventually(lambda: len(stage.notebook.notes()) == 20)
    topology.group("g").scale(3)
    deploy(stage.config(partitions=4, groups={"g": group}, name=topology.name))
    assert topology.group("g").status().wanted == 3, "what runs is left as it is"


def test_another_configuration_is_told_apart_and_live_changes_apply(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy

    topology = stage.deploy(partitions=4)
    pid = topology.status().coordinator_pid
    same = stage.config(partitions=4, name=topology.name)
    assert deploy(same).status().coordinator_pid == pid
    with pytest.raises(UsageError, match=r"queues.q.partitions: 4 -> 8") as told:
        deploy(stage.config(partitions=8, name=topology.name))
    assert "another name" in str(told.value)
    assert topology.config == same
    live = stage.config(
        partitions=4,
        name=topology.name,
        linger_ms=7,
        queues={"q": QueueConfig(partitions=4), "more": QueueConfig(partitions=2)},
    )
    assert {str(d.option) for d in topology.apply(live, dry_run=True)} == {
        "linger_ms",
        "queues.more",
    }
    assert topology.config.linger_ms == 1
    deploy(live)
    assert topology.config.linger_ms == 7
    send(topology, 4, queue="more")
    assert {q.queue: q.messages for q in topology.status().queues} == {"q": 0, "more": 4}


def test_two_deploys_at_once_make_one_topology(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy

    config = stage.config(partitions=2)
    found: list[Any] = []

    def run() -> None:
        found.append(deploy(config).status().coordinator_pid)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    stage.forget_later(config.name)
    assert len(found) == 3 and len(set(found)) == 1


def test_without_ray_it_is_said_how_to_start_it(tmp_path: Path) -> None:
    program = (
        "from pxrs_ray.errors import UsageError\n"
        "from pxrs_ray import PxrsConfig, QueueConfig, deploy, attach\n"
        "import ray; ray.init = lambda **_: (_ for _ in ()).throw(ConnectionError('none'))\n"
        "for call in (lambda: attach('x'), lambda: deploy(PxrsConfig(name='x'))):\n"
        "    try: call()\n"
        "    except UsageError as error: print(error)\n"
    )
    nowhere = {"RAY_ADDRESS": "", "RAY_TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, **nowhere},
    )
    assert ran.stdout.count("ray start --head") == 2 and ran.stdout.count("ray.init()") == 2


def test_bad_input_says_what_to_do(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    with pytest.raises(NotFound, match="'q'"):
        topology.producer("qq")
    with pytest.raises(NotFound, match="'q'"):
        topology.group("g", queue="qq")
    with pytest.raises(NotFound, match="g"):
        topology.group("nobody")
    group = topology.group("g", queue="q")
    with pytest.raises(AlreadyExists, match="another name"):
        topology.apply(
            stage.config(
                partitions=4,
                name=topology.name,
                queues={"q": QueueConfig(partitions=4), "r": QueueConfig(partitions=4)},
                groups={"g": GroupConfig(queue="q")},
            )
        )
        topology.group("g", queue="r")
    with pytest.raises(UsageError, match=r"group.start\(handler\) comes first"):
        group.scale(2)
    lock = threading.Lock()
    with pytest.raises(HandlerError, match="import path"):
        group.start(lambda message: lock.acquire())
    with pytest.raises(HandlerError, match="callable or an import path"):
        group.start(17)
    with pytest.raises(HandlerError, match="needs a method handle"):
        group.start(int)
    with pytest.raises(HandlerError, match=r"no_such_package.*working_dir"):
        group.start("no_such_package.handlers:handle")
    with pytest.raises(HandlerError, match="module:name"):
        group.start("os.path.join")
    with pytest.raises(UsageError, match="0 to 10000 consumers, not -1"):
        group.start(Recorder(stage.notes), consumers=-1)
    group.start(Recorder(stage.notes), consumers=1)
    with pytest.raises(UsageError, match="not -3"):
        group.scale(-3)
    send(topology, 8, keys=1)
    with pytest.raises(UsageError, match=r"log holds\s+0 to \d+; 'start' and 'end'"):
        group.seek(1_000)
    with pytest.raises(NotFound, match="partitions 0 to 3, not 4"):
        group.seek("start", 4)
    with pytest.raises(UsageError, match="datetime"):
        group.seek("yesterday")
    with pytest.raises(UsageError, match="time zone"):
        group.seek(datetime(2026, 1, 1))  # noqa: DTZ001
    assert set(group.seek(datetime(2020, 1, 1, tzinfo=UTC)).values()) == {0}
    with pytest.raises(NotFound, match="there are"):
        group.remove_consumer("nobody")
    with pytest.raises(AlreadyExists, match="another name"):
        group.add_consumer("g-0")
    with pytest.raises(AlreadyExists, match="choose another"):
        group.consumer("g-0")


def test_a_topology_that_cannot_start_says_why_and_leaves_nothing(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy
    from pxrs_ray.actors.cluster.named_actors import actors_of

    config = stage.config(store="sqlite:////proc/no/such/place.db")
    with pytest.raises(ConfigError, match="there is no folder"):
        deploy(config)
    assert actors_of(config.name) == []


def test_a_registry_in_memory_may_be_another_each_time(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy

    topology = stage.deploy(partitions=2, store="memory:")
    topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    send(topology, 10)
    eventually(lambda: topology.group("g").lag() == 0)
    topology.shutdown()
    # The logs are on disk still: a group of a new registry reads them from the first message.
    again = deploy(stage.config(partitions=2, store="memory:", name=topology.name))
    again.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    eventually(lambda: len(stage.notebook.notes()) == 20)


def test_a_registry_that_was_lost_is_refused_loudly(stage: Stage) -> None:
    from pxrs_ray.actors.client.topology import deploy, recover_registry

    topology = stage.deploy(partitions=2)
    topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    send(topology, 10)
    eventually(lambda: topology.group("g").lag() == 0)
    topology.shutdown()
    registry = stage.config(partitions=2, name=topology.name)
    for file in registry.topology_dir.glob("registry.db*"):
        file.unlink()
    with pytest.raises(StoreCorrupted, match="pxrs recover registry FILE --accept-loss"):
        deploy(registry)
    # What the message says can be done.
    recover_registry(registry, accept_loss=True)
    deploy(registry).group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    eventually(lambda: len(stage.notebook.notes()) == 20)
