"""The doctor's judgement: each thing that is wrong is found, named, and comes with a remedy."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from pxrs_ray.actors.coordinator import orphans
from pxrs_ray.actors.coordinator.consumer_replica import ConsumerReplica
from pxrs_ray.actors.coordinator.consumer_supervisor import ConsumerSupervisor
from pxrs_ray.cli.root import root
from pxrs_ray.status.answers import GroupStatus, QueueStatus, StoreStatus, TopologyStatus
from pxrs_ray.status.diagnosis import DAY_MS, Level, check_topology, check_unused
from pxrs_ray.status.places import DEPOSED, Step
from pxrs_ray.status.standstill import LOG_REFUSES, Stands
from tests.cli.pictures import buffer_place, group_status, topology_status

STORE = topology_status().store


def first_partition(group: GroupStatus, **changes: object) -> GroupStatus:
    first = replace(group.partitions[0], **changes)  # type: ignore[arg-type]
    return replace(group, partitions=(first, *group.partitions[1:]))


def first_consumer(group: GroupStatus, **changes: object) -> GroupStatus:
    first = replace(group.consumers[0], **changes)  # type: ignore[arg-type]
    return replace(group, consumers=(first, *group.consumers[1:]))


def test_a_sound_topology_is_told_so() -> None:
    (found,) = check_topology(topology_status(group_status()))
    assert found.level is Level.OK and "1 queues, 1 groups" in found.text


ILLNESSES: list[tuple[TopologyStatus, Level, str]] = [
    (topology_status(store=replace(STORE, problem="refused")), Level.PROBLEM, "refused"),
    (topology_status(store=replace(STORE, mean_ms=400.0)), Level.WARNING, "400 ms"),
    (
        topology_status(store=StoreStatus("memory", "memory:", False, 1, 1, 0.1)),
        Level.WARNING,
        "does not outlive",
    ),
    (topology_status(store=replace(STORE, warnings=("lru",))), Level.WARNING, "lru"),
    (topology_status(problems=("buffer 1 is away",)), Level.PROBLEM, "buffer 1"),
    (
        topology_status(queues=(QueueStatus("q", 1, 0, 0, ("P0 lost",)),)),
        Level.PROBLEM,
        "P0 lost",
    ),
    (
        topology_status(queues=(QueueStatus("q", 1, 0, 0, ("P0 lost offsets 3 to 4: x",)),)),
        Level.WARNING,
        "P0 lost offsets",
    ),
    (topology_status(group_status(problem="odd")), Level.PROBLEM, "halted: odd"),
    (
        topology_status(first_partition(group_status(), problem="ValueError()")),
        Level.PROBLEM,
        "stands still at offset 100: ValueError()",
    ),
    (
        topology_status(first_consumer(group_status(), state="pending", reason="no GPU")),
        Level.WARNING,
        "no GPU",
    ),
    (
        topology_status(first_consumer(group_status(), state="silent", reason="frozen")),
        Level.PROBLEM,
        "is silent: frozen",
    ),
    (
        topology_status(group_status(consumers=0, lag=3)),
        Level.WARNING,
        "lag of 360 and no consumer",
    ),
    (
        topology_status(first_partition(group_status(), owner=None)),
        Level.WARNING,
        "P0 without an owner, 3 consumers work",
    ),
    (topology_status(group_status(lag=10_000)), Level.WARNING, "minutes behind"),
    (
        topology_status(first_partition(group_status(), end_offset=100_000)),
        Level.WARNING,
        "times its share of all messages",
    ),
    (
        topology_status(store=replace(STORE, away_s=117.0, problem="no answer")),
        Level.PROBLEM,
        "registry away for 117 s",
    ),
    (
        topology_status(first_partition(group_status(), call_s=42.0, call_offset=100)),
        Level.WARNING,
        "in the same call since 42 s: message 100, attempt 1",
    ),
    (
        topology_status(problems=("buffer 1 (pid 7 on node ab) does not answer: 2 s",)),
        Level.PROBLEM,
        "pid 7 on node ab",
    ),
    (
        topology_status(first_consumer(group_status(), state="failed", reason="ImportError")),
        Level.PROBLEM,
        "is failed: ImportError",
    ),
    (
        topology_status(
            places=(buffer_place(0), buffer_place(1, host="10.0.0.1")),
            uneven=(Step(1, "10.0.0.1", "10.0.0.2"),),
        ),
        Level.WARNING,
        "host 10.0.0.1 has 2, host 10.0.0.2 has none",
    ),
    (
        topology_status(
            places=(buffer_place(0, state=DEPOSED, told="serves coordinator 7 of this topology"),)
        ),
        Level.PROBLEM,
        "serves coordinator 7",
    ),
    (
        topology_status(first_partition(group_status(), stands=Stands(75.0, 30), lag=40)),
        Level.PROBLEM,
        "has stood at offset 100 for 75 s, and its lag has grown by 30 to 40, though billing-0",
    ),
    (
        topology_status(first_partition(group_status(), fenced_by=7)),
        Level.PROBLEM,
        "billing-0 owns it under epoch 1, and the log knows epoch 7",
    ),
    (
        topology_status(first_partition(group_status(), problem=f"{LOG_REFUSES}: it has seen 7")),
        Level.PROBLEM,
        "its log refuses its owner",
    ),
    (
        topology_status(problems=("buffer 1 waits for host 10.0.0.7, away for 40 s",)),
        Level.PROBLEM,
        "away for 40 s",
    ),
    (
        topology_status(problems=("buffer 1 moves from host 10.0.0.7 to 10.0.0.8",)),
        Level.WARNING,
        "moves from host",
    ),
    (
        topology_status(
            problems=("buffer 1 cannot leave host 10.0.0.7, which is drained: no room",)
        ),
        Level.PROBLEM,
        "which is drained",
    ),
]


def test_a_partition_that_gets_nowhere_is_told_once_and_by_its_cause() -> None:
    def found(**changes: object) -> list[str]:
        status = topology_status(first_partition(group_status(), **{"lag": 40, **changes}))
        return [each.text for each in check_topology(status) if each.level is not Level.OK]

    stands = Stands(75.0, 30)
    (fenced,) = found(stands=stands, fenced_by=7)
    assert "fenced at its log" in fenced
    (failing,) = found(stands=stands, problem="ValueError()")
    assert "ValueError()" in failing
    # A message that is worked at for minutes is told as that.
    (call,) = found(stands=stands, call_s=80.0, call_offset=100)
    assert "in the same call" in call
    (unowned,) = found(stands=stands, fenced_by=7, owner=None)
    assert "without an owner" in unowned
    # A log's refusal is no failure of a handler, and is not passed by a seek.
    refused = topology_status(first_partition(group_status(), problem=f"{LOG_REFUSES}: x"))
    (finding,) = check_topology(refused)
    assert "seek" not in finding.remedy and "pxrs recover registry" in finding.remedy


def test_each_state_of_a_home_comes_with_its_own_remedy() -> None:
    def remedy(problem: str) -> str:
        (found,) = check_topology(topology_status(problems=(problem,)))
        return found.remedy

    waits = remedy("buffer 1 waits for host 10.0.0.7, away for 40 s")
    assert "bring that host back" in waits and "`pxrs accept-loss --buffer 1 -t shop`" in waits
    assert "restart" not in waits
    assert "nothing" in remedy("buffer 1 moves from host 10.0.0.7 to 10.0.0.8")
    leaves = remedy("buffer 1 cannot leave host 10.0.0.7, which is drained: no room. Its logs ...")
    assert "add a node" in leaves and "`pxrs move 1 -t shop`" in leaves


def test_the_moves_that_spread_buffers_are_told_as_commands() -> None:
    steps = (Step(2, "10.0.0.1", "10.0.0.2"), Step(1, "10.0.0.1", "10.0.0.3"))
    places = tuple(buffer_place(n, host="10.0.0.1") for n in range(3))
    (found,) = check_topology(topology_status(places=places, uneven=steps))
    assert "`pxrs move 2 10.0.0.2 -t shop`, `pxrs move 1 10.0.0.3 -t shop`" in found.remedy


@pytest.mark.parametrize(("status", "level", "words"), ILLNESSES)
def test_each_illness_is_found(status: TopologyStatus, level: Level, words: str) -> None:
    (found,) = check_topology(status)
    assert found.level is level and words in found.text and found.remedy


def test_a_group_that_nobody_uses_is_named_with_the_command_that_removes_it() -> None:
    group = replace(first_partition(group_status(), lag=5), unused_since_ms=1)
    (found,) = check_unused(group, 4 * DAY_MS)
    assert "4 days" in found.text and found.remedy.endswith(f"`pxrs group delete {group.group}`")
    assert not list(check_unused(group, DAY_MS))
    assert not list(check_unused(replace(group, unused_since_ms=0), 4 * DAY_MS))


@pytest.mark.parametrize(("status", "level", "words"), ILLNESSES)
def test_every_command_of_a_remedy_is_one_that_there_is(
    status: TopologyStatus, level: Level, words: str
) -> None:
    program: Any = typer.main.get_command(root)
    for found in check_topology(status):
        for command in re.findall(r"`([^`]+)`", found.remedy):
            if not command.startswith("pxrs "):
                assert command.startswith("ray ") or command == 'processing = "by_key"'
                continue
            # Parsed to its end, with a file in its place; nothing is run.
            _, name, *arguments = shlex.split(command)
            one = program.get_command(None, name)
            while hasattr(one, "get_command"):
                one = one.get_command(None, arguments.pop(0))
            assert one is not None, command
            one.make_context(name, ["shop.toml" if word == "FILE" else word for word in arguments])


def test_no_remedy_is_python_and_none_harms_who_only_starts() -> None:
    starting = first_consumer(
        group_status(consumers=1, lag=3), state="starting", reason="replaces one that died"
    )
    starting = replace(
        starting, partitions=tuple(replace(p, owner=None) for p in starting.partitions)
    )
    (found,) = check_topology(topology_status(starting))
    assert "consumers start" in found.text and "scale" not in found.remedy
    for status, *_ in ILLNESSES:
        for found in check_topology(status):
            assert "ray.kill" not in found.remedy and "get_actor" not in found.remedy


def test_orphans_are_actors_that_belong_to_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = "pxrs/shop/consumer/billing/billing-{}"
    there = {actor.format(name) for name in ("0/1", "0/9", "1/2", "2/4")}
    monkeypatch.setattr(orphans, "consumers_there", lambda topology: there)
    crew: Any = ConsumerSupervisor(*(cast(Any, None),) * 3, {}, lambda: None)
    # billing-0 joined again in the same process; billing-1 is just starting; billing-2 hands over.
    crew.replicas = {
        "billing-0": ConsumerReplica("billing-0", 9, actor.format("0/1"), "running"),
        "billing-1": ConsumerReplica("billing-1", 2, actor.format("1/2"), "starting"),
    }
    crew._leaving = [ConsumerReplica("billing-2", 4, actor.format("2/4"), "leaving")]
    controller: Any = SimpleNamespace(replica_set=crew)
    found = asyncio.run(orphans.orphans_of("shop", [controller]))
    assert found == [actor.format("0/9")]
