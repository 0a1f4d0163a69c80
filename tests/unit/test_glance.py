"""Several topologies beside each other: each in a word, also one that does not answer."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import DeadlineExceeded, NotFound
from pxrs_ray.status.glance import OneOfSeveral, glance_of, glances_view
from tests.cli.pictures import buffer_place, group_status, topology_status


@pytest.mark.parametrize(
    ("status", "tone", "words"),
    [
        (topology_status(group_status()), "good", "ok"),
        (topology_status(group_status(lag=10_000)), "warn", "1 warning"),
        (topology_status(group_status(problem="odd", lag=10_000)), "bad", "1 problem"),
        (
            topology_status(group_status(problem="odd"), places=(buffer_place(free_bytes=5),)),
            "bad",
            "2 problems",
        ),
    ],
)
def test_the_worst_counts(status: object, tone: str, words: str) -> None:
    glance = glance_of(status)  # type: ignore[arg-type]
    assert (glance.topology, glance.tone, glance.words) == ("shop", tone, words)


def test_who_does_not_answer_is_in_the_list_with_the_reason() -> None:
    frozen, gone = DeadlineExceeded("pid 7 lives and is frozen"), NotFound("6 actors are there")
    told = [
        OneOfSeveral.of(topology_status(group_status(lag=3))),
        OneOfSeveral.failed("late", frozen),
        OneOfSeveral.failed("lost", gone),
    ]
    text = glances_view(told).text()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "shop ok 1 360 450 ms" in lines[3:]  # 16 partitions, P15 lags by 45
    assert "late does not answer - - -" in lines and "lost no coordinator - - -" in lines
    assert "PROBLEM: pid 7 lives and is frozen" in lines
    assert "PROBLEM: 6 actors are there" in lines
    assert told[1].plain()["error"] == str(frozen) and told[0].plain()["lag"] == 360
