"""A group's failure policy changes while it runs, into quarantine and out of it."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.config import PxrsConfig
from pxrs_ray.config.withheld import with_what_stays


def topology(**group: Any) -> PxrsConfig:
    group = {"queue": "q", "processing": "by_key", **group}
    return PxrsConfig(queues={"q": {}}, groups={"g": group})


@pytest.mark.parametrize("policy", ["stop", "skip", "dead_letter"])
def test_a_policy_changes_live_into_quarantine_and_out_of_it_again(policy: str) -> None:
    """With what runs and no file names, as a coordinator takes it."""
    other = topology(failure_policy=policy)
    aside = topology(failure_policy="quarantine")
    assert all(found.allowed for found in other.diff(with_what_stays(aside, other)))
    refused = [str(each) for each in aside.diff(with_what_stays(other, aside)) if not each.allowed]
    (told,) = refused
    assert "write quarantine_queue = 'q.quarantine.g' to keep it" in told
    kept = topology(failure_policy=policy, quarantine_queue="q.quarantine.g")
    assert all(found.allowed for found in aside.diff(with_what_stays(kept, aside)))
