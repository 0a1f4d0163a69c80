"""`pxrs drain NODE`, `pxrs plan --drain` and `--move`: told before, agreed to, and watched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pxrs_ray.actors.client import topology as topology_module
from pxrs_ray.actors.cluster import node_drain
from pxrs_ray.cli import _leaving, _ray, drain
from pxrs_ray.cli.root import run
from pxrs_ray.errors import NotFound, PxrsError
from pxrs_ray.status.answers import TopologyStatus
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.topology.move_plan import Estimate, HomeMove, Leaving
from pxrs_ray.topology.move_steps import Moved
from pxrs_ray.topology.node_seen import NodeSeen
from tests.cli.pictures import buffer_place, group_status, topology_status

GOES = NodeSeen("node-1-of-some-length", "10.0.0.2", "d2")
MOVE = HomeMove(
    1, "10.0.0.2", "10.0.0.1", 10**9, 5e6, 50 * 10**9, Estimate(22.1, 500_000, 2_010, 10_040)
)
PLAN = Leaving("shop", "10.0.0.2", GOES.node, (MOVE,), ("billing/billing-0",), deadline_s=600.0)


class Shop:
    """A topology whose node is emptied, one look after the other."""

    name = "shop"

    def __init__(self) -> None:
        self.plan = PLAN
        self.asked: list[tuple[Any, ...]] = []
        self.drained: list[tuple[str, float]] = []
        there, gone = buffer_place(1), buffer_place(1, host="10.0.0.1", node="other")
        starts = replace(gone, state="starting")
        group = group_status(consumers=1)
        leaving = replace(group.consumers[0], node=GOES.node)
        self.looks: list[TopologyStatus | PxrsError] = [
            topology_status(replace(group, consumers=(leaving,)), places=(there,)),
            NotFound("no answer now"),
            topology_status(group, places=(there,)),
            topology_status(group, places=(starts,)),
            topology_status(group, places=(gone,)),
        ]

    def plan_drain(self, *arguments: Any, **options: Any) -> Leaving:
        self.asked.append((*arguments, *options.values()))
        return self.plan

    plan_move = plan_drain

    def status(self) -> TopologyStatus:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, PxrsError):
            raise look
        return look


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    made = Shop()

    def called(wanted: str) -> NodeSeen | None:
        return GOES if wanted in (GOES.host, "node-1") else None

    monkeypatch.setattr(_ray, "connect", lambda: None)
    monkeypatch.setattr(_ray, "running", lambda name: made)
    monkeypatch.setattr(_leaving, "every", lambda name: [made])
    monkeypatch.setattr(_leaving, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(node_drain, "node_called", called)
    monkeypatch.setattr(node_drain, "node_to_drain", called)
    monkeypatch.setattr(node_drain, "nodes_told", lambda: "10.0.0.2 (node-1-o)")
    monkeypatch.setattr(
        node_drain, "begin_drain", lambda node, deadline_s: made.drained.append((node, deadline_s))
    )
    monkeypatch.setattr("pxrs_ray.actors.cluster.named_actors.running_topologies", lambda: ["shop"])
    monkeypatch.setattr(topology_module, "Topology", lambda name: Shop())
    yield made


def pxrs(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run(arguments)
    return (status, *capsys.readouterr())


def test_a_drain_tells_its_plan_begins_and_ends_when_nothing_is_left(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = pxrs(capsys, "drain", "10.0.0.2", "--deadline", "60", "--rate", "20")
    assert status == 0 and err == ""
    assert shop.asked == [(GOES.node, 60.0, 20e6)] and shop.drained == [(GOES.node, 60.0)]
    plan, _, rest = out.partition("not done: ")
    for words in (
        "1 consumers hand over: billing/billing-0",
        "1.0 GB",
        "5.0 MB/s",
        "about 2.0 s to 10",
    ):
        assert words in plan
    assert "2 s to stop and start" in " ".join(plan.split()) and "at 20 MB/s" in plan
    assert "shop: billing/billing-0" in rest and "buffer 1 on host 10.0.0.1: starting" in rest
    assert rest.rstrip().splitlines()[-1].startswith("host 10.0.0.2 has no consumer and no log")


def test_what_cannot_be_done_is_told_loudly_and_nothing_is_begun(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.plan = replace(PLAN, cannot=("buffer 1 has 9 MB to copy, and the disk has 1 MB left",))
    for json_too in ((), ("--json",)):
        status, _, err = pxrs(capsys, "drain", "node-1", *json_too)
        first, last = err.splitlines()
        assert status == 1 and first.startswith("CANNOT BE DONE: shop: buffer 1 has 9 MB to copy")
        assert "--yes" in last and shop.drained == []
    status, out, err = pxrs(capsys, "drain", "node-1", "--yes", "--json")
    assert status == 0 and shop.drained == [(GOES.node, drain.DEADLINE_USUAL_S)]
    assert "CANNOT BE DONE" in err and json.loads(out)["plans"][0]["cannot"]


def test_what_is_left_at_the_deadline_is_named(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del shop.looks[1:]
    shop.looks[0] = replace(
        shop.looks[0],  # type: ignore[type-var]
        reports=(
            Report(
                Kind.BUFFER_CANNOT_MOVE,
                "buffer 1 cannot leave host 10.0.0.2, which is drained: no room",
                1,
            ),
        ),
    )
    monkeypatch.setattr(_leaving.time, "monotonic", iter([0.0, 30.0, 61.0]).__next__)
    status, _, err = pxrs(capsys, "drain", "10.0.0.2", "--deadline", "60")
    assert status == 1 and len(err.splitlines()) == 1
    assert (
        "is not empty at its deadline" in err
        and "cannot leave host 10.0.0.2" in err
        and "billing-0" in err
    )


def test_a_group_of_a_name_goes_before_a_node_and_the_two_are_not_mixed(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drain._is_node("10.0.0.2", None) and not drain._is_node("billing", None)
    monkeypatch.setattr(node_drain, "node_called", lambda wanted: GOES)
    assert not drain._is_node("billing", None)
    status, _, err = pxrs(capsys, "drain", "10.0.0.2", "--deadline", "60", "--empty")
    assert status == 1 and "--empty" in err and shop.drained == []


def test_plans_change_nothing(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.plan = replace(PLAN, cannot=("no room",))
    status, out, err = pxrs(capsys, "plan", "--drain", "10.0.0.2")
    assert status == 0 and "1.0 GB" in out and "CANNOT BE DONE: shop: no room" in err
    shop.plan = replace(PLAN, host="", cannot=("no room",))
    status, out, _ = pxrs(capsys, "plan", "--move", "1", "--to", "10.0.0.1")
    assert status == 0 and "about 2.0 s" in out and "CANNOT BE DONE: no room" in out
    assert shop.drained == [] and shop.asked[-1] == (1, "10.0.0.1", 50e6)
    told = json.loads(pxrs(capsys, "plan", "--move", "1", "--json")[1])
    assert told["moves"][0]["estimate"]["pause_ms"] == 2_010


def test_a_move_that_loses_something_is_not_begun_unasked(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[tuple[int, str | None]] = []

    def move_buffer(buffer: int, node: str | None, *, source: str | None) -> Moved:
        moved.append((buffer, node))
        return Moved(buffer, "10.0.0.2", "10.0.0.1", 7, 40)

    monkeypatch.setattr(shop, "move_buffer", move_buffer, raising=False)
    monkeypatch.setattr(_ray, "steady", lambda name: shop)
    shop.plan = replace(PLAN, host="", cannot=("queue clicks keeps its messages in memory",))
    status, _, err = pxrs(capsys, "move", "1")
    first, last = err.splitlines()
    assert status == 1 and "CANNOT BE DONE: shop: queue clicks" in first and "--yes" in last
    assert moved == [] and pxrs(capsys, "move", "1", "--yes")[0] == 0
    shop.plan = replace(PLAN, host="")
    status, out, err = pxrs(capsys, "move", "1", "10.0.0.1")
    assert status == 0 and err == "" and "it served nobody for 40 ms" in out
    assert moved == [(1, None), (1, "10.0.0.1")]


@pytest.mark.parametrize(
    "arguments",
    [(), ("billing",), ("billing", "3", "--move", "1"), ("--drain", "a", "--move", "1")],
)
def test_a_plan_is_of_one_thing(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = pxrs(capsys, "plan", *arguments)
    assert status == 1 and "say GROUP and CONSUMERS, or --drain NODE, or --move" in err


def test_several_topologies_share_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    _leaving.tell([PLAN, replace(PLAN, topology="two")], GOES, 30.0, 50.0, quiet=True)
    assert "MAY NOT BE DONE: 2 topologies" in capsys.readouterr().err
    _leaving.tell([PLAN, replace(PLAN, topology="two")], GOES, 300.0, 50.0, quiet=True)
    assert capsys.readouterr().err == ""
