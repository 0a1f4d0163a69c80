"""What `pxrs doctor` finds on real Ray, and its own remedies: each is run as printed, and heals."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.actors.cluster.named_actors import left_over
from pxrs_ray.actors.consumer.consumer_actor import make_consumer
from pxrs_ray.actors.consumer.member_requests import GetGroupSpec
from pxrs_ray.actors.consumer.specs import ConsumerSpec
from pxrs_ray.cli.doctor import findings
from pxrs_ray.cli.root import run
from pxrs_ray.status.problem import Problem, Severity
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = pytest.mark.ray

LEASE_S = 30.0


class Moody:
    """Fails, or hangs, at what its message says, as long as the file is there."""

    def __init__(self, notes: str, flag: str) -> None:
        self.recorder = Recorder(Path(notes))
        self.flag = flag

    def __call__(self, message: Any) -> None:
        if message.payload == b"fail":
            raise ValueError("a poisoned message")
        while message.payload == b"hang" and Path(self.flag).exists():
            time.sleep(0.05)
        self.recorder.handle(message)


def illnesses(topology: Topology) -> list[Problem]:
    """What the doctor says of the topology itself, but for the place where the tests run."""
    found = findings(topology.name)
    return [
        f
        for f in found
        if f.severity is not Severity.OK and not f.where.startswith(("Java", "node"))
    ]


def heal(topology: Topology, words: str, most_s: float = 20.0) -> Problem:
    """Wait until the doctor finds it, run its remedy as it is printed, wait until it is gone."""

    def found() -> Problem | None:
        return next((f for f in illnesses(topology) if words in f.text), None)

    finding: Problem = eventually(found, timeout_s=most_s, what=f"a finding of {words!r}")
    told = re.findall(r"`(pxrs [^`]+)`", finding.remedy)
    command = next(command for command in told if "FILE" not in command)
    asks = ["--yes"] if "seek" in command else []  # nobody can answer here
    assert run([*command.split()[1:], *asks]) == 0, command
    eventually(lambda: found() is None, timeout_s=most_s, what=f"{words!r} is gone")
    return finding


@pytest.fixture
def topology(stage: Stage, request: pytest.FixtureRequest) -> Topology:
    lent = request.node.get_closest_marker("lent") is not None
    options = {} if lent else {"lease_ttl_seconds": LEASE_S}
    made: Topology = stage.deploy(partitions=4, **options)
    return made


def consumer_pids(group: Any) -> dict[str, int]:
    return {c.member: c.pid for c in group.status().consumers}


@pytest.mark.lent
def test_a_message_that_fails_for_good(stage: Stage, topology: Topology) -> None:
    group = topology.group("g", queue="q", failure_policy="stop", attempts_max=1)
    group.start(Moody(str(stage.notes), ""), consumers=1)
    with topology.producer("q") as producer:
        producer.send(b"k", b"fail")
        producer.send(b"k", b"good")
    heal(topology, "halted at offset 0")
    eventually(lambda: group.lag() == 0)


@pytest.mark.lent
def test_messages_and_no_consumer(stage: Stage, topology: Topology) -> None:
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=1)
    group.scale(0)
    send(topology, 10)
    heal(topology, "and no consumer")
    eventually(lambda: group.lag() == 0)


@pytest.mark.lent
def test_a_frozen_consumer_is_told_within_seconds(stage: Stage, topology: Topology) -> None:
    group = topology.group("g", queue="q", lease_ttl_seconds=LEASE_S)
    group.start(Recorder(stage.notes), consumers=2)
    frozen = consumer_pids(group)["g-0"]
    os.kill(frozen, signal.SIGSTOP)
    began_s = time.monotonic()
    try:
        told = eventually(
            lambda: next((c for c in group.status().consumers if c.state == "frozen"), None),
            timeout_s=5,
        )
        assert time.monotonic() - began_s < 4.0
        assert told.member == "g-0" and re.search(r"silent for \d+ s", told.reason)
        assert "g-0" in {p.owner for p in group.status().partitions}, "its lease runs yet"
        heal(topology, "silent for", most_s=LEASE_S / 2)
    finally:
        _end(frozen)
    eventually(lambda: consumer_pids(group)["g-0"] not in (None, frozen))


@pytest.mark.lent
def test_a_handler_that_hangs(
    stage: Stage, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pxrs_ray.status.problems.CALL_LONG_S", 5.0)
    flag = stage.folder / "hangs"
    flag.touch()
    group = topology.group("g", queue="q")
    group.start(Moody(str(stage.notes), str(flag)), consumers=1)
    with topology.producer("q") as producer:
        producer.send(b"k", b"hang")
    finding = eventually(
        lambda: next((f for f in illnesses(topology) if "in the same call" in f.text), None),
        timeout_s=20,
    )
    assert "message 0, attempt 1, by g-0" in finding.text
    flag.unlink()
    # What it hung on is mended; a process that hangs in it is ended all the same.
    heal_command = re.findall(r"`(pxrs [^`]+)`", finding.remedy)[0]
    assert run(heal_command.split()[1:]) == 0
    eventually(lambda: group.lag() == 0, timeout_s=30)
    assert not [f for f in illnesses(topology) if "in the same call" in f.text]


@pytest.mark.lent
def test_an_orphan_goes_and_nobody_else(stage: Stage, topology: Topology) -> None:
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=1)
    # The member lives on in the actor of its first incarnation, under its second.
    pid = consumer_pids(group)["g-0"]
    spec = topology._coordinator.call(GetGroupSpec(group.name))
    orphan = names.consumer(topology.name, group.name, "g-7", 3)
    handle = make_consumer(ConsumerSpec(spec, "g-7", 3, group.handler, orphan))
    ray.get(handle.ready.remote())
    finding = heal(topology, "belongs to no member")
    assert finding.where == f"actor {orphan}"
    assert consumer_pids(group) == {"g-0": pid}
    send(topology, 10)
    eventually(lambda: group.lag() == 0)


def test_a_frozen_buffer_is_named_within_seconds(stage: Stage, topology: Topology) -> None:
    group = topology.group("g", queue="q")
    group.start(Recorder(stage.notes), consumers=1)
    buffer = ray.get_actor(names.buffer(topology.name, 0), namespace=names.NAMESPACE)
    pid = ray.get(buffer.ping.remote()).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        status = topology.status()
        assert time.monotonic() - began_s < 3.5
        (queue,) = status.queues
        assert queue.partitions == 4
        assert f"buffer 0 (pid {pid} on host" in queue.reports[0].text
        assert status.groups[0].unknown and "P0" in status.groups[0].unknown[0].text
        heal(topology, "does not answer", most_s=LEASE_S / 2)
    finally:
        _end(pid)
    send(topology, 10)
    eventually(lambda: group.lag() == 0, timeout_s=30)


def test_a_frozen_coordinator_is_named_and_started_anew_by_hand(
    stage: Stage, topology: Topology
) -> None:
    pid = topology.status().coordinator_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        found = illnesses(topology)
        assert time.monotonic() - began_s < 3.0
        assert f"pid {pid} on node" in found[0].text
        heal(topology, "has not answered")
    finally:
        _end(pid)
    assert topology.status().coordinator_pid != pid


def test_what_is_left_of_a_topology(stage: Stage, topology: Topology) -> None:
    coordinator = ray.get_actor(names.coordinator(topology.name), namespace=names.NAMESPACE)
    ray.kill(coordinator)
    eventually(lambda: topology.name in left_over())
    (finding,) = [f for f in illnesses(topology) if "actors are left" in f.text]
    (command, *_) = re.findall(r"`(pxrs [^`]+)`", finding.remedy)
    assert run(command.split()[1:]) == 0
    assert topology.name not in left_over()


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
