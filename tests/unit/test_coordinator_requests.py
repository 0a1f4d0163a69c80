"""Requests of the coordinator: each has one method that answers it, and takes what it brings."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_args

import pytest

from pxrs_ray.actors.cluster.coordinator_request import GroupRequest, Request, WhileAway
from pxrs_ray.actors.consumer.member_requests import CommitProgress, ProgressRequest
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.actors.coordinator.group_controller import GroupController
from pxrs_ray.actors.coordinator.group_requests import PlanScale, ScaleGroup, SeekGroup
from pxrs_ray.actors.coordinator.member_api import MemberApi
from pxrs_ray.actors.coordinator.request_handlers import (
    RequestHandlers,
    answered_by,
    answers,
    answers_for_group,
)
from pxrs_ray.actors.coordinator.topology_requests import GetStatus, MoveBuffer, OpenGroup
from pxrs_ray.errors import UnsupportedVersion, UsageError
from pxrs_ray.group.events import PartitionProgress
from pxrs_ray.model import Progress

OF_GROUPS = (GroupController, ConsumerReplicas, MemberApi)


def kinds(above: type = Request) -> Iterator[type[Request[Any]]]:
    """Every request of the product that can be made."""
    for kind in above.__subclasses__():
        if not kind.__module__.startswith("pxrs_ray"):
            continue
        if kind.__subclasses__():
            yield from kinds(kind)
        else:
            yield kind


KINDS = sorted(kinds(), key=lambda kind: kind.__name__)


def test_every_request_has_one_method_that_answers_it() -> None:
    assert len(KINDS) > 35
    answered = Counter(kind for part in (Coordinator, *OF_GROUPS) for kind in answered_by(part))
    assert {kind.__name__: answered[kind] for kind in KINDS} == {k.__name__: 1 for k in KINDS}
    assert answered.keys() == set(KINDS)
    of_groups = {kind for part in OF_GROUPS for kind in answered_by(part)}
    assert of_groups == {kind for kind in KINDS if issubclass(kind, GroupRequest)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_it_takes_what_the_request_brings_and_gives_its_answer(kind: type[Request[Any]]) -> None:
    """As mypy checks it, too: a method that is marked for a request of other fields is no use."""
    [method] = [
        getattr(part, answered_by(part)[kind])
        for part in (Coordinator, *OF_GROUPS)
        if kind in answered_by(part)
    ]
    signature = inspect.signature(method)
    taken = [name for name in signature.parameters if name != "self"]
    brought = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    assert taken == brought[issubclass(kind, GroupRequest) :]
    [answer] = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]
    name = str(answer) if get_args(answer) else getattr(answer, "__name__", str(answer))
    told = getattr(answer, "__forward_arg__", name)
    assert signature.return_annotation == told.replace("NoneType", "None")
    assert kind.wait_s > 0 and isinstance(kind.while_away, WhileAway)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_it_travels(kind: type[Request[Any]]) -> None:
    given: list[Any] = [f"value {n}" for n, _ in enumerate(fields(kind))]  # type: ignore[arg-type]
    if issubclass(kind, ProgressRequest):
        given[-1] = (
            PartitionProgress(0, 1, Progress(2)),
            PartitionProgress(1, 2, Progress(3, 4, "detail")),
        )
    request = kind(*given)
    assert pickle.loads(pickle.dumps(request)) == request
    assert request.arguments() == tuple(given[issubclass(kind, GroupRequest) :])


def test_people_read_it_in_a_few_words() -> None:
    assert ScaleGroup("billing", 4).told() == "scale group billing 4"
    assert GetStatus().told() == "get status"
    assert MoveBuffer(3).told() == "move buffer 3"
    assert OpenGroup("g", None, {}).told() == "open group g"
    assert len(OpenGroup("g" * 500, None, {}).told()) == 100


def test_progress_is_plain_on_the_way_and_progress_on_arrival() -> None:
    rows = tuple(PartitionProgress(p, 3, Progress(1_000 + p)) for p in range(128))
    travels = pickle.dumps(CommitProgress("g", "m", 1, rows))
    assert b"PartitionProgress\x94" not in travels.replace(b"CommitProgress", b"")
    assert pickle.loads(travels).rows == rows


@dataclass(frozen=True)
class Unknown(Request[None]):
    """Of a version of PXRS that this coordinator is not."""


class Parts:
    """A coordinator of one request, and its group."""

    @answers(MoveBuffer)  # type: ignore[arg-type]
    async def move(self, index: int, node: str | None = None, source: str | None = None) -> str:
        return f"{index} to {node} from {source}"

    @answers_for_group(ScaleGroup)  # type: ignore[arg-type]
    async def scale(self, consumers: int) -> str:
        return f"{consumers} consumers"


def test_a_request_is_answered_by_its_method() -> None:
    handlers = RequestHandlers(Parts())

    def answer(request: Request[Any]) -> Any:
        return asyncio.run(handlers.answer(request))

    assert answer(MoveBuffer(1, "n", "m")) == "1 to n from m"
    assert answer(ScaleGroup("g", 4)) == "4 consumers"
    with pytest.raises(UnsupportedVersion, match=r"no request 'Unknown'.* `pxrs restart"):
        answer(Unknown())
    with pytest.raises(UsageError, match="scale: consumers = 'four'"):
        answer(ScaleGroup("g", "four"))  # type: ignore[arg-type]


def test_a_field_that_an_older_version_does_not_send_has_its_default() -> None:
    older = object.__new__(SeekGroup)
    older.__dict__.update(group="g", kind="start", value=0)
    assert pickle.loads(pickle.dumps(older)).arguments() == ("start", 0, None, None)
    assert PlanScale("g", 2).arguments() == (2,)
