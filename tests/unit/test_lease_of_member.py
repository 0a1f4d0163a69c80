"""A member's lease as the coordinator counts it: never shorter than the member may think."""

from __future__ import annotations

from pxrs_ray.clock import Instant
from pxrs_ray.group.events import Configure, Heartbeat, Join
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.model import Member
from pxrs_ray.store.memory import MemoryStore
from tests.settings import group_settings


def test_a_lease_that_was_given_is_not_shortened() -> None:
    """The member counts on the old one until it has heard of the new: that answer may be lost."""
    store = MemoryStore()
    store.create()
    core = GroupCoordinator(
        store.lead("g", 1, "test"), group_settings(lease_ms=10_000), Instant(0, 0)
    )
    core.handle(Join((Member("a", 1),)), Instant(1_000, 0))
    core.handle(Configure(lease_ms=1_000), Instant(2_000, 0))
    core.handle(Heartbeat("a", 1, (0, 0)), Instant(2_500, 0))
    assert core.state.members["a"].until_ms == 11_000
    core.handle(Heartbeat("a", 1, (0, 0)), Instant(10_500, 0))
    assert core.state.members["a"].until_ms == 11_500
