"""A part of the net of appends; `make bench ONLY=proof` runs all of it."""

from __future__ import annotations

from tests.faults import appends


def test_no_fault_of_an_append_loses_doubles_or_reorders_anything() -> None:
    report = appends.run(part=61)
    assert report.failures == []
    assert report.steps >= 60
