"""Processing semantics on a real Ray: they must hold through kills and hand-overs."""

from __future__ import annotations

import os
import signal

import pytest

from tests.actors.conftest import Stage, send
from tests.actors.recording import Failing, Recorder, eventually

pytestmark = pytest.mark.ray


def test_keys_run_beside_each_other_in_order_and_a_kill_repeats_only_gaps(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q", parallelism=16, commit_interval_ms=20)
    group.start(Recorder(stage.notes, work_s=0.01), consumers=1)
    send(topology, 400, keys=40)
    notes = eventually(lambda: len(n := stage.notebook.notes()) >= 150 and n)
    os.kill(notes[0].pid, signal.SIGKILL)
    eventually(lambda: group.lag() == 0, 60)
    notes = stage.notebook.notes()
    assert {note.payload for note in notes} == {f"m{n}" for n in range(400)}
    # What was in hand and what 20 ms of commits had not told is repeated, and no more.
    assert len(notes) <= 400 + 150
    for key in {note.key for note in notes}:
        offsets = [
            note.offset for note in notes if note.key == key and note.epoch == notes[0].epoch
        ]
        assert offsets == sorted(offsets)


def test_attempts_count_on_through_hand_overs_until_the_dead_letter(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group(
        "g",
        queue="q",
        parallelism=4,
        attempts_max=8,
        backoff_ms=300,
        backoff_ms_max=300,
        commit_interval_ms=10,
        failure_policy="dead_letter",
    )
    send(topology, 10, keys=10)
    group.start(Failing(stage.notes, {"m3": -1}), consumers=4)
    for number in range(3):
        failed = 2 * (number + 1)
        eventually(lambda failed=failed: len(stage.notebook.notes("failed")) >= failed)
        owner = next(iter(group.status().owners))
        group.remove_consumer(owner)
    eventually(lambda: group.lag() == 0)
    attempts = [note.attempt for note in stage.notebook.notes("failed")]
    assert attempts == list(range(1, 9))
    assert len({note.member for note in stage.notebook.notes("failed")}) >= 4
    assert len(stage.notebook.notes()) == 9
    with topology.group("dead", queue="q.dead").consumer() as consumer:
        [letter] = eventually(lambda: (b := consumer.poll(1)) and list(b))
    headers = dict(letter.headers)
    assert letter.payload == b"m3" and headers["pxrs-attempts"] == b"8"
    assert b"cannot do m3" in headers["pxrs-error"]
