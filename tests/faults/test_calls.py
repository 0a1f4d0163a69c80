"""The net over calls, at a part of its steps; `python -m tests.faults.calls` takes all of them."""

from __future__ import annotations

import pytest

from tests.faults.calls import FAULTS, attempt, census, plans, quick_collection, run
from tests.world.plan import Plan
from tests.world.scenarios import SCENARIOS

PART = 16
# What was found by it, and what shows that guards of the shell are noticed.
NAMED = (
    ("hand_over", Plan("store.call.write", 0, "answered late")),
    ("hand_over", Plan("consumer.begin", 0, "doubled")),
    ("hand_over", Plan("coordinator.ReleasePartitions", 0, "delayed")),
    ("commit", Plan("buffer.fetch", 0, "delayed")),
    ("tenant_move", Plan("coordinator.StartGroup", 0, "caller killed before")),
    ("feed", Plan("buffer.append", 1, "delayed")),
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_promise_breaks_whatever_call_fails(scenario: str) -> None:
    report = run((scenario,), part=PART)
    assert report.steps >= 4
    assert not report.failures, "\n".join(report.failures)


@pytest.mark.parametrize(
    ("scenario", "plan"), NAMED, ids=[f"{name}-{plan.kind}-{plan.fault}" for name, plan in NAMED]
)
def test_it_goes_on_when(scenario: str, plan: Plan) -> None:
    with quick_collection():
        fresh = Plan(plan.kind, plan.number, plan.fault)
        assert not attempt(scenario, fresh)
        assert fresh.put


def test_every_fault_is_really_put() -> None:
    with quick_collection():
        for fault in FAULTS:
            plan = Plan("coordinator.CommitProgress", 1, fault)
            assert not attempt("commit", plan)
            assert plan.put


def test_a_scenario_makes_the_calls_that_it_is_about() -> None:
    seen = census("hand_over")
    about = ("ReleasePartitions", "CommitProgress", "SendHeartbeat")
    assert {f"coordinator.{name}" for name in about} <= seen.keys()
    assert {"buffer.fetch", "buffer.fence", "store.call.write", "consumer.begin"} <= seen.keys()
    assert len(list(plans(seen, 1))) > 100
