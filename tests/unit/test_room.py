"""What a plan says of room: counted per node, for a consumer must fit on one."""

from __future__ import annotations

from pxrs_ray.actors.cluster.free_resources import needs_of, unplaced


def test_options_become_needs() -> None:
    options = {"num_cpus": 0.5, "num_gpus": 1, "resources": {"worker": 2}}
    assert needs_of(options) == {"CPU": 0.5, "GPU": 1.0, "worker": 2.0}
    assert needs_of({"num_cpus": 0}) == {}


def test_a_consumer_must_fit_on_one_node() -> None:
    needs = {"CPU": 2.0}
    assert unplaced(3, needs, {"a": {"CPU": 3.0}, "b": {"CPU": 4.0}}) == 0
    assert unplaced(4, needs, {"a": {"CPU": 3.0}, "b": {"CPU": 4.0}}) == 1
    assert unplaced(1, needs, {"a": {"CPU": 1.0}, "b": {"CPU": 1.0}}) == 1
    assert unplaced(2, {"CPU": 1.0, "GPU": 1.0}, {"a": {"CPU": 8.0, "GPU": 1.0}}) == 1
    assert unplaced(5, {}, {}) == 0
