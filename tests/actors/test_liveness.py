"""Who is dead and who only silent, on real Ray: outages, freezes, hangs, and what is told."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from pxrs_ray.errors import ChangeWaits, RegistryAway
from pxrs_ray.status.views import group_state
from tests.actors.conftest import Stage
from tests.actors.load import Load
from tests.actors.recording import Recorder, eventually
from tests.actors.test_faults import nothing_lost
from tests.servers import RedisServer

pytestmark = pytest.mark.ray

LEASE_S = 2.0
OUTAGE_S = 20.0
ANSWER_S = 3.5


def told_within(seconds: float, ask: Any) -> Any:
    """What `ask` answers or raises; it has to in so many seconds."""
    began_s = time.monotonic()
    try:
        return ask()
    except Exception as error:
        return error
    finally:
        assert time.monotonic() - began_s < seconds


def test_an_outage_of_the_registry_moves_nobody_and_is_told_at_once(
    stage: Stage, redis_server: RedisServer
) -> None:
    prefix = f"/{stage.folder.name}/"
    topology = stage.deploy(partitions=4, store=redis_server.url, key_prefix=prefix)
    group = topology.group(
        "g", queue="q", commit_interval_ms=50, lease_ttl_seconds=LEASE_S, revoke_deadline_ms=2_000
    )
    group.start(Recorder(stage.notes), consumers=2)
    before = [(p.owner, p.epoch) for p in group.status().partitions]
    scaled: list[object] = []
    with Load(topology) as load:
        eventually(lambda: len(stage.notebook.notes()) > 100)
        redis_server.freeze()
        try:
            began_s = time.monotonic()
            # Nobody knows yet that it is away: this change is begun, waits, and is told so.
            scale = threading.Thread(
                target=lambda: scaled.append(told_within(12, lambda: group.scale(3)))
            )
            scale.start()
            status = told_within(ANSWER_S, topology.status)
            scale.join(15)
            assert isinstance(scaled[0], ChangeWaits), scaled
            while time.monotonic() - began_s < OUTAGE_S:
                status = told_within(ANSWER_S, topology.status)
                mine = told_within(ANSWER_S, group.status)
                assert [(p.owner, p.epoch) for p in mine.partitions] == before
                assert group_state(mine).words == "registry away"
                away = str(status.problems[0])
                assert (
                    away.startswith(f"registry of {topology.name}: away for ")
                    and "1 change waits: scale group g 3" in away
                )
                refused = told_within(ANSWER_S, lambda: group.scale(4))
                assert isinstance(refused, RegistryAway) and "nothing was changed" in str(refused)
                assert isinstance(told_within(ANSWER_S, group.history), RegistryAway)
                done = len(stage.notebook.notes())
                time.sleep(2)
                assert len(stage.notebook.notes()) > done, "consumers go on working"
        finally:
            redis_server.thaw()
        eventually(lambda: topology.status().store.away_s is None, timeout_s=30)
        eventually(lambda: len(group.status().owners) == 3, timeout_s=30)
        time.sleep(LEASE_S * 2)
    notes = nothing_lost(stage, group, load.sent)
    causes = [c.cause for c in group.history() if c.kind == "release"]
    assert not [c for c in causes if "lease over" in c or "deadline" in c or "died" in c], causes
    assert all(c.incarnation == 1 for c in group.status().consumers)
    again = {payload: n for payload, n in Counter(note.payload for note in notes).items() if n > 1}
    assert not again, "a change that waits for the registry hands over, and repeats nothing"
