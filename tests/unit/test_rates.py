"""Rates out of successive statuses."""

from __future__ import annotations

from dataclasses import replace

from pxrs_ray.status.rates import Rates
from tests.cli.pictures import group_status, topology_status


def test_a_rate_needs_two_looks_and_follows_the_checkpoints() -> None:
    rates, group = Rates(), group_status(partitions=2)
    rates.note(10.0, topology_status(group))
    assert rates.consumed("billing") == 0.0
    on = tuple(replace(p, checkpoint=p.checkpoint + 50) for p in group.partitions)
    rates.note(12.0, topology_status(replace(group, partitions=on)))
    assert rates.consumed("billing") == 50.0
    assert rates.produced("payments") == 0.0


def test_a_seek_back_and_an_unknown_name_are_no_rate() -> None:
    rates, group = Rates(), group_status(partitions=2)
    rates.note(10.0, topology_status(group))
    back = tuple(replace(p, checkpoint=0) for p in group.partitions)
    rates.note(11.0, topology_status(replace(group, partitions=back)))
    assert rates.consumed("billing") == 0.0 == rates.consumed("other")
