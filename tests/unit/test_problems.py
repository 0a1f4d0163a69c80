"""The one list of problems: each kind is found, named, comes with a remedy, and is shown by all."""

from __future__ import annotations

import asyncio
import html
import io
import re
import shlex
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from rich.console import Console

from pxrs_ray.actors.coordinator import metrics, orphans
from pxrs_ray.actors.coordinator.consumer_replica import ConsumerReplica
from pxrs_ray.actors.coordinator.consumer_supervisor import ConsumerSupervisor
from pxrs_ray.actors.coordinator.metrics import Sources, TopologyMetrics
from pxrs_ray.cli import doctor
from pxrs_ray.cli.root import root
from pxrs_ray.dashboard.page_state import PageState, Story
from pxrs_ray.status.answers import (
    TopologyStatus,
)
from pxrs_ray.status.places import SpreadStep
from pxrs_ray.status.problem import DOCTORS, OF_A_STATUS, Kind, Problem, Report, Severity
from pxrs_ray.status.problems import DAY_MS, group_problems, problems
from pxrs_ray.status.stalls import Stall
from tests.cli.pictures import buffer_place, group_status, topology_status
from tests.unit.ill_topologies import (
    ILL,
    first_partition,
)

EACH = [(kind, *ill) for kind, ill in ILL.items()]


def test_nothing_is_wrong_with_a_sound_topology() -> None:
    sound = topology_status(group_status())
    assert problems(sound) == [] and group_problems(group_status()) == []
    assert "PROBLEM" not in repr(sound) and "what helps" not in repr(sound)


def test_there_is_a_status_for_each_kind() -> None:
    assert ILL.keys() == set(OF_A_STATUS)
    assert all(kind.severity is not Severity.OK for kind in OF_A_STATUS)


@pytest.mark.parametrize(("kind", "status", "words"), EACH)
def test_each_kind_is_found(kind: Kind, status: TopologyStatus, words: str) -> None:
    (found,) = problems(status)
    assert found.kind is kind and words in found.text and found.remedy


def test_no_word_is_said_twice_of_a_registry_that_is_away() -> None:
    (found,) = problems(ILL[Kind.REGISTRY_AWAY][0])
    assert str(found) == "registry of shop: away for 117 s (no answer)"


# --- all show the same list -----------------------------------------------------------------------


def terminal(status: TopologyStatus) -> str:
    """What `pxrs status` prints."""
    out = io.StringIO()
    Console(file=out, width=1_000).print(status.view())
    return out.getvalue()


def doctors(status: TopologyStatus, monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """What `pxrs doctor` says of a topology."""
    monkeypatch.setattr("pxrs_ray.cli._ray.connect", lambda: None)
    monkeypatch.setattr(doctor, "_status_of", lambda _: (status, "~"))
    monkeypatch.setattr(doctor, "_nodes", lambda _: ())
    monkeypatch.setattr(doctor, "_orphans", lambda *_: ())
    return [found for found in doctor.findings("shop") if found.kind not in DOCTORS]


class Gauges:
    """Stands in for Ray's metrics, and keeps what is set."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], float] = {}

    def make(self, name: str, *_: object, **__: object) -> Any:
        def put(value: float, labels: dict[str, str]) -> None:
            self.values[(name, *labels.values())] = value

        return SimpleNamespace(set=put, inc=put, observe=put)


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> Callable[[TopologyStatus], dict[str, float]]:
    """The kinds of problems that the metrics count in a status."""

    def of(status: TopologyStatus) -> dict[str, float]:
        kept = Gauges()
        for name in ("Gauge", "Counter", "Histogram"):
            monkeypatch.setattr(metrics, name, kept.make)
        TopologyMetrics("shop").report(Sources(status, {}, {}, []))
        return {
            key[3]: value
            for key, value in kept.values.items()
            if key[0] == "pxrs_problems" and value
        }

    return of


@pytest.mark.parametrize(("kind", "status", "words"), EACH)
def test_all_show_each_problem(
    kind: Kind,
    status: TopologyStatus,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    gauges: Callable[[TopologyStatus], dict[str, float]],
) -> None:
    (problem,) = problems(status)
    line = f"{problem.severity.upper()}: {problem}"
    assert line in terminal(status) and line in repr(status).splitlines()
    assert doctors(status, monkeypatch) == [problem]
    assert gauges(status) == {kind: 1.0}
    page = Story().tell(0, PageState(status, {}))
    assert page["problems"] == [{**problem.plain(), "line": str(problem)}]
    assert html.escape(line) in status._repr_html_()


def test_a_group_shows_its_own_problems_and_what_it_misses_of_its_topology() -> None:
    away = Report(Kind.BUFFER_AWAY, "buffer 1 (pid 7) does not answer for P1", 1)
    group = group_status(unknown=(away,), registry_away_s=7.0, records_waiting=2)
    registry, buffer = group_problems(group)
    assert "2 changes of ownership and membership wait" in registry.text
    assert buffer.kind is Kind.BUFFER_AWAY and "pxrs restart buffer/1" in buffer.remedy
    assert str(registry) in repr(group) and str(buffer) in repr(group)
    # The topology's list has both already, from those who know more.
    assert problems(topology_status(group)) == []


# --- causes and remedies --------------------------------------------------------------------------


def test_a_partition_that_gets_nowhere_is_reported_once_and_by_its_cause() -> None:
    def found(**changes: object) -> Problem:
        (only,) = problems(
            topology_status(first_partition(group_status(), **{"lag": 40, **changes}))
        )
        return only

    stall = Stall(75.0, 30)
    assert found(stall=stall, fenced_by=7).kind is Kind.PARTITION_FENCED
    assert found(stall=stall, problem="ValueError()").kind is Kind.PARTITION_HALTED
    # A message that is worked at for minutes is reported as that.
    assert found(stall=stall, call_s=80.0, call_offset=100).kind is Kind.CALL_LONG
    assert found(stall=stall, fenced_by=7, owner=None).kind is Kind.PARTITIONS_UNOWNED
    # A log's refusal is no failure of a handler, and is not passed by a seek.
    refused = found(refused="its log refuses its owner: it has seen 7")
    assert refused.kind is Kind.PARTITION_FENCED and "refuses its owner" in refused.text
    assert "seek" not in refused.remedy and "pxrs recover registry" in refused.remedy


def test_each_state_of_a_home_comes_with_its_own_remedy() -> None:
    def remedy(kind: Kind) -> str:
        (found,) = problems(ILL[kind][0])
        return found.remedy

    waits = remedy(Kind.BUFFER_WAITS)
    assert "bring that host back" in waits and "`pxrs accept-loss --buffer 1 -t shop`" in waits
    assert "restart" not in waits
    assert "nothing" in remedy(Kind.BUFFER_MOVES)
    leaves = remedy(Kind.BUFFER_CANNOT_MOVE)
    assert "add a node" in leaves and "`pxrs move 1 -t shop`" in leaves
    assert "`pxrs accept-loss q -t shop`" in remedy(Kind.LOG_HALTED)


def test_the_moves_that_spread_buffers_are_shown_as_commands() -> None:
    steps = (SpreadStep(2, "10.0.0.1", "10.0.0.2"), SpreadStep(1, "10.0.0.1", "10.0.0.3"))
    places = tuple(buffer_place(n, host="10.0.0.1") for n in range(3))
    (found,) = problems(topology_status(places=places, uneven=steps))
    assert "`pxrs move 2 10.0.0.2 -t shop`, `pxrs move 1 10.0.0.3 -t shop`" in found.remedy


def test_a_group_that_nobody_uses_is_named_with_the_command_that_removes_it() -> None:
    (found,) = problems(ILL[Kind.GROUP_UNUSED][0])
    assert found.remedy.endswith("`pxrs group delete billing -t shop`")
    assert not problems(topology_status(group_status(lag=5, unused_ms=DAY_MS)))


@pytest.mark.parametrize(("kind", "status", "words"), EACH)
def test_every_command_of_a_remedy_is_one_that_there_is(
    kind: Kind, status: TopologyStatus, words: str
) -> None:
    program: Any = typer.main.get_command(root)
    for found in problems(status):
        assert "ray.kill" not in found.remedy and "get_actor" not in found.remedy
        for command in re.findall(r"`([^`]+)`", found.remedy):
            if not command.startswith("pxrs "):
                assert (
                    command.startswith(("ray ", "kill -CONT "))
                    or command == 'processing = "by_key"'
                )
                continue
            # Parsed to its end, with a file in its place; nothing is run.
            _, name, *arguments = shlex.split(command)
            one = program.get_command(None, name)
            while hasattr(one, "get_command"):
                one = one.get_command(None, arguments.pop(0))
            assert one is not None, command
            one.make_context(name, ["shop.toml" if word == "FILE" else word for word in arguments])


def test_no_remedy_harms_a_group_that_only_starts() -> None:
    (found,) = problems(ILL[Kind.CONSUMERS_START][0])
    assert "scale" not in found.remedy


def test_orphans_are_actors_that_belong_to_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = "pxrs/shop/consumer/billing/billing-{}"
    there = {actor.format(name) for name in ("0/1", "0/9", "1/2", "2/4")}
    monkeypatch.setattr(orphans, "consumers_there", lambda topology: there)
    supervisor: Any = ConsumerSupervisor(*(cast(Any, None),) * 3, {}, lambda: None)
    # billing-0 joined again in the same process; billing-1 is just starting; billing-2 hands over.
    supervisor.lives.wanted = {
        "billing-0": ConsumerReplica("billing-0", 9, actor.format("0/1"), "running"),
        "billing-1": ConsumerReplica("billing-1", 2, actor.format("1/2"), "starting"),
    }
    supervisor.lives.leaving = [ConsumerReplica("billing-2", 4, actor.format("2/4"), "leaving")]
    controller: Any = SimpleNamespace(replica_set=supervisor)
    found = asyncio.run(orphans.orphans_of("shop", [controller]))
    assert found == [actor.format("0/9")]
