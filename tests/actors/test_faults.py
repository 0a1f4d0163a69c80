"""Kills, freezes and outages under load: nothing is lost, and nothing moves that need not."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import Any

import psutil
import pytest

from pxrs_ray.config import QueueConfig
from tests.actors.conftest import Stage, send
from tests.actors.load import Load
from tests.actors.recording import Note, Recorder, eventually
from tests.servers import PostgresServer, RedisServer

pytestmark = pytest.mark.ray


def nothing_lost(stage: Stage, group: Any, count: int) -> list[Note]:
    """Wait until everything is passed; see that all was processed, in order under each epoch."""
    eventually(lambda: group.lag() == 0, timeout_s=60, what=f"lag of {group.status()!r}")
    notes = stage.notebook.notes()
    assert {note.payload for note in notes} == {f"m{n}" for n in range(count)}
    reigns: dict[tuple[int, int], list[int]] = {}
    for note in notes:
        reigns.setdefault((note.partition, note.epoch), []).append(note.offset)
    for offsets in reigns.values():
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    return notes


def pids(group: Any) -> dict[str, int]:
    return {c.member: c.pid for c in group.status().consumers}


@pytest.mark.lent
def test_a_killed_consumer_is_replaced_and_the_others_never_pause(stage: Stage) -> None:
    topology = stage.deploy(partitions=8)
    group = topology.group("g", queue="q", commit_interval_ms=50)
    group.start(Recorder(stage.notes), consumers=3)
    with Load(topology) as load:
        eventually(lambda: len(stage.notebook.notes()) > 200)
        before = {p.partition: p for p in group.status().partitions}
        victim = before[0].owner
        at_s = time.time()
        os.kill(pids(group)[victim], signal.SIGKILL)
        taken = eventually(
            lambda: [
                note
                for note in stage.notebook.notes()
                if note.at_s > at_s and note.partition == 0 and note.epoch > before[0].epoch
            ]
        )
        # It takes 25 ms; a noisy machine may take longer, a lease of ten seconds is not waited for.
        assert taken[0].at_s - at_s < 5.0
        eventually(lambda: group.status().owners.get(victim))
        time.sleep(0.3)
    notes = nothing_lost(stage, group, load.sent)
    assert {c.member for c in group.status().consumers} == {"g-0", "g-1", "g-2"}
    died = [c for c in group.history() if c.kind == "release" and "died" in c.cause]
    assert {c.partition for c in died} == {0, 1, 2}
    again = Counter(note.payload for note in notes)
    repeated = {note.partition for note in notes if again[note.payload] > 1}
    assert repeated <= {0, 1, 2}, "only what the dead one had not committed is done again"
    for partition in (3, 4, 5, 6, 7):
        times = [note.at_s for note in notes if note.partition == partition]
        assert max(b - a for a, b in pairwise(times)) < 5.0


@pytest.mark.lent
def test_a_frozen_consumer_is_fenced_at_its_lease_and_comes_back_as_another(
    stage: Stage,
) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q", lease_ttl_seconds=2.0, commit_interval_ms=50)
    group.start(Recorder(stage.notes, work_s=0.001), consumers=2)
    with Load(topology) as load:
        eventually(lambda: len(stage.notebook.notes()) > 100)
        frozen = pids(group)["g-0"]
        mine = group.status().owners["g-0"]
        os.kill(frozen, signal.SIGSTOP)
        frozen_s = time.time()
        try:
            eventually(lambda: [c for c in group.history() if "lease over" in c.cause])
            fenced_s = time.time()
            assert fenced_s - frozen_s < 2.0 + 5.0
            silent = {c.member: c for c in group.status().consumers}["g-0"]
            assert silent.state == "frozen" and "lease" in silent.reason
        finally:
            os.kill(frozen, signal.SIGCONT)
        thawed_s = time.time()
        back = eventually(
            lambda: next(
                (
                    c
                    for c in group.status().consumers
                    if c.member == "g-0" and c.incarnation == 2 and c.partitions
                ),
                None,
            )
        )
        assert back.pid == frozen, "the same process, under a new incarnation"
        eventually(lambda: [n for n in stage.notebook.notes() if n.incarnation == 2])
    notes = nothing_lost(stage, group, load.sent)
    stale = [n for n in notes if n.member == "g-0" and n.incarnation == 1 and n.at_s > thawed_s]
    # One message a partition may have been in the handler's hands when it froze.
    assert len(stale) <= len(mine) and len({n.partition for n in stale}) == len(stale)
    after = [c for c in group.history() if (c.owner, c.incarnation) == ("g-0", 1)]
    assert all("lease over" in c.cause for c in after if c.kind == "release")
    assert all(c.at_ms <= fenced_s * 1_000 + 100 for c in after)


@pytest.mark.lent
def test_one_that_stays_frozen_is_replaced(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q", lease_ttl_seconds=1.0)
    group.start(Recorder(stage.notes), consumers=1)
    frozen = pids(group)["g-0"]
    os.kill(frozen, signal.SIGSTOP)
    try:
        eventually(lambda: pids(group)["g-0"] not in (frozen, None), timeout_s=20)
        send(topology, 10)
        nothing_lost(stage, group, 10)
    finally:
        with suppress(ProcessLookupError):
            os.kill(frozen, signal.SIGCONT)
    eventually(lambda: not psutil.pid_exists(frozen), what="the frozen process is ended")


@pytest.mark.lent
def test_one_that_is_told_to_end_hands_over_first(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    # Nothing is committed but by a hand-over: a death would repeat everything.
    group = topology.group("g", queue="q", commit_interval_ms=600_000)
    group.start(Recorder(stage.notes), consumers=2)
    with Load(topology) as load:
        eventually(lambda: len(stage.notebook.notes()) > 100)
        told = pids(group)["g-0"]
        os.kill(told, signal.SIGTERM)
        eventually(lambda: pids(group)["g-0"] not in (told, None))
        eventually(lambda: not psutil.pid_exists(told))
        eventually(lambda: group.status().owners.get("g-0"))
    # Commits are made by the stop alone: what is not handled by then stays in the log.
    eventually(lambda: len(stage.notebook.notes()) >= load.sent)
    group.stop()
    notes = nothing_lost(stage, group, load.sent)
    assert len(notes) == load.sent, "nothing was done twice"
    assert not any("died" in c.cause for c in group.history() if c.kind == "release")


@pytest.mark.lent
def test_one_that_dies_while_it_starts_is_started_again(stage: Stage) -> None:
    notes, marks = stage.notes, stage.folder

    class DiesAtFirst(Recorder):
        def __init__(self) -> None:
            super().__init__(notes)
            for mark, fault in (("died", lambda: os._exit(1)), ("raised", lambda: 1 / 0)):
                # The process ends in its first start; the start after the kill below raises.
                if not (marks / mark).exists() and (mark == "died" or (marks / "kill").exists()):
                    (marks / mark).touch()
                    fault()

    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q")
    group.start(DiesAtFirst, consumers=1)
    first = eventually(lambda: pids(group)["g-0"])
    (marks / "kill").touch()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: pids(group)["g-0"] not in (first, None))
    assert (marks / "died").exists() and (marks / "raised").exists()
    send(topology, 10)
    nothing_lost(stage, group, 10)


@pytest.mark.lent
def test_a_consumer_that_returns_within_its_grace_keeps_its_partitions(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q", grace_ms=20_000)
    group.start(Recorder(stage.notes), consumers=2)
    send(topology, 20)
    before = group.status().owners
    # A consumer that is slow to answer has no number in the status.
    os.kill(eventually(lambda: pids(group)["g-0"]), signal.SIGKILL)
    eventually(lambda: group.status().owners.keys() == {"g-1"})
    assert group.status().owners["g-1"] == before["g-1"], "nothing is handed on"
    eventually(lambda: group.status().owners == before)
    send(topology, 20, first=20)
    nothing_lost(stage, group, 40)
    claims = [c.owner for c in group.history() if c.kind == "claim"]
    assert claims == ["g-0", "g-0", "g-1", "g-1", "g-0", "g-0"]


def test_coordinator_and_buffer_kills_move_nothing(stage: Stage) -> None:
    import ray

    from pxrs_ray.actors import names

    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q", lease_ttl_seconds=5.0)
    group.start(Recorder(stage.notes), consumers=2)
    owners = [(p.owner, p.epoch) for p in group.status().partitions]
    buffer = ray.get_actor(names.buffer(topology.name, 0), namespace=names.NAMESPACE)
    with Load(topology) as load:
        for _ in range(2):
            eventually(lambda: len(stage.notebook.notes()) > 50)
            pid = topology.status().coordinator_pid
            done = len(stage.notebook.notes())
            os.kill(pid, signal.SIGKILL)
            # Work goes on while it is away; commits wait.
            eventually(lambda: len(stage.notebook.notes()) > done + 50)  # noqa: B023
            eventually(lambda: topology.status().coordinator_pid != pid)  # noqa: B023
        pid = ray.get(buffer.ping.remote()).pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: ray.get(buffer.ping.remote()).pid != pid)
        done = len(stage.notebook.notes())
        eventually(lambda: len(stage.notebook.notes()) > done + 50)
    notes = nothing_lost(stage, group, load.sent)
    assert len(notes) == load.sent, "and nothing was done twice"
    assert [(p.owner, p.epoch) for p in group.status().partitions] == owners
    assert [c.kind for c in group.history()].count("led") == 3


def test_a_store_outage_in_mid_commit(stage: Stage, postgres_server: PostgresServer) -> None:
    topology = stage.deploy(
        partitions=4, store=postgres_server.url, key_prefix=f"/{stage.folder.name}/"
    )
    group = topology.group("g", queue="q", commit_interval_ms=20)
    group.start(Recorder(stage.notes), consumers=2)
    try:
        with Load(topology) as load:
            eventually(lambda: len(stage.notebook.notes()) > 100)
            postgres_server.kill()
            done = len(stage.notebook.notes())
            eventually(lambda: len(stage.notebook.notes()) > done + 200)
            eventually(lambda: topology.status().store.down_since_s is not None)
            eventually(lambda: "connection" in topology.status().store.problem.lower())
            postgres_server.restart()
            eventually(lambda: topology.status().store.down_since_s is None, timeout_s=60)
        notes = nothing_lost(stage, group, load.sent)
        assert len(notes) == load.sent, "a death of the store alone repeats nothing"
        assert {p.epoch for p in group.status().partitions} == {1}
    finally:
        postgres_server.heal()


def test_a_registry_that_forgets_while_running_halts_the_group(
    stage: Stage, redis_server: RedisServer
) -> None:
    import redis

    topology = stage.deploy(
        partitions=2, store=redis_server.url, key_prefix=f"/{stage.folder.name}/"
    )
    group = topology.group("g", queue="q", commit_interval_ms=20)
    group.start(Recorder(stage.notes), consumers=1)
    send(topology, 10)
    nothing_lost(stage, group, 10)
    with redis.Redis(port=redis_server.port) as client:
        client.flushall()
    send(topology, 10, first=10)
    status = eventually(lambda: (found := group.status()).problem and found)
    assert "lost" in status.problem and "PROBLEM" in repr(status)


def test_several_queues_and_the_memory_store(stage: Stage) -> None:
    topology = stage.deploy(
        store="memory:", queues={"q": QueueConfig(partitions=2), "r": QueueConfig(partitions=3)}
    )
    group = topology.group("g", queue="r")
    group.start(Recorder(stage.notes))
    send(topology, 20, queue="r")
    nothing_lost(stage, group, 20)
    os.kill(topology.status().coordinator_pid, signal.SIGKILL)
    send(topology, 20, first=20, queue="r")
    nothing_lost(stage, group, 40)
    assert not topology.status().store.durable
