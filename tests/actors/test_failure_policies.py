"""What becomes of a message that its handler cannot process: never lost, never in a tight loop."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.actors.conftest import Stage, send
from tests.actors.recording import Failing, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

QUICK = {"backoff_ms": 20, "backoff_ms_max": 50, "commit_interval_ms": 20}


def test_it_is_tried_again_and_then_goes_on(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q", **QUICK)
    group.start(Failing(stage.notes, {"m3": 3}))
    send(topology, 6)
    eventually(lambda: group.lag() == 0)
    failed = stage.notebook.notes("failed")
    assert [note.attempt for note in failed] == [1, 2, 3]
    pauses = [b.at_s - a.at_s for a, b in pairwise(failed)]
    assert pauses[0] >= 0.02 and pauses[1] >= 0.04, "each pause is longer than the one before"
    assert [n.offset for n in stage.notebook.notes()] == [0, 1, 2, 3, 4, 5]
    assert stage.notebook.notes()[3].attempt == 4


def test_stop_stands_still_with_an_alarm_and_a_restart_of_the_group_tries_again(
    stage: Stage,
) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q", attempts_max=2, **QUICK)
    group.start(Failing(stage.notes, {"m0": -1}))
    send(topology, 20)
    status = eventually(
        lambda: (found := group.status()) and any(p.problem for p in found.partitions) and found
    )
    stuck = next(p for p in status.partitions if p.problem)
    assert "cannot do m0" in stuck.problem and "cannot do m0" in repr(status)
    other = 1 - stuck.partition
    eventually(lambda: group.status().partitions[other].lag == 0)
    assert group.status().partitions[stuck.partition].lag > 0
    assert len(stage.notebook.notes("failed")) == 2, "it stands still"
    group.start(Failing(stage.notes, {}))
    eventually(lambda: group.lag() == 0)
    assert Counter(stage.notebook.payloads()) == Counter(f"m{n}" for n in range(20))


def test_attempts_are_counted_on_by_the_next_owner(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    slow = {**QUICK, "backoff_ms": 1_000, "backoff_ms_max": 1_000}
    group = topology.group("g", queue="q", attempts_max=6, failure_policy="skip", **slow)
    group.start(Failing(stage.notes, {"m0": -1}))
    group.add_consumer("next")  # there before anything fails: a slow start is not what is asked
    send(topology, 2)
    eventually(lambda: len(stage.notebook.notes("failed")) == 2)
    owners = group.status().owners
    group.remove_consumer(next(member for member, owned in owners.items() if owned))
    eventually(lambda: group.lag() == 0)
    failed = stage.notebook.notes("failed")
    assert [note.attempt for note in failed] == [1, 2, 3, 4, 5, 6]
    assert {note.member for note in failed} == {"g-0", "next"}
    assert stage.notebook.payloads() == ["m1"]


def test_dead_letters_say_where_they_come_from(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q", attempts_max=2, failure_policy="dead_letter", **QUICK)
    group.start(Failing(stage.notes, {"m1": -1, "m7": -1}))
    send(topology, 20)
    eventually(lambda: group.lag() == 0)
    assert Counter(stage.notebook.payloads()) == Counter(
        f"m{n}" for n in range(20) if n not in (1, 7)
    )
    dead = topology.group("look", queue="q.dead")
    with dead.consumer() as consumer:
        found = []
        eventually(lambda: found.extend(consumer.poll(0.5) or ()) or len(found) == 2)
        consumer.commit()
    assert sorted(message.payload for message in found) == [b"m1", b"m7"]
    headers = dict(found[0].headers)
    assert headers["pxrs-group"] == b"g" and headers["pxrs-attempts"] == b"2"
    assert b"cannot do" in headers["pxrs-error"]
    # Seeking back makes them fail once more, and sends no second letter.
    group.seek("start")
    eventually(lambda: group.lag() == 0)
    with dead.consumer() as consumer:
        assert consumer.poll(1.0) is None
    status = group.status()
    assert status.given_up_count == 4 and "m7" in str(status.given_up[-1]) + str(status.given_up)
    assert "4 messages were given up" in repr(status)
