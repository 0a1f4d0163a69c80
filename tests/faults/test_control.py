"""Control calls keep their promises whatever step of them fails or is the coordinator's last."""

from __future__ import annotations

import pytest

from tests.faults.control import SCENARIOS, Scenario, run


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_fault_at_every_step(scenario: Scenario) -> None:
    report = run([scenario])
    assert report.steps >= 8
    assert not report.failures, "\n".join(report.failures)
