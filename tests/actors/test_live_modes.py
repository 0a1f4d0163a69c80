"""A group that runs changes its mode of processing, and each option of it: nobody is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.config import ByKey, Ordered, Packs
from pxrs_ray.config.declare import Options
from pxrs_ray.config.processing_modes import ProcessingMode
from pxrs_ray.errors import UsageError
from tests.actors.conftest import Stage
from tests.actors.live_scene import (
    LATE,
    SKIP,
    Scene,
    Shows,
    again,
    consumer_sees,
    live,
    one_by_one,
    pauses,
    scene_on,
    together,
    too_slow,
    tried,
)

pytestmark = [pytest.mark.ray, pytest.mark.lent]

ONE_AT_A_TIME = Ordered(consumer_per_partition=False)

# What each live option of a mode is changed to, from that mode as it is by default.
MODES: dict[tuple[type[Options], str], tuple[ProcessingMode, dict[str, Any], Shows | None]] = {
    (Ordered, "commit_mode"): (Ordered(commit_mode="message"), LATE, Scene.done),
    (ByKey, "parallelism"): (ByKey(parallelism=4), {}, together),
    (ByKey, "handler_timeout_ms"): (ByKey(handler_timeout_ms=50), SKIP, too_slow),
    (ByKey, "lookahead_records"): (ByKey(lookahead_records=4), {}, together),
    (ByKey, "lookahead_bytes"): (ByKey(lookahead_bytes=9_000), {}, together),
    (ByKey, "gap_log"): (ByKey(gap_log=False), {}, Scene.done),
    (ByKey, "fair_tenants"): (ByKey(fair_tenants=True), {}, Scene.done),
    (ByKey, "tenant_weights"): (ByKey(tenant_weights={"a": 2.0}), {}, Scene.done),
    (ByKey, "tenant_header"): (ByKey(fair_tenants=True, tenant_header="who"), {}, Scene.done),
    (Packs, "submit_strategy"): (Packs(submit_strategy="sequential"), {}, one_by_one),
    (Packs, "processing_strategy"): (Packs(processing_strategy="retry_all"), {}, together),
    (Packs, "parallelism"): (Packs(parallelism=1), {}, one_by_one),
    (Packs, "pack_records"): (Packs(pack_records=2), {}, Scene.done),
    (Packs, "batch_records"): (Packs(submit_strategy="batch", batch_records=4), {}, together),
    (Packs, "timeout_ms"): (Packs(timeout_ms=5_000), {}, Scene.done),
    (Packs, "retries"): (again(retries=1, pause_ms=1), SKIP, tried(2)),
    (Packs, "pause_ms"): (again(retries=1, pause_ms=1_400), SKIP, pauses(1_400)),
    (Packs, "pause_ms_max"): (Packs(pause_ms=1, pause_ms_max=2), {}, Scene.done),
    (Packs, "failure_percentage"): (again(failure_percentage=0.0), SKIP, tried(1)),
    (Packs, "tenant_header"): (
        Packs(submit_strategy="sequential_by_tenant", tenant_header="who"),
        {},
        Scene.done,
    ),
}


def test_each_live_option_of_a_mode_is_taken_over_and_so_is_the_mode(stage: Stage) -> None:
    """From that mode as it is by default, and back through all modes, by the same processes."""
    every = {(kind, name) for kind in (Ordered, ByKey, Packs) for name in live(kind, "mode")}
    assert set(MODES) == every, "every option that is declared as live is tried here"
    with scene_on(stage) as scene:
        before = scene.who()
        for (kind, name), (mode, others, see) in MODES.items():
            scene.apply(groups={"g": {"processing": kind()}})
            scene.done()
            wanted = scene.base.changed(groups={"g": {**others, "processing": mode}})
            found = scene.topology.apply(wanted)
            assert f"groups.g.processing.{name}" in [one.option for one in found]
            assert before == scene.who(), f"{kind.__name__}.{name} replaced a consumer"
            if see is not None:
                see(scene)
            assert [config.processing for config in consumer_sees(scene)] == [mode] * 2
        scene.apply()
        scene.done()
        assert before == scene.who()


def test_what_is_put_aside_before_and_after_a_change_is_all_put_aside(stage: Stage) -> None:
    """Under one epoch: workers that are made anew go on numbering where the former ones were."""
    options = {"processing": "by_key", "failure_policy": "quarantine", "attempts_max": 1}
    with scene_on(stage, **options) as scene:
        put_aside = set(scene.done("bad", 30))
        before = scene.who()
        scene.apply(groups={"g": {"processing": {"parallelism": 4}, "attempts_max": 2}})
        for _ in range(2):
            bad = scene.done("bad", 5)
            put_aside |= set(bad)
            assert len(scene.notes("begun", bad)) == 10, "each is tried twice now"
        keys = [one.key.decode() for one in scene.group.quarantine.list() if one.key]
        assert sorted(keys) == sorted(put_aside)
        assert scene.who() == before


@pytest.mark.parametrize("policy", ["stop", "dead_letter"])
def test_a_running_group_gets_a_quarantine(stage: Stage, policy: str) -> None:
    with scene_on(stage, attempts_max=1, failure_policy=policy) as scene:
        before = scene.who()
        scene.done()
        changed = {"processing": "by_key", "failure_policy": "quarantine"}
        scene.apply(groups={"g": changed})
        bad = scene.done("bad", 5)
        keys = [one.key.decode() for one in scene.group.quarantine.list() if one.key]
        assert sorted(keys) == sorted(bad) and scene.who() == before
        # What is put aside must not be forgotten: another place for it, or none, is refused.
        with pytest.raises(UsageError, match="quarantine_queue"):
            scene.apply()
        scene.done()
        # Nothing is aside any more: it leaves, and keeps the place.
        for key in keys:
            scene.group.quarantine.skip(key.encode(), None)
        kept = {"processing": "by_key", "quarantine_queue": "q.quarantine.g"}
        scene.apply(groups={"g": {**kept, "failure_policy": "skip"}})
        scene.done("bad", 2)
        scene.done()
        assert scene.who() == before
        with pytest.raises(UsageError, match="only 'quarantine' puts messages aside"):
            scene.group.quarantine.list()


def test_what_needs_new_consumers_is_told_so_and_replaces_each(stage: Stage) -> None:
    with scene_on(stage) as scene:
        before = scene.who()
        wanted = scene.base.changed(groups={"g": {"processing": ONE_AT_A_TIME}})
        (found,) = scene.topology.apply(wanted, dry_run=True)
        assert "(replaces consumers one by one)" in str(found)
        for changed in (wanted, scene.base.changed(groups={"g": {"processing": "by_key"}})):
            # There, and from there to a mode that does not have the option at all.
            scene.topology.apply(changed)
            after = scene.who()
            assert after.keys() == before.keys()
            assert not {pid for pid, *_ in before.values()} & {pid for pid, *_ in after.values()}
            scene.done()
            before = after
