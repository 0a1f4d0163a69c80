"""The last hour of each group, as the coordinator keeps it: bounded, and gone on with by a page."""

from __future__ import annotations

from dataclasses import replace

from pxrs_ray.dashboard.page_state import PageState, Story
from pxrs_ray.status.past import GROUPS_KEPT, Past, Point
from tests.cli.pictures import group_status, topology_status


def test_points_are_bounded_and_those_of_groups_that_are_gone_go() -> None:
    past, status = Past(points_kept=3), topology_status(group_status(4, 1, lag=2))
    for second in range(1, 6):
        past.note(second * 1_000, status)
    [(group, points)] = past.points().items()
    assert group == "billing" and [p["at_ms"] for p in points] == [3_000, 4_000, 5_000]
    assert points[-1]["lag"] == status.groups[0].lag and past.newest("billing") == points[-1]
    past.note(6_000, replace(status, groups=()))
    assert past.points() == {} and past.newest("billing") is None


def test_many_groups_have_a_bound_too() -> None:
    group = group_status(1, 1)
    names = [replace(group, group=f"g{number}") for number in range(GROUPS_KEPT + 5)]
    past = Past()
    past.note(1_000, topology_status(*names))
    assert len(past.points()) == GROUPS_KEPT


def test_a_page_goes_on_after_what_the_coordinator_has_noted() -> None:
    before: Point = {"at_ms": 5, "lag": 70, "consumed": 1.0, "produced": 2.0}
    story = Story()
    story.begin({"billing": [before]})
    story.tell(9_000, PageState(topology_status(group_status(4, 1)), {}))
    assert [point["at_ms"] for point in story.past()["billing"]] == [5, 9_000]
    story.begin({"billing": [before, before]})
    assert len(story.past()["billing"]) == 2, "what is known here is not told twice"
