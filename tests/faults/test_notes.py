"""Whoever writes small files beside the logs keeps his promises whatever operation fails."""

from __future__ import annotations

import pytest

from tests.faults.notes import SCENES, run


@pytest.mark.parametrize("scene", SCENES)
def test_no_promise_breaks_whatever_operation_fails(scene: str) -> None:
    report = run((scene,))
    assert report.steps >= 20
    assert not report.failures, "\n".join(report.failures)
