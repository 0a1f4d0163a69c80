"""Tokens that handlers were given never go back or repeat, whatever is started anew meanwhile."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from pxrs_ray.actors.cluster.actor_process import whereabouts
from pxrs_ray.actors.names import buffer, coordinator
from tests.actors.conftest import Stage
from tests.actors.load import Load
from tests.actors.recording import Note, Recorder, eventually

pytestmark = pytest.mark.ray

ROUNDS = 2


def wrong(notes: list[Note]) -> list[str]:
    """What a receiver that keeps the highest token of each partition would refuse, or see twice."""
    found = []
    newest: dict[int, tuple[int, int]] = {}
    owners: dict[tuple[int, int], set[tuple[str, int, int]]] = {}
    for note in notes:
        token = note.epoch, note.offset
        if token <= newest.get(note.partition, (0, -1)):
            found.append(f"{note} after {newest[note.partition]}")
        newest[note.partition] = max(token, newest.get(note.partition, token))
        owner = note.member, note.incarnation, note.pid
        owners.setdefault((note.partition, note.epoch), set()).add(owner)
    found += [f"epoch {at} was held by {by}" for at, by in owners.items() if len(by) > 1]
    return found


def _kill(actor: str) -> None:
    found = eventually(lambda: whereabouts(actor))
    os.kill(found.pid, signal.SIGKILL)

    def another() -> Any:
        now = whereabouts(actor)
        return now is not None and now.state == "ALIVE" and now.pid not in (0, found.pid)

    eventually(another, 60)


def test_tokens_rise_across_restarts_of_coordinator_consumer_and_buffer(stage: Stage) -> None:
    topology = stage.deploy(partitions=4)
    group = topology.group("g", queue="q", commit_interval_ms=50)
    group.start(Recorder(stage.notes), consumers=2)
    with Load(topology, 200) as load:
        for _ in range(ROUNDS):
            for end in (
                lambda: _kill(coordinator(topology.name)),
                lambda: os.kill(group.status().consumers[0].pid, signal.SIGKILL),
                lambda: _kill(buffer(topology.name, 0)),
            ):
                done = len(stage.notebook.notes())
                eventually(lambda: len(stage.notebook.notes()) > done + 50, 60)  # noqa: B023
                end()
        eventually(lambda: len([c for c in group.status().consumers if c.pid]) == 2, 60)
    eventually(lambda: group.lag() == 0, 60)
    notes = stage.notebook.notes()
    assert wrong(notes) == []
    assert {note.payload for note in notes} == {f"m{n}" for n in range(load.sent)}
    assert max(note.epoch for note in notes) > 1, "nobody was taken over from"


def test_what_a_receiver_would_refuse_is_found() -> None:
    def note(epoch: int, offset: int, pid: int = 1) -> Note:
        return Note(0.0, "done", pid, "g-0", 1, 0, offset, epoch, 1, "", "")

    assert wrong([note(1, 0), note(1, 1), note(3, 1, 2), note(3, 2, 2)]) == []
    assert wrong([note(1, 0), note(1, 0)])
    assert wrong([note(3, 0), note(1, 1)])
    assert wrong([note(1, 0), note(1, 1, 2)])
